import assert from 'node:assert/strict'
import { describe, test } from 'node:test'
import { MonitorError } from '../../src/base/errors.ts'
import { capabilitiesOfMask, chooseCapabilities, defaultCapabilities } from '../../src/oci/capabilities.ts'
import { buildSpec } from '../../src/oci/oci-spec.ts'
import { defaultSeccomp } from '../../src/oci/seccomp.ts'
import type { HostAbilities, OciMount, ResourceLimits, SpecRequest } from '../../src/oci/spec-request.ts'
import { checkLeaks } from '../support/leak-check.ts'

checkLeaks()

const host: HostAbilities = {
  capabilityMask: '000001ffffffffff',
  minOomScoreAdj: -1000,
  hugetlb: true,
  swapLimit: true,
}

const limits: ResourceLimits = {
  cpuPeriod: 0,
  cpuQuota: 0,
  cpuShares: 0,
  cpusetCpus: '',
  cpusetMems: '',
  memoryBytes: 0,
  memorySwapBytes: 0,
  hugepages: [],
  unified: {},
  oomScoreAdj: 0,
}

function request(changes: Partial<SpecRequest> = {}): SpecRequest {
  return {
    args: ['sh'],
    env: ['PATH=/bin'],
    cwd: '/',
    terminal: false,
    user: { uid: 0, gid: 0, additionalGids: [] },
    hostname: 'pod',
    rootfs: '/bundle/rootfs',
    readonlyRootfs: false,
    mounts: [],
    devices: [],
    namespaces: { net: '/ns/net', ipc: '/ns/ipc', uts: '/ns/uts' },
    hostPid: false,
    privileged: false,
    capabilities: { add: [], drop: [], ambient: [] },
    noNewPrivileges: false,
    maskedPaths: undefined,
    readonlyPaths: undefined,
    seccomp: undefined,
    apparmorProfile: undefined,
    sysctls: {},
    limits: undefined,
    cgroupsPath: '/holdfast/p/c',
    annotations: {},
    ...changes,
  }
}

function bindMount(destination: string, option = 'rprivate'): OciMount {
  return { destination, type: 'bind', source: '/s', options: ['rbind', option] }
}

function deniedWith(capabilities: string[]): readonly string[] {
  return defaultSeccomp(capabilities, 'x64').syscalls?.[0]?.names ?? []
}

