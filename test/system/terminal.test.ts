// Terminals of execs: sizes that come before, with and after the start, and what becomes of programs whose client left.

import assert from 'node:assert/strict'
import { after, before, describe, test } from 'node:test'
import { childrenOf } from '../support/process-facts.ts'
import { failureOf, openExec } from '../support/rig-sessions.ts'
import { Rig, commandLine, runtimes, streamFds, waitFor } from '../support/rig.ts'
import { transports, type SessionClient } from '../support/session-client.ts'
import { WebSocketClient } from '../support/websocket-client.ts'

for (const runtime of runtimes) {
  describe(runtime, () => {
    let rig: Rig
    before(async () => {
      rig = await Rig.start(runtime)
      await rig.run({ id: 'main', args: ['sleep', '100000'] })
    })
    after(async () => {
      await rig.close()
    })

    for (const transport of transports) {
      test(`a terminal has its client's size from the start, over ${transport} (B32)`, async () => {
        // The first size comes with the streams, before the process exists. crun 1.8 lets the process go before it has set
        // the size that it was given.
        const command = runtime === 'runc' ? ['stty', 'size'] : ['sh', '-c', 'sleep 0.3; stty size']
        const session = await openExec(rig, { id: 'main', command, transport, tty: true })
        session.resize(203, 57)
        assert.deepEqual(await session.ended, { code: 0 })
        assert.equal(session.stdout().toString(), '57 203\r\n')
      })

      test(`a program hears of new sizes, and the last of many counts, over ${transport} (B32)`, async () => {
        const script = 'trap "stty size" WINCH; echo ready; while :; do sleep 0.05; done'
        const command = ['sh', '-c', script]
        const session = await openExec(rig, { id: 'main', command, transport, tty: true, stdin: true })
        await session.until('ready')
        session.resize(203, 57)
        await session.until('57 203')
        for (let i = 0; i < 1000; i++) session.resize(40 + (i % 100), 20 + (i % 10))
        session.resize(111, 33)
        await session.until('33 111')
        for (const [width, height] of [
          [0, 0],
          [65_536, 1],
          [-1, -1],
          [1.5, 2.5],
        ] as const)
          session.resize(width, height)
        session.resize(112, 34)
        await session.until('34 112')
        session.vanish()
        await session.ended
      })
    }

    test('half a size and other texts end only the sizes, not the session (B32)', async () => {
      const url = await rig.client.serveExec({ id: 'main', command: ['cat'], tty: true, stdin: true })
      const client = new WebSocketClient(url)
      await client.opened
      client.sendInFrames([Buffer.from('\x04{"Width": 80, "Hei')])
      client.sendInFrames([Buffer.from('\x04no size at all')])
      client.send('still here\n')
      await client.until('still here\r\nstill here')
      client.send('\x04')
      assert.deepEqual(await client.ended, { code: 0 })
    })

    test('sizes for a program that does not exist leave nothing behind (B32, M08)', async () => {
      const fds = streamFds(rig.serverPid())
      for (let i = 0; i < 5; i++) {
        for (const transport of transports) {
          const session = await openExec(rig, {
            id: 'main',
            command: ['/no/such/binary'],
            transport,
            tty: true,
          })
          for (let sent = 0; sent < 20; sent++) session.resize(80 + sent, 24)
          assert.match(failureOf(await session.ended), /\/no\/such\/binary/)
        }
      }
      await waitFor('the descriptors to be closed', () => streamFds(rig.serverPid()) <= fds)
    })

    test('shells whose client left are gone, with what ran in them and their terminals (B49, M09)', async () => {
      const fds = { keeper: streamFds(rig.keeperPid), server: streamFds(rig.serverPid()) }
      const sessions: SessionClient[] = []
      for (let i = 0; i < 6; i++) {
        const transport = transports[i % 2] ?? 'spdy'
        const session = await openExec(rig, {
          id: 'main',
          command: ['sh'],
          transport,
          tty: true,
          stdin: true,
        })
        session.send(i < 3 ? 'echo rea""dy\n' : 'echo rea""dy; sleep 7001\n')
        await session.until('ready')
        sessions.push(session)
      }
      for (const session of sessions) session.vanish()
      await waitFor('the shells to end', async () => (await insideOf(rig)).length === 0, 5000)
      await waitFor('the sessions to be forgotten', async () => (await rig.sessions('main')) === 0, 5000)
      await waitFor('the terminals to be closed', () => {
        return streamFds(rig.keeperPid) <= fds.keeper && streamFds(rig.serverPid()) <= fds.server
      })
      const { stdout } = await rig.client.execSync({ id: 'main', command: ['ls', '/dev/pts'] })
      assert.equal(stdout.toString(), 'ptmx\n')
    })
  })
}

describe('the server', () => {
  let rig: Rig
  before(async () => {
    rig = await Rig.start('crun')
    await rig.run({ id: 'main', args: ['sleep', '100000'] })
  })
  after(async () => {
    await rig.close()
  })

  test('what ignores the hang-up of its terminal is killed after the grace (B49)', async () => {
    const command = ['sh', '-c', 'trap "" HUP; echo ready; (sleep 7002; true); sleep 7003']
    const session = await openExec(rig, {
      id: 'main',
      command,
      transport: 'websocket',
      tty: true,
      stdin: true,
    })
    await session.until('ready')
    session.vanish()
    await waitFor('the program to be killed', async () => (await insideOf(rig)).length === 0, 15_000)
    await waitFor('its session to be forgotten', async () => (await rig.sessions('main')) === 0)
  })

  test('without a terminal a program sees the end of its input when its client leaves, and is not killed (M09)', async () => {
    const fds = { keeper: streamFds(rig.keeperPid), server: streamFds(rig.serverPid()) }
    for (const transport of transports) {
      const sessions = await Promise.all(
        Array.from({ length: 10 }, () =>
          openExec(rig, { id: 'main', command: ['cat'], transport, stdin: true }),
        ),
      )
      for (const session of sessions) {
        session.send('x')
        await session.until('x')
      }
      const writing = await openExec(rig, {
        id: 'main',
        command: ['sh', '-c', 'cat; yes | head -c 1000000; echo survived > /tmp/mark'],
        transport,
        stdin: true,
      })
      writing.send('x')
      await writing.until('x')
      for (const session of [...sessions, writing]) session.vanish()
      await waitFor('the programs to end', async () => (await insideOf(rig)).length === 0)
      const { stdout } = await rig.client.execSync({
        id: 'main',
        command: ['sh', '-c', 'cat /tmp/mark; rm /tmp/mark'],
      })
      assert.equal(stdout.toString(), 'survived\n')
    }
    await waitFor('the descriptors to be closed', () => {
      return streamFds(rig.keeperPid) <= fds.keeper && streamFds(rig.serverPid()) <= fds.server
    })
    assert.deepEqual(execsOf(rig), [])
  })
})

/** What runs in the container beside its first process, as a further exec sees it; that process reaps nothing. */
async function insideOf(rig: Rig): Promise<string[]> {
  const { stdout } = await rig.client.execSync({ id: 'main', command: ['ps', '-o', 'stat,args'] })
  return stdout
    .toString()
    .split('\n')
    .filter((line) => line !== '' && !/^STAT|^Z|sleep 100000|ps -o/.test(line))
}

/** Children of the keeper that are neither the server nor the container. */
function execsOf(rig: Rig): string[] {
  return childrenOf(rig.keeperPid)
    .map(commandLine)
    .filter((line) => line !== '' && !/server\.cjs|sleep 100000/.test(line))
}
