import assert from 'node:assert/strict'
import { spawn } from 'node:child_process'
import { chmod, mkdir, mkdtemp, readFile, rm, writeFile } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { after, before, describe, test } from 'node:test'
import { Diagnostics } from '../../src/base/diagnostics.ts'
import { Cgroups } from '../../src/cri/cgroups.ts'
import { readHostAbilities, SaidOnce } from '../../src/cri/host.ts'
import { parseMounts, readMounts } from '../../src/cri/mounts.ts'
import { OciControl } from '../../src/cri/oci-control.ts'
import { podHostname, writePodFiles } from '../../src/cri/pod-files.ts'
import { identify, isAlive, terminate } from '../../src/cri/process-identity.ts'
import { runCommand } from '../../src/cri/run-command.ts'
import { PodPaths } from '../../src/client/pod-state.ts'
import { checkLeaks } from '../support/leak-check.ts'
import { podConfig, podRecord } from './cri-values.ts'

checkLeaks()

let root = ''
before(async () => {
  root = await mkdtemp(join(tmpdir(), 'holdfast-host-'))
})
after(async () => {
  await rm(root, { recursive: true, force: true })
})

/** An OCI runtime that says this, whatever it is asked. */
async function fakeRuntime(said: { code: number; stdout?: string; stderr?: string }): Promise<OciControl> {
  const path = join(root, 'fakerun')
  const { code, stdout = '', stderr = '' } = said
  await writeFile(
    path,
    `#!/bin/sh\necho "$@" > ${root}/asked\nprintf '%s' '${stdout}'\nprintf '%s' '${stderr}' >&2\nexit ${code}\n`,
  )
  await chmod(path, 0o755)
  return new OciControl(path, '/state')
}

describe('calls of the OCI runtime', () => {
  test('name the container and say what the runtime said', async () => {
    const stderr = 'time="2026" level=info msg="x"\ntime="2026" level=error msg="no \\"sh\\" there"'
    const oci = await fakeRuntime({ code: 1, stderr })
    await assert.rejects(oci.start('c1'), { code: 'internal', message: 'fakerun start c1: no "sh" there' })
    assert.equal(await readFile(join(root, 'asked'), 'utf8'), '--root /state start c1\n')
  })

  for (const stderr of [
    'container not running',
    'container "c1" does not exist',
    'kill container: No such process',
  ]) {
    test(`do not mind that there is nothing to kill: ${stderr}`, async () => {
      assert.equal(await (await fakeRuntime({ code: 1, stderr })).kill('c1', 9), false)
    })
  }

  test('do not mind that there is nothing to delete', async () => {
    await (await fakeRuntime({ code: 1, stderr: 'container does not exist' })).delete('c1')
    const stubborn = await fakeRuntime({ code: 1, stderr: 'device or resource busy' })
    await assert.rejects(stubborn.delete('c1'), { message: 'fakerun delete c1: device or resource busy' })
  })

  test('read a state', async () => {
    assert.equal(
      await (await fakeRuntime({ code: 0, stdout: '{"status":"running"}' })).state('c1'),
      'running',
    )
    assert.equal(await (await fakeRuntime({ code: 1, stderr: 'does not exist' })).state('c1'), 'absent')
  })

  test('fail when there is no such program', async () => {
    await assert.rejects(new OciControl('/no/runc', '/state').start('c1'), /run \/no\/runc: .*ENOENT/)
  })
})

describe('commands', () => {
  test('give code and words', async () => {
    const args = ['-c', 'echo out; echo err >&2; exit 3']
    assert.deepEqual(await runCommand('sh', args), { code: 3, stdout: 'out\n', stderr: 'err\n' })
    assert.equal((await runCommand('sh', ['-c', 'kill -9 $$'])).code, 137)
  })
})

