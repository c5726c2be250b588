// `holdfast-monitor pause`: namespaces with names, and nothing left when it fails.

import assert from 'node:assert/strict'
import { execFileSync, spawnSync } from 'node:child_process'
import {
  existsSync,
  mkdirSync,
  mkdtempSync,
  readFileSync,
  readlinkSync,
  rmSync,
  statSync,
  writeFileSync,
} from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { after, test } from 'node:test'
import { checkLeaks } from '../support/leak-check.ts'
import { keeperBinary } from './monitor.ts'

const kinds = ['ipc', 'pid', 'net', 'user', 'uts'] as const
const directory = mkdtempSync(join(tmpdir(), 'holdfast-podinit-'))
after(() => {
  unmountAll()
  rmSync(directory, { recursive: true, force: true })
})
checkLeaks()

function pause(
  args: readonly string[],
  env: NodeJS.ProcessEnv = {},
): { status: number | null; stderr: string } {
  const { status, stderr } = spawnSync(keeperBinary, ['pause', ...args], {
    env: { ...process.env, ...env },
    encoding: 'utf8',
  })
  return { status, stderr }
}

function mounts(): string[] {
  return readFileSync('/proc/mounts', 'utf8')
    .split('\n')
    .map((line) => line.split(' ')[1] ?? '')
    .filter((path) => path.startsWith(directory))
}

function unmountAll(): void {
  for (const path of mounts().toReversed()) spawnSync('umount', [path])
}

const own = (kind: string): number => Number(/\d+/.exec(readlinkSync(`/proc/self/ns/${kind}`))?.[0])

test('the selected namespaces are new, the others the host’s, and loopback is up', () => {
  const base = join(directory, 'x'.repeat(120), 'y'.repeat(120), 'base')
  assert.deepEqual(pause(['--base-path', base, '--pod-id', 'pod.1', '--net', '--ipc', '--uts']), {
    status: 0,
    stderr: '',
  })
  for (const kind of kinds) {
    const stat = statSync(join(base, `${kind}ns`, 'pod.1'))
    assert.equal(stat.ino === own(kind), kind === 'pid' || kind === 'user', kind)
    assert.equal(stat.mode & 0o777, 0o444)
    assert.equal(stat.size, 0)
  }
  const netns = join(base, 'netns', 'pod.1')
  const flags = execFileSync('nsenter', [`--net=${netns}`, 'cat', '/proc/net/if_inet6'], { encoding: 'utf8' })
  assert.match(flags, /^0{31}1 .* lo$/m)
  assert.equal(mounts().length, 5)
})

test('names that a killed monitor has left are used again', () => {
  const base = join(directory, 'again')
  assert.equal(pause(['-p', base, '--pod-id=p', '--net']).status, 0)
  const first = statSync(join(base, 'netns/p')).ino
  assert.equal(pause(['-p', base, '--pod-id=p', '--net']).status, 0)
  assert.notEqual(statSync(join(base, 'netns/p')).ino, first)
  assert.equal(mounts().filter((path) => path.startsWith(base)).length, 5)
})

test('the environment can say it, too', () => {
  const base = join(directory, 'env')
  const env = {
    CONMON_PAUSE_BASE_PATH: base,
    CONMON_PAUSE_POD_ID: 'e',
    CONMON_PAUSE_UTS: 'true',
    CONMON_PAUSE_IPC: 'false',
  }
  assert.deepEqual(pause([], env), { status: 0, stderr: '' })
  assert.notEqual(statSync(join(base, 'utsns/e')).ino, own('uts'))
  assert.equal(statSync(join(base, 'ipcns/e')).ino, own('ipc'))
})

const refusals: readonly [what: string, args: string[], status: number, stderr: RegExp][] = [
  ['no pod id', ['--net'], 2, /^error: no pod ID provided/],
  ['a pod id that is a path', ['--pod-id', '../x', '--net'], 2, /^error: pod ID '..\/x' cannot name a file/],
  ['an unknown flag', ['--pod-id', 'a', '--frob'], 2, /^error: unexpected argument '--frob' found/],
  ['an argument', ['--pod-id', 'a', 'frob'], 2, /^error: unexpected argument 'frob' found/],
  [
    'a pid namespace',
    ['--pod-id', 'a', '--pid'],
    1,
    /^create namespaces: pod a: pid and user namespaces are not supported yet/,
  ],
  ['a user namespace', ['--pod-id', 'a', '--user'], 1, /not supported yet/],
  ['mappings', ['--pod-id', 'a', '-u', '0 0 1'], 1, /not supported yet/],
]

for (const [what, args, status, stderr] of refusals) {
  test(`${what} is refused with ${status}`, () => {
    const result = pause(['--base-path', join(directory, 'refused'), ...args])
    assert.equal(result.status, status)
    assert.match(result.stderr, stderr)
    assert.equal(existsSync(join(directory, 'refused')), false)
  })
}

test('when one name cannot be made the others are unmounted', () => {
  const base = join(directory, 'broken')
  mkdirSync(join(base, 'userns'), { recursive: true })
  writeFileSync(join(base, 'userns/p'), 'somebody’s file')
  const { status, stderr } = pause(['-p', base, '--pod-id', 'p', '--net'])
  assert.equal(status, 1)
  assert.match(stderr, /^create namespaces: create .*userns\/p: File exists\n$/)
  assert.deepEqual(
    mounts().filter((path) => path.startsWith(base)),
    [],
  )
  assert.equal(existsSync(join(base, 'netns/p')), false)
  assert.equal(readFileSync(join(base, 'userns/p'), 'utf8'), 'somebody’s file')
})

test('a base path that cannot be made is named', () => {
  const { status, stderr } = pause(['-p', '/proc/nowhere', '--pod-id', 'p'])
  assert.equal(status, 1)
  assert.match(
    stderr,
    /^create namespaces: make the parents of \/proc\/nowhere\/ipcns\/p: No such file or directory\n$/,
  )
})
