// What containers and execs inherit from their monitor: their own stdio and nothing else, the launch's environment,
// signals and OOM score, not the monitor's.

import assert from 'node:assert/strict'
import { existsSync } from 'node:fs'
import { after, before, describe, test } from 'node:test'
import { oomScoreAdj } from '../support/process-facts.ts'
import { openExec, runExec } from '../support/rig-sessions.ts'
import { Rig, isRunning, runtimes, waitFor } from '../support/rig.ts'
import { transports } from '../support/session-client.ts'

/** Descriptors, but the one that ls itself has open; then what could be inherited otherwise. */
const look =
  'ls -l /proc/self/fd | while read a b c d e f g h n x t; do [ -n "$t" ] && echo "fd $n $t"; done; ' +
  'grep -E "SigIgn|SigBlk" /proc/self/status; echo "umask $(umask)"; echo "oom $(cat /proc/self/oom_score_adj)"; ' +
  'env | grep -E "^(LISTEN|NOTIFY|NODE|MALLOC|UV|HOLDFAST|INVOCATION)" ; echo end'
const hostile = {
  LISTEN_FDS: '2',
  LISTEN_PID: '1',
  NOTIFY_SOCKET: '/run/notify',
  NODE_OPTIONS: '--no-warnings',
}

for (const runtime of runtimes) {
  describe(runtime, () => {
    let rig: Rig
    before(async () => {
      rig = await Rig.start(runtime, hostile)
      await rig.run({ id: 'main', args: ['sleep', '100000'] })
    })
    after(async () => {
      await rig.close()
    })

    test('containers started at once have their own stdio and nothing else (B53, B76)', async () => {
      // Sessions, logs and pipes that could be inherited.
      const sessions = await Promise.all(
        transports.map((transport) =>
          openExec(rig, { id: 'main', command: ['cat'], transport, stdin: true }),
        ),
      )
      const ids = Array.from({ length: 10 }, (_, i) => ({ id: `look-${i}`, terminal: i % 2 === 1 }))
      await Promise.all(ids.map(({ id, terminal }) => rig.create({ id, terminal, args: ['sh', '-c', look] })))
      for (const { id } of ids) rig.runOci('start', id)
      for (const { id, terminal } of ids) {
        assert.equal(await rig.exitCode(id), 0)
        assertInherited(rig.logText(id), terminal)
      }
      for (const session of sessions) session.vanish()
    })

    test('execs started at once have their own stdio and nothing else (B53, B76)', async () => {
      const runs = [...transports, ...transports].map(async (transport, i) => {
        const tty = i >= 2
        const { stdout } = await runExec(
          rig,
          { id: 'main', command: ['sh', '-c', look], transport, tty },
          tty ? undefined : '',
        )
        assertInherited(stdout.toString(), tty)
      })
      await Promise.all(runs)
      const { stdout } = await rig.client.execSync({ id: 'main', command: ['sh', '-c', look] })
      assertInherited(stdout.toString(), false)
    })

    test('the OOM score is the one of the container, not the one of its monitor (B53)', async () => {
      const own = oomScoreAdj(process.pid)
      assert.ok(oomScoreAdj(rig.keeperPid) <= own)
      assert.equal(oomScoreAdj(rig.serverPid()), own)
      const pid = await rig.run({ id: 'scored', args: ['sleep', '1000'], oomScoreAdj: 500 })
      assert.equal(oomScoreAdj(pid), 500)
      const { stdout } = await rig.client.execSync({
        id: 'scored',
        command: ['cat', '/proc/self/oom_score_adj'],
      })
      assert.equal(stdout.toString(), '500\n')
    })

    test('a container that is killed for its memory is told so once, and its monitor lives on (B53)', async () => {
      const server = rig.serverPid()
      const script = 'until [ -e /tmp/go ]; do sleep 0.05; done; exec tail /dev/zero'
      await rig.run({ id: 'greedy', args: ['sh', '-c', script], memoryLimit: 64 * 1024 * 1024 })
      const session = await openExec(rig, { id: 'greedy', command: ['yes'], transport: 'spdy' })
      let bytes = 0
      session.consume((chunk) => {
        bytes += chunk.length
      })
      await waitFor('output', () => bytes > 1_000_000)
      await rig.client.execSync({ id: 'greedy', command: ['touch', '/tmp/go'] })
      assert.equal(await rig.exitCode('greedy'), 137)
      assert.ok(existsSync(rig.oomPath('greedy')))
      assert.deepEqual(await session.ended, { code: 137 })
      assert.equal(rig.serverPid(), server)
      assert.ok(isRunning(rig.keeperPid))
    })
  })
}

function assertInherited(text: string, terminal: boolean): void {
  const lines = text.split(/\r?\n/)
  assert.ok(lines.includes('end'), text)
  const fds = lines.filter((line) => line.startsWith('fd '))
  assert.deepEqual(
    fds.map((line) => line.split(' ')[1]).filter((fd) => Number(fd) <= 2),
    ['0', '1', '2'],
  )
  for (const line of fds) {
    const [, fd, target] = line.split(' ')
    // ls in a pipe has the pipe as 1, and its own directory as 3.
    const expected =
      fd === '1'
        ? /^pipe:/
        : fd === '3'
          ? /^\/proc\/\d+\/fd$/
          : terminal
            ? /^\/dev\/(pts\/\d+|console)$/
            : /^pipe:|^\/dev\/null$/
    assert.match(target ?? '', expected, line)
  }
  assert.ok(fds.length <= 4, text)
  assert.match(text, /SigBlk:\s+0{16}/)
  assert.match(text, /SigIgn:\s+0{16}/)
  assert.ok(lines.includes('umask 0022'), text)
  assert.ok(lines.includes(`oom ${oomScoreAdj(process.pid)}`), text)
  assert.doesNotMatch(text, /^(LISTEN|NOTIFY|NODE|MALLOC|UV|HOLDFAST|INVOCATION)/m)
}
