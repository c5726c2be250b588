// `holdfast-monitor run-oci`: a command gets what whoever launched the monitor had, not what the server has.

import assert from 'node:assert/strict'
import { spawnSync } from 'node:child_process'
import { existsSync, mkdtempSync, readFileSync, rmSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { after, test } from 'node:test'
import { checkLeaks } from '../support/leak-check.ts'
import { keeperBinary } from './monitor.ts'

const directory = mkdtempSync(join(tmpdir(), 'holdfast-run-oci-'))
after(() => rmSync(directory, { recursive: true }))
checkLeaks()

function run(
  args: readonly string[],
  env: NodeJS.ProcessEnv = {},
): { status: number | null; stdout: string; stderr: string } {
  const { status, stdout, stderr } = spawnSync(keeperBinary, ['run-oci', ...args], {
    env: { PATH: process.env['PATH'], ...env },
    encoding: 'utf8',
  })
  return { status, stdout, stderr }
}

test('the pid in the file is the command’s own, and its exit code comes through', () => {
  const file = join(directory, 'pid')
  const args = ['--pid-file', file, '--parent', String(process.pid), '--', 'sh', '-c', 'echo $$; exit 3']
  const { status, stdout } = run(args)
  assert.equal(status, 3)
  assert.equal(readFileSync(file, 'utf8'), stdout.trim())
  assert.equal(existsSync(`${file}.new`), false)
})

test('without its parent it runs nothing and leaves no file', () => {
  const file = join(directory, 'orphan')
  const { status, stdout } = run(['--pid-file', file, '--parent', '1', '--', 'echo', 'ran'])
  assert.deepEqual([status, stdout], [125, ''])
  assert.equal(existsSync(file), false)
})

test('the environment is the launch’s plus the request’s', () => {
  const env = {
    KEPT: 'yes',
    LISTEN_FDS: '1',
    LISTEN_PID: '1',
    NOTIFY_SOCKET: '/x',
    NODE_OPTIONS: 'x',
    NODE_ENV: 'launch',
    MALLOC_ARENA_MAX: '1',
    MALLOC_TRIM_THRESHOLD_: '1',
    UV_THREADPOOL_SIZE: '1',
    HOLDFAST_SERVER: 'x',
    HOLDFAST_LAUNCH_OOM: '0',
    HOLDFAST_ENV_NODE_ENV: 'request',
    HOLDFAST_ENV_KEPT: 'changed',
    HOLDFAST_ENV_EMPTY: '',
  }
  const { stdout } = run(['--', 'env'], env)
  const got = stdout
    .trim()
    .split('\n')
    .filter((line) => !line.startsWith('PATH='))
    .toSorted()
  assert.deepEqual(got, ['EMPTY=', 'KEPT=changed', 'NODE_ENV=request'])
})

test('limits, umask, oom score and signals are those of the launch', () => {
  const script =
    'ulimit -Sn; ulimit -Hn; umask; cat /proc/self/oom_score_adj; grep -E "Sig(Ign|Blk)" /proc/self/status'
  const command = `ulimit -n 500; trap "" HUP PIPE TERM; umask 077; exec "$0" run-oci -- sh -c '${script}'`
  const env = { PATH: process.env['PATH'], HOLDFAST_LAUNCH_NOFILE: '100:200', HOLDFAST_LAUNCH_OOM: '123' }
  const { stdout } = spawnSync('sh', ['-c', command, keeperBinary], { env, encoding: 'utf8' })
  const zero = '0000000000000000'
  assert.deepEqual(stdout.trim().split('\n'), [
    '100',
    '200',
    '0022',
    '123',
    `SigBlk:\t${zero}`,
    `SigIgn:\t${zero}`,
  ])
})

test('the command has the descriptors that it was given and no other', () => {
  const list = ['sh', '-c', 'ls /proc/$$/fd'] as const
  const direct = spawnSync(list[0], list.slice(1), { encoding: 'utf8' }).stdout
  assert.equal(run(['--pid-file', join(directory, 'fds'), '--', ...list]).stdout, direct)
})

for (const [what, args, status, stderr] of [
  ['a missing command', ['--', '/no/such'], 127, 'run /no/such: No such file or directory\n'],
  [
    'a name that is not in PATH',
    ['--', 'no-such-command'],
    127,
    'run no-such-command: No such file or directory\n',
  ],
  ['a file that cannot be executed', ['--', '/etc/passwd'], 126, 'run /etc/passwd: Permission denied\n'],
  [
    'a pid file that cannot be written',
    ['--pid-file', '/proc/x', '--', 'true'],
    126,
    'run true: write pid file /proc/x: No such file or directory\n',
  ],
] as const) {
  test(`${what} exits ${status} and is named`, () => {
    const result = run(args)
    assert.deepEqual([result.status, result.stderr], [status, stderr])
  })
}

test('wrong usage exits 2', () => {
  for (const args of [[], ['true'], ['--'], ['--parent', 'x', '--', 'true'], ['--frob', '1', '--', 'true']]) {
    const { status, stderr } = run(args)
    assert.equal(status, 2)
    assert.match(stderr, /^error: usage: /)
  }
})
