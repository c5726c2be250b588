// What sessions leave behind: nothing, however they end. test/faults/many-sessions.test.ts does the same by the hundred.

import assert from 'node:assert/strict'
import { readdirSync } from 'node:fs'
import { join } from 'node:path'
import { after, before, describe, test } from 'node:test'
import { SpdyClient, control, data, types, u32 } from '../streaming/support/spdy-client.ts'
import { childrenOf, tcpConnections, zombiesOf } from '../support/process-facts.ts'
import { openExec, runExec } from '../support/rig-sessions.ts'
import { Rig, runtimes, streamFds, waitFor } from '../support/rig.ts'
import { transports } from '../support/session-client.ts'
import { WebSocketClient } from '../support/websocket-client.ts'

for (const runtime of runtimes) {
  describe(runtime, () => {
    let rig: Rig
    before(async () => {
      rig = await Rig.start(runtime)
      await rig.run({ id: 'main', args: ['sleep', '100000'] })
      await runExec(rig, { id: 'main', command: ['true'], transport: 'websocket' })
    })
    after(async () => {
      await rig.close()
    })

    test('execs of every kind leave no file, descriptor, process or session (B24, M09, M10)', async () => {
      const before = stateOf(rig)
      for (let i = 0; i < 6; i++) {
        const transport = transports[i % 2] ?? 'spdy'
        await Promise.all([
          runExec(rig, { id: 'main', command: ['true'], transport, tty: i % 3 === 0 }),
          runExec(rig, { id: 'main', command: ['/no/such'], transport, tty: i % 3 === 1 }),
          runExec(rig, { id: 'main', command: ['cat'], transport }, 'text'),
          rig.client.execSync({ id: 'main', command: ['sh', '-c', 'exit 3'] }),
          rig.client.execSync({ id: 'main', command: ['/no/such'] }).catch(() => undefined),
          openExec(rig, { id: 'main', command: ['cat'], transport, stdin: true }).then((session) =>
            session.vanish(),
          ),
        ])
      }
      await waitFor('everything to be as before', async () => {
        return (await rig.sessions('main')) === 0 && sameState(stateOf(rig), before)
      })
    })

    test('daemons that a container leaves to the monitor are reaped, and its own status is kept (B27)', async () => {
      const script = 'i=0; while [ $i -lt 50 ]; do (sleep 0.5 &); i=$((i+1)); done; exit 9'
      await rig.run({ id: 'daemons', args: ['sh', '-c', script], hostPid: true })
      assert.equal(await rig.exitCode('daemons'), 9)
      await waitFor('its daemons to end', () => childrenOf(rig.keeperPid).length <= 2)
      await waitFor('them to be reaped', () => zombiesOf(rig.keeperPid).length === 0, 1000)
      const { exitCode } = await rig.client.execSync({ id: 'main', command: ['sh', '-c', 'exit 4'] })
      assert.equal(exitCode, 4)
    })

    test('a container whose command does not exist can be deleted, and its id used again (B27)', async () => {
      await assert.rejects(rig.create({ id: 'nothing', args: ['/no/such'] }))
      assert.deepEqual(zombiesOf(rig.keeperPid), [])
      assert.ok(!rig.runOci('list').includes('nothing'))
      await rig.run({ id: 'nothing', args: ['sh', '-c', 'exit 8'] })
      assert.equal(await rig.exitCode('nothing'), 8)
    })
  })
}

describe('the server', () => {
  let rig: Rig
  before(async () => {
    rig = await Rig.start('runc')
    await rig.run({ id: 'main', args: ['sleep', '100000'] })
    await runExec(rig, { id: 'main', command: ['true'], transport: 'websocket' })
  })
  after(async () => {
    await rig.close()
  })

  test('clients that are silent after their upgrade, or gone, cost nothing (B24)', async () => {
    const before = stateOf(rig)
    for (let round = 0; round < 3; round++) {
      const urls = await Promise.all(
        Array.from({ length: 20 }, () =>
          rig.client.serveExec({ id: 'main', command: ['cat'], stdin: true, stderr: false }),
        ),
      )
      const webSockets = urls.slice(0, 10).map((url) => new WebSocketClient(url))
      await Promise.all(webSockets.map((client) => client.opened))
      // These never open a stream: nothing runs for them.
      const spdy = await Promise.all(urls.slice(10).map((url) => SpdyClient.connect(url)))
      for (const client of webSockets) client.vanish()
      for (const client of spdy) client.socket.destroy()
      await Promise.all([
        ...webSockets.map((client) => client.ended),
        ...spdy.map((client) => client.closed()),
      ])
    }
    await waitFor('everything to be as before', async () => {
      return (await rig.sessions('main')) === 0 && sameState(stateOf(rig), before)
    })
  })

  test('a client that leaves with unread input is let go at once (B26)', async () => {
    const fds = streamFds(rig.serverPid())
    for (const transport of transports) {
      const session = await openExec(rig, { id: 'main', command: ['sleep', '2'], transport, stdin: true })
      session.send(Buffer.alloc(256 * 1024))
      session.send(Buffer.alloc(1024 * 1024))
      await waitFor('the process', async () => (await rig.sessions('main')) > 0)
      assert.equal(tcpConnections(rig.serverPid()), 1)
      session.vanish()
      await waitFor('its connection to be closed', () => tcpConnections(rig.serverPid()) === 0, 2000)
    }
    // Programs on pipes are not killed; with them the last of their sessions goes.
    await waitFor('the sessions to end', async () => (await rig.sessions('main')) === 0)
    await waitFor('the descriptors to be closed', () => streamFds(rig.serverPid()) <= fds)
  })

  test('a stream more than expected is answered, its data thrown away, and the session is whole (B26, M15)', async () => {
    const fds = streamFds(rig.serverPid())
    const url = await rig.client.serveExec({
      id: 'main',
      command: ['sh', '-c', 'cat; exit 4'],
      stdin: true,
      stderr: false,
    })
    const client = await SpdyClient.connect(url)
    const error = await client.open('error')
    const unknown = await client.open('nonsense')
    client.send(data(unknown, Buffer.alloc(65_536)))
    const [stdin, stdout] = await client.openAll('stdin', 'stdout')
    const late = await client.open('stderr')
    client.send(data(late, Buffer.alloc(65_536)), control(9, 0, u32(stdout ?? 0, 0x7fffffff)))
    client.send(data(stdin ?? 0, 'text'), data(stdin ?? 0, '', true))
    await client.until(() => client.hasFin(error))
    assert.equal(client.bytesOf(stdout ?? 0).toString(), 'text')
    assert.match(client.bytesOf(error).toString(), /"message":"4"/)
    client.send(control(types.goAway, 0, u32(0, 0)))
    client.socket.end()
    await client.closed()
    await waitFor('the descriptors to be closed', () => streamFds(rig.serverPid()) <= fds)
    assert.equal(await rig.sessions('main'), 0)
  })
})

interface State {
  readonly files: readonly string[]
  readonly fds: number
  readonly processes: number
}

/** What is there beside memory. */
function stateOf(rig: Rig): State {
  return {
    files: readdirSync(join(rig.directory, 'run')).toSorted(),
    fds: streamFds(rig.serverPid()) + streamFds(rig.keeperPid),
    processes: childrenOf(rig.keeperPid).length,
  }
}

function sameState(now: State, before: State): boolean {
  return (
    now.fds <= before.fds && now.processes <= before.processes && now.files.join() === before.files.join()
  )
}
