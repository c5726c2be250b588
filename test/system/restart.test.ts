// What survives the server's death: containers, logs, exit codes, the port; and what a broken session leaves: nothing.

import assert from 'node:assert/strict'
import { readFileSync } from 'node:fs'
import { after, before, describe, test } from 'node:test'
import { setTimeout as sleep } from 'node:timers/promises'
import { Rig, runtimes, streamFds, waitFor } from '../support/rig.ts'
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

    test('a session over WebSocket runs a shell on a terminal', async () => {
      const url = await rig.client.serveExec({
        id: 'main',
        command: ['sh'],
        tty: true,
        stdin: true,
        stdout: true,
        stderr: false,
      })
      const client = new WebSocketClient(url)
      await client.opened
      client.resize(111, 33)
      client.send('stty size; echo alive-$((6*7))\n')
      assert.match(await client.until('alive-42'), /33 111/)
      client.send('exit 5\n')
      assert.deepEqual(await client.ended, { code: 5 })
    })

    test('the server killed: the container runs on, its log is whole, its exit code is reported', async () => {
      const script = 'i=0; while [ $i -lt 300 ]; do echo $i; i=$((i+1)); usleep 5000; done; exit 42'
      await rig.run({ id: 'counts', args: ['sh', '-c', script] })
      for (let i = 0; i < 3; i++) {
        await sleep(300)
        await rig.killServer()
      }
      assert.equal(await rig.exitCode('counts'), 42)
      assert.deepEqual(
        rig.logText('counts').trimEnd().split('\n').map(Number),
        Array.from({ length: 300 }, (_, i) => i),
      )
    })

    test('the server killed in a session: the client sees a failure, its shell and descriptors are gone', async () => {
      const fds = streamFds(rig.keeperPid)
      const clients: WebSocketClient[] = []
      for (const tty of [true, false]) {
        const command = tty ? ['sh'] : ['sh', '-c', 'echo ready; cat']
        const url = await rig.client.serveExec({
          id: 'main',
          command,
          tty,
          stdin: true,
          stdout: true,
          stderr: false,
        })
        const client = new WebSocketClient(url)
        await client.opened
        if (tty) client.send('echo rea""dy\n')
        await client.until('ready')
        clients.push(client)
      }
      await rig.killServer()
      for (const client of clients)
        assert.ok('failure' in (await client.ended), 'a broken session is a failure')
      await waitFor('the exec processes to end', () => {
        const left = readFileSync(`/proc/${rig.keeperPid}/task/${rig.keeperPid}/children`, 'utf8')
        return left.trim().split(' ').length <= 3
      })
      await waitFor('the keeper to give the descriptors up', () => streamFds(rig.keeperPid) <= fds)
    })

    test('a URL of the dead server is not found at the next one, on the same port', async () => {
      const request = { id: 'main', command: ['true'], tty: false, stdin: false, stdout: true, stderr: false }
      const before = new URL(await rig.client.serveExec(request))
      await rig.killServer()
      await assert.rejects(new WebSocketClient(before.href).opened, /404/)
      const after = new URL(await rig.client.serveExec(request))
      assert.equal(after.port, before.port)
      assert.deepEqual(await new WebSocketClient(after.href).ended, { code: 0 })
    })
  })
}
