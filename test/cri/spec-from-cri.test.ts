import assert from 'node:assert/strict'
import { mkdir, mkdtemp, rm, writeFile } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { after, before, describe, test } from 'node:test'
import { PodPaths } from '../../src/client/pod-state.ts'
import { specRequest } from '../../src/cri/spec-from-cri.ts'
import type { SpecSource } from '../../src/cri/spec-from-cri.ts'
import type { ContainerConfig, LinuxContainerSecurityContext } from '../../src/cri/messages.ts'
import { containerConfig, podRecord, securityContext, storedImage } from './cri-values.ts'
import { checkLeaks } from '../support/leak-check.ts'

checkLeaks()

let root = ''
let podPaths: PodPaths
before(async () => {
  root = await mkdtemp(join(tmpdir(), 'holdfast-spec-'))
  podPaths = new PodPaths(root, 'pod')
  await mkdir(podPaths.etc, { recursive: true })
  await mkdir(podPaths.shm)
  await writeFile(join(podPaths.etc, 'hosts'), '')
})
after(async () => {
  await rm(root, { recursive: true, force: true })
})

function source(config: Partial<ContainerConfig>, changes: Partial<SpecSource> = {}): SpecSource {
  return {
    config: containerConfig(config),
    pod: podRecord({ namespaces: { net: '/ns/net', ipc: '/ns/ipc', uts: '/ns/uts' } }),
    podPaths,
    image: storedImage(root),
    rootfs: root,
    cgroupsPath: '/holdfast/p/c',
    ...changes,
  }
}

function secure(security: Partial<LinuxContainerSecurityContext>): Partial<ContainerConfig> {
  return { linux: { resources: null, securityContext: { ...securityContext, ...security } } }
}