describe('the list of mounts', () => {
  test('is read with its escapes and optional fields', () => {
    const mountinfo = [
      '36 35 98:0 / /a\\040b rw,noatime shared:1 master:2 - ext4 /dev/root rw,errors=continue',
      '37 35 0:30 / /sys/fs/cgroup/memory rw - cgroup cgroup rw,memory',
      'nonsense',
      '',
    ].join('\n')
    assert.deepEqual(parseMounts(mountinfo), [
      { mountpoint: '/a b', type: 'ext4', superOptions: ['rw', 'errors=continue'] },
      { mountpoint: '/sys/fs/cgroup/memory', type: 'cgroup', superOptions: ['rw', 'memory'] },
    ])
  })

  test('tells what this host can do', async () => {
    const host = readHostAbilities(await readMounts())
    assert.match(host.capabilityMask, /^[0-9a-f]{16}$/)
    assert.ok(host.minOomScoreAdj >= -1000 && host.minOomScoreAdj <= 1000)
  })
})

describe('cgroups', () => {
  test('hold the pod below its parent, else below ours', () => {
    const cgroups = new Cgroups([], new SaidOnce(new Diagnostics(() => undefined)))
    assert.equal(cgroups.podPath('p', '/kubepods/burstable'), '/kubepods/burstable/p')
    assert.equal(cgroups.podPath('p', ''), '/holdfast/p')
    assert.equal(cgroups.podPath('p', 'a.slice'), '/holdfast/p')
  })

  test('are tried in every hierarchy but cpuset, and a refusal is said once', async () => {
    const said: string[] = []
    const once = new SaidOnce(new Diagnostics((line) => said.push(line)))
    const good = join(root, 'good')
    await mkdir(good)
    const mount = (mountpoint: string, type: string, option: string) => ({
      mountpoint,
      type,
      superOptions: ['rw', option],
    })
    const mounts = [
      mount(good, 'cgroup2', ''),
      mount(join(root, 'cpuset'), 'cgroup', 'cpuset'),
      mount('/proc/nowhere', 'cgroup', 'memory'),
      mount('/elsewhere', 'tmpfs', ''),
    ]
    const cgroups = new Cgroups(mounts, once)
    await cgroups.placeMonitor('/holdfast/p', 77)
    await cgroups.placeMonitor('/holdfast/p', 77)
    assert.equal(await readFile(join(good, 'holdfast/p-monitor/cgroup.procs'), 'utf8'), '77')
    assert.equal(said.length, 1)
    assert.match(said[0] ?? '', /below \/proc\/nowhere/)
  })
})

describe('a process', () => {
  test('is known by more than its pid', async () => {
    const child = spawn('sleep', ['100'])
    const known = identify(child.pid ?? 0)
    assert.ok(known !== undefined && isAlive(known))
    assert.equal(isAlive({ pid: known.pid, startTime: '1' }), false)
    const ended = new Promise((resolve) => child.once('exit', (_, signal) => resolve(signal)))
    // A stranger with that pid is left alone.
    await terminate({ pid: known.pid, startTime: '1' }, 50)
    await terminate(known, 5_000)
    assert.equal(await ended, 'SIGTERM')
    assert.equal(isAlive(known), false)
  })

  test('that is not there has no identity', () => {
    assert.equal(identify(2 ** 22 + 1), undefined)
    assert.equal(isAlive({ pid: 0, startTime: '' }), false)
  })
})

describe('the files of a pod', () => {
  test('say what the pod was given', async () => {
    const paths = new PodPaths(root, 'pod')
    await mkdir(paths.directory)
    const dns = { servers: ['10.0.0.1', '10.0.0.2'], searches: ['a.b', 'b'], options: ['ndots:5'] }
    await writePodFiles(paths, { hostname: 'web', hostNetwork: false, dns })
    const read = async (name: string): Promise<string> => await readFile(join(paths.etc, name), 'utf8')
    assert.equal(
      await read('resolv.conf'),
      'search a.b b\nnameserver 10.0.0.1\nnameserver 10.0.0.2\noptions ndots:5\n',
    )
    assert.equal(await read('hostname'), 'web\n')
    assert.match(await read('hosts'), /^127.0.0.1\tweb$/m)
  })

  test('name a pod as far as a hostname may be long', () => {
    assert.equal(podHostname(podRecord({ name: 'x'.repeat(100) })).length, 64)
    assert.equal(podHostname(podRecord({ config: podConfig({ hostname: 'given' }) })), 'given')
  })
})
