import assert from 'node:assert/strict'
import { test } from 'node:test'
import { decodeStatus } from '../../src/wire/remote-status.ts'
import { checkLeaks } from '../support/leak-check.ts'
import { ChildServer } from './support/child.ts'
import { SpdyClient } from './support/spdy-client.ts'
import { startServer } from './support/test-server.ts'

checkLeaks()

test('listens on first use and tells the descriptor', async (t) => {
  const { server, exec } = startServer(t)
  const told: number[] = []
  server.onListening = (fd) => told.push(fd)
  assert.equal(server.listenFd(), undefined)
  const urls = await Promise.all([exec(['exit']), exec(['exit'])])
  assert.equal(told.length, 1)
  for (const url of urls) {
    const client = await SpdyClient.connect(url)
    assert.match(client.status, /^HTTP\/1\.1 101 /)
    client.socket.destroy()
    await client.closed()
  }
  assert.equal(server.listenFd(), told[0])
})

test('lets a successor go on with the same port', async (t) => {
  const { server, exec } = startServer(t)
  const old = new URL(await exec(['exit']))
  const child = new ChildServer(t, [server.listenFd() ?? -1])
  await child.adopt(4)
  await server.close()
  const session = {
    kind: 'exec',
    containerId: 'c1',
    tty: false,
    stdin: false,
    stdout: true,
    stderr: false,
  } as const
  const [url = ''] = await child.issue([{ ...session, command: ['source', '5', '3'] }])
  assert.equal(new URL(url).port, old.port)
  const client = await SpdyClient.connect(url)
  await client.openAll('error', 'stdout')
  await client.until(() => client.ended)
  assert.deepEqual(decodeStatus(client.bytesOf(1)), { kind: 'exited', status: { code: 3 } })
  await client.closed()
  const lost = await SpdyClient.connect(old.href)
  assert.match(lost.status, /^HTTP\/1\.1 404 /)
  lost.socket.destroy()
  await lost.closed()
})

test('refuses to issue when it cannot listen, and tries again', async (t) => {
  const { server: first, exec } = startServer(t)
  const port = Number(new URL(await exec(['exit'])).port)
  const { exec: second } = startServer(t, { port })
  await assert.rejects(second(['exit']), {
    code: 'unavailable',
    message: /^listen for streams on .*EADDRINUSE/,
  })
  await first.close()
  assert.equal(Number(new URL(await second(['exit'])).port), port)
})

test('issues nothing after its end', async (t) => {
  const { server, exec } = startServer(t)
  await exec(['exit'])
  await server.close()
  await assert.rejects(exec(['exit']), { code: 'unavailable' })
})