describe('a container of the CRI', () => {
  const commands: { name: string; command: string[]; args: string[]; expected: string[] }[] = [
    { name: 'nothing', command: [], args: [], expected: ['/entry', 'cmd'] },
    { name: 'arguments', command: [], args: ['a'], expected: ['/entry', 'a'] },
    { name: 'a command', command: ['c'], args: [], expected: ['c'] },
    { name: 'both', command: ['c'], args: ['a', ''], expected: ['c', 'a', ''] },
  ]
  for (const { name, command, args, expected } of commands) {
    test(`runs what it and the image say: ${name}`, async () => {
      assert.deepEqual((await specRequest(source({ command, args }))).args, expected)
    })
  }

  test('has its own environment over the image, byte for byte', async () => {
    const envs = [
      { key: 'A', value: Buffer.alloc(0) },
      { key: 'B', value: Buffer.from('x=y') },
      { key: 'C', value: Buffer.from('l1\nl2 "é" ${X} $(id)') },
      { key: '1E', value: Buffer.from('z') },
      { key: 'FROM_IMAGE', value: Buffer.from('first') },
      { key: 'FROM_IMAGE', value: Buffer.from('second') },
    ]
    const { env } = await specRequest(source({ envs, tty: true }))
    assert.deepEqual(env, [
      'HOSTNAME=pod-name',
      'TERM=xterm',
      'FROM_IMAGE=second',
      'A=',
      'B=x=y',
      'C=l1\nl2 "é" ${X} $(id)',
      '1E=z',
      'HOME=/',
    ])
  })

  test('has the files of its pod, but its own mounts first', async () => {
    const mount = {
      hostPath: root,
      readonly: true,
      propagation: 'PROPAGATION_HOST_TO_CONTAINER' as const,
      recursiveReadOnly: false,
      image: null,
    }
    const mounts = [{ ...mount, containerPath: '/dev/shm' }]
    const made = await specRequest(source({ mounts }))
    assert.deepEqual(made.mounts, [
      {
        destination: '/etc/hosts',
        type: 'bind',
        source: join(podPaths.etc, 'hosts'),
        options: ['rbind', 'rprivate', 'rw'],
      },
      { destination: '/dev/shm', type: 'bind', source: root, options: ['rbind', 'rslave', 'ro'] },
    ])
  })

  test('tells the monitor that stdin closes with its client', async () => {
    const { annotations } = await specRequest(source({ stdinOnce: true, annotations: { a: 'b' } }))
    assert.deepEqual(annotations, { a: 'b', 'io.kubernetes.cri-o.StdinOnce': 'true' })
  })

  test('has no hostname of its own in the host network', async () => {
    const pod = podRecord({ namespaces: {} })
    const made = await specRequest(source({}, { pod }))
    assert.equal(made.hostname, '')
    assert.deepEqual(made.namespaces, {})
  })

  test('runs as the user that was asked for', async () => {
    const config = secure({
      runAsUser: { value: '1000' },
      runAsGroup: { value: '7' },
      supplementalGroups: ['8'],
    })
    assert.deepEqual((await specRequest(source(config))).user, { uid: 1000, gid: 7, additionalGids: [8] })
  })

  test('has the masks of its security context, even none', async () => {
    assert.equal((await specRequest(source({}))).maskedPaths, undefined)
    assert.deepEqual((await specRequest(source(secure({})))).maskedPaths, [])
  })

  test('has the limits as numbers', async () => {
    const resources = {
      cpuPeriod: '100000',
      cpuQuota: '-1',
      cpuShares: '2',
      memoryLimitInBytes: '9007199254740991',
      oomScoreAdj: '-998',
      cpusetCpus: '0-1',
      cpusetMems: '',
      hugepageLimits: [{ pageSize: '2MB', limit: '0' }],
      unified: { 'memory.high': '1' },
      memorySwapLimitInBytes: '0',
    }
    const { limits } = await specRequest(source({ linux: { resources, securityContext: null } }))
    assert.deepEqual(limits, {
      cpuPeriod: 100000,
      cpuQuota: -1,
      cpuShares: 2,
      memoryBytes: 9007199254740991,
      oomScoreAdj: -998,
      cpusetCpus: '0-1',
      cpusetMems: '',
      hugepages: [{ pageSize: '2MB', limit: 0 }],
      unified: { 'memory.high': '1' },
      memorySwapBytes: 0,
    })
  })

  test('reads a seccomp profile of the host', async () => {
    const path = join(root, 'profile.json')
    await writeFile(path, '{"defaultAction":"SCMP_ACT_ALLOW"}')
    const profile = (
      profileType: 'Localhost' | 'RuntimeDefault' | 'Unconfined',
      localhostRef = '',
    ): Partial<ContainerConfig> => secure({ seccomp: { profileType, localhostRef } })
    assert.deepEqual((await specRequest(source(profile('Localhost', path)))).seccomp, {
      defaultAction: 'SCMP_ACT_ALLOW',
    })
    assert.equal((await specRequest(source(profile('Unconfined')))).seccomp, undefined)
    assert.equal(
      (await specRequest(source(profile('RuntimeDefault')))).seccomp?.defaultAction,
      'SCMP_ACT_ALLOW',
    )
  })

  test('gets a device by its numbers', async () => {
    const devices = [{ hostPath: '/dev/null', containerPath: '/dev/nothing', permissions: 'r' }]
    const [device] = (await specRequest(source({ devices }))).devices
    assert.deepEqual(
      [device?.path, device?.type, device?.major, device?.minor, device?.access],
      ['/dev/nothing', 'c', 1, 3, 'r'],
    )
  })

  const volume = {
    containerPath: '/v',
    hostPath: '/',
    readonly: false,
    propagation: 'PROPAGATION_PRIVATE' as const,
    recursiveReadOnly: false,
    image: null,
  }
  const namespaces = { network: 'POD', pid: 'POD', ipc: 'POD', targetId: '', usernsOptions: null } as const
  const refused: { name: string; config: Partial<ContainerConfig>; code: string; message: RegExp }[] = [
    {
      name: 'a zero byte in an argument',
      config: { command: ['a\0b'] },
      code: 'invalid-argument',
      message: /zero byte/,
    },
    {
      name: 'an environment that is not UTF-8',
      config: { envs: [{ key: 'D', value: Buffer.from([0xff]) }] },
      code: 'invalid-argument',
      message: /variable D: its value is not UTF-8/,
    },
    {
      name: 'a variable without a name',
      config: { envs: [{ key: '', value: Buffer.alloc(0) }] },
      code: 'invalid-argument',
      message: /no usable name/,
    },
    {
      name: 'a mount of nothing',
      config: { mounts: [{ ...volume, hostPath: '/no/such' }] },
      code: 'invalid-argument',
      message: /mount \/v: "\/no\/such" does not exist/,
    },
    {
      name: 'a relative mount',
      config: { mounts: [{ ...volume, containerPath: 'v' }] },
      code: 'invalid-argument',
      message: /"v": the path is not absolute/,
    },
    {
      name: 'an image as a volume',
      config: { mounts: [{ ...volume, image: { image: 'x' } }] },
      code: 'unimplemented',
      message: /image volumes/,
    },
    {
      name: 'a device that is a file',
      config: { devices: [{ hostPath: '/etc/passwd', containerPath: '', permissions: '' }] },
      code: 'invalid-argument',
      message: /device \/etc\/passwd: it is none/,
    },
    {
      name: 'a capability that is none',
      config: secure({
        capabilities: { addCapabilities: ['FLY'], dropCapabilities: [], addAmbientCapabilities: [] },
      }),
      code: 'invalid-argument',
      message: /"FLY"/,
    },
    {
      name: 'a group without a user',
      config: secure({ runAsGroup: { value: '1' } }),
      code: 'invalid-argument',
      message: /run_as_group without a user/,
    },
    {
      name: 'a user beyond 32 bits',
      config: secure({ runAsUser: { value: '4294967295' } }),
      code: 'invalid-argument',
      message: /run_as_user 4294967295/,
    },
    {
      name: 'the pid namespace of another container',
      config: secure({ namespaceOptions: { ...namespaces, pid: 'TARGET' } }),
      code: 'unimplemented',
      message: /pid namespace/,
    },
    {
      name: 'a user namespace',
      config: secure({ namespaceOptions: { ...namespaces, usernsOptions: { mode: 'POD' } } }),
      code: 'unimplemented',
      message: /user namespaces/,
    },
    {
      name: 'a seccomp profile that is not there',
      config: secure({ seccomp: { profileType: 'Localhost', localhostRef: '/none.json' } }),
      code: 'invalid-argument',
      message: /"\/none.json".*ENOENT/,
    },
  ]
  for (const { name, config, code, message } of refused) {
    test(`is refused with ${name}`, async () => {
      await assert.rejects(specRequest(source(config)), { code, message })
    })
  }

  test('needs a command from somewhere', async () => {
    const image = {
      ...storedImage(root),
      defaults: { ...storedImage(root).defaults, entrypoint: [], cmd: [] },
    }
    await assert.rejects(specRequest(source({}, { image })), /neither it nor the image has a command/)
  })
})