describe('config.json', () => {
  test('joins the namespaces of the pod and has its own pid and mount namespace', () => {
    const { spec } = buildSpec(request(), host)
    assert.deepEqual(spec.linux['namespaces'], [
      { type: 'mount' },
      { type: 'pid' },
      { type: 'network', path: '/ns/net' },
      { type: 'ipc', path: '/ns/ipc' },
      { type: 'uts', path: '/ns/uts' },
    ])
    assert.equal(spec.hostname, 'pod')
  })

  test('never sets the hostname of the host', () => {
    const { spec } = buildSpec(request({ namespaces: {}, hostPid: true }), host)
    assert.deepEqual(spec.linux['namespaces'], [{ type: 'mount' }])
    assert.equal(spec.hostname, undefined)
  })

  test('lets a mount of the request replace a usual one, and puts deeper mounts later', () => {
    const { spec } = buildSpec(
      request({ mounts: [bindMount('/a/b'), bindMount('/dev/shm'), bindMount('/a')] }),
      host,
    )
    const shm = spec.mounts.filter(({ destination }) => destination === '/dev/shm')
    assert.deepEqual(
      shm.map(({ type }) => type),
      ['bind'],
    )
    const places = spec.mounts.map(({ destination }) => destination)
    assert.ok(places.indexOf('/a') < places.indexOf('/a/b'))
  })

  test('says nothing about resources that nobody limited', () => {
    const { spec } = buildSpec(request({ limits: { ...limits, memoryBytes: 1 << 25, cpuShares: 512 } }), host)
    assert.deepEqual(spec.linux['resources'], {
      devices: [{ allow: false, access: 'rwm' }],
      memory: { limit: 1 << 25, swap: 1 << 25 },
      cpu: { shares: 512 },
      hugepageLimits: [],
    })
  })

  test('leaves out what the host cannot do, and names it', () => {
    const weak = { capabilityMask: '000001fffeffffff', minOomScoreAdj: 0, hugetlb: false, swapLimit: false }
    const { spec, reductions } = buildSpec(
      request({
        limits: {
          ...limits,
          memoryBytes: 4096,
          oomScoreAdj: -998,
          hugepages: [{ pageSize: '2MB', limit: 1 }],
        },
        capabilities: { add: ['SYS_RESOURCE', 'NET_ADMIN'], drop: [], ambient: [] },
      }),
      weak,
    )
    assert.equal(spec.process.oomScoreAdj, 0)
    assert.deepEqual(spec.linux['resources'], {
      devices: [{ allow: false, access: 'rwm' }],
      memory: { limit: 4096 },
      cpu: {},
    })
    assert.equal(spec.process.capabilities['bounding']?.includes('CAP_SYS_RESOURCE'), false)
    assert.equal(spec.process.capabilities['bounding']?.includes('CAP_NET_ADMIN'), true)
    assert.deepEqual(reductions, [
      'this host cannot lower oom_score_adj below 0',
      'this host cannot give CAP_SYS_RESOURCE',
      'this host cannot limit huge pages',
    ])
  })

  test('gives a privileged container all capabilities, all devices and nothing masked', () => {
    const { spec } = buildSpec(
      request({ privileged: true, seccomp: defaultSeccomp([], 'x64'), maskedPaths: ['/proc/kcore'] }),
      host,
    )
    assert.equal(spec.process.capabilities['effective']?.length, 41)
    assert.deepEqual(spec.linux['resources'], { devices: [{ allow: true, access: 'rwm' }] })
    assert.deepEqual(spec.linux['maskedPaths'], [])
    assert.equal(spec.linux['seccomp'], undefined)
    assert.deepEqual(
      spec.mounts.filter(({ options }) => options?.includes('ro')),
      [],
    )
  })

  test('lets mounts through from the host only when one asks for it', () => {
    const propagation = (option: string) =>
      buildSpec(request({ mounts: [bindMount('/m', option)] }), host).spec.linux['rootfsPropagation']
    assert.deepEqual(['rprivate', 'rslave', 'rshared'].map(propagation), [undefined, 'rslave', 'rshared'])
  })
})

describe('capabilities', () => {
  const cases: { name: string; add: string[]; drop: string[]; expected: string[] }[] = [
    { name: 'nothing asked for', add: [], drop: [], expected: [...defaultCapabilities] },
    { name: 'all dropped', add: [], drop: ['ALL'], expected: [] },
    { name: 'all dropped but one', add: ['net_raw'], drop: ['all'], expected: ['CAP_NET_RAW'] },
    { name: 'dropped after added', add: ['CAP_NET_RAW'], drop: ['ALL', 'NET_RAW'], expected: [] },
  ]
  for (const { name, add, drop, expected } of cases) {
    test(`chooses them: ${name}`, () => {
      assert.deepEqual(chooseCapabilities(defaultCapabilities, add, drop).toSorted(), expected.toSorted())
    })
  }

  test('refuses a name that is none', () => {
    assert.throws(
      () => chooseCapabilities([], ['FLY'], []),
      (error) =>
        error instanceof MonitorError && error.code === 'invalid-argument' && error.message.includes('"FLY"'),
    )
  })

  test('reads the mask of the kernel', () => {
    assert.deepEqual(capabilitiesOfMask('0000000001000001'), ['CAP_CHOWN', 'CAP_SYS_RESOURCE'])
  })
})

describe('the default seccomp filter', () => {
  test('gives back what a capability stands for', () => {
    assert.ok(deniedWith([]).includes('mount'))
    assert.ok(deniedWith([]).includes('bpf'))
    assert.equal(deniedWith(['CAP_SYS_ADMIN']).includes('mount'), false)
    assert.equal(deniedWith(['CAP_BPF']).includes('bpf'), false)
    assert.ok(deniedWith(['CAP_SYS_ADMIN']).includes('kexec_load'))
  })

  test('names no architecture on a machine it does not know', () => {
    assert.equal(defaultSeccomp([], 'riscv64').architectures, undefined)
  })
})
