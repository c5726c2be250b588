import assert from 'node:assert/strict'
import { once } from 'node:events'
import { createServer, type Server } from 'node:http'
import type { AddressInfo } from 'node:net'
import { PassThrough } from 'node:stream'
import { after, before, test } from 'node:test'
import { WebSocketServer, type WebSocket } from 'ws'
import { MonitorError } from '../../src/base/errors.ts'
import { WebSocketSession } from '../../src/cli/websocket-session.ts'
import { checkLeaks } from '../support/leak-check.ts'

let http: Server
let server: WebSocketServer
before(async () => {
  http = createServer((_, response) => response.writeHead(404).end())
  server = new WebSocketServer({ noServer: true, handleProtocols: (offered) => [...offered][0] ?? false })
  http.on('upgrade', (request, socket, head) => {
    if (request.url === '/exec/known')
      server.handleUpgrade(request, socket, head, (ws) => server.emit('connection', ws))
    else socket.resume().end('HTTP/1.1 404 Not Found\r\nConnection: close\r\nContent-Length: 0\r\n\r\n')
  })
  await once(http.listen(0, '127.0.0.1'), 'listening')
})
after(() => {
  server.close()
  http.close()
  http.closeAllConnections()
})
// After the hooks above: hooks run in this order, and the server is to be closed when leaks are counted.
checkLeaks()

function url(path: string): string {
  return `http://127.0.0.1:${(http.address() as AddressInfo).port}${path}`
}

/** Opens a session; returns both ends and what came out of it. */
async function open() {
  const output = { stdout: new PassThrough(), stderr: new PassThrough() }
  const connected = once(server, 'connection') as Promise<[WebSocket]>
  const session = await WebSocketSession.open(url('/exec/known'), output)
  const [peer] = await connected
  return { session, peer, ...output }
}

function message(channel: number, text: string): Buffer {
  return Buffer.concat([Buffer.from([channel]), Buffer.from(text)])
}

test('offers v5 and passes output on by its channel', async () => {
  const { session, peer, stdout, stderr } = await open()
  assert.equal(peer.protocol, 'v5.channel.k8s.io')
  peer.send(message(1, ''))
  peer.send(message(1, 'out'))
  peer.send(message(2, 'err'))
  peer.send(message(9, 'nobody'))
  peer.send(message(3, '{"status":"Success"}'))
  assert.deepEqual(await session.ended, { kind: 'success' })
  assert.equal(String(stdout.read()), 'out')
  assert.equal(String(stderr.read()), 'err')
})

test('reports the exit code, and closes', async () => {
  const { session, peer } = await open()
  const closed = once(peer, 'close')
  const causes = [{ reason: 'ExitCode', message: '7' }]
  peer.send(message(3, JSON.stringify({ status: 'Failure', reason: 'NonZeroExitCode', details: { causes } })))
  assert.deepEqual(await session.ended, { kind: 'exited', status: { code: 7 } })
  assert.equal((await closed)[0], 1000)
})

for (const [how, cut] of [
  ['is cut', (peer: WebSocket) => peer.terminate()],
  ['is closed with 1000', (peer: WebSocket) => peer.close(1000)],
  ['is closed with 1011', (peer: WebSocket) => peer.close(1011, 'server fell over')],
] as const) {
  test(`a session that ${how} without a status is broken`, async () => {
    const { session, peer } = await open()
    peer.send(message(1, 'half'))
    cut(peer)
    assert.equal((await session.ended).kind, 'broken')
  })
}

test('a status that is no status is a failure', async () => {
  const { session, peer } = await open()
  peer.send(message(3, '{"status":'))
  assert.equal((await session.ended).kind, 'failed')
})

test('sends input, sizes and the end of input', async () => {
  const { session, peer } = await open()
  const received: string[] = []
  const end = new Promise<void>((resolve) => {
    peer.on('message', (data: Buffer) => {
      received.push(data.toString('hex'))
      if (data[0] === 255) resolve()
    })
  })
  session.resize({ width: 80, height: 24 })
  session.sendInput(Buffer.from('hi'))
  session.endInput()
  await end
  const size = Buffer.from('{"Width":80,"Height":24}').toString('hex')
  assert.deepEqual(received, [`04${size}`, '006869', 'ff00'])
  session.hangUp()
  assert.equal((await session.ended).kind, 'broken')
})

test('a server that does not read holds input back, and lets it go on later', async () => {
  const { session, peer } = await open()
  peer.pause()
  const chunk = Buffer.alloc(64 * 1024)
  let sent = 0
  while (session.sendInput(chunk)) {
    sent++
    assert.ok(sent < 1000, 'never held back')
    await new Promise(setImmediate)
  }
  let received = 0
  peer.on('message', (data: Buffer) => {
    received += data.length - 1
  })
  const drained = new Promise<void>((resolve) => {
    session.onDrain = resolve
  })
  peer.resume()
  await drained
  session.hangUp()
  await session.ended
  assert.ok(received <= (sent + 1) * chunk.length)
})

test('output that nobody takes holds the server back', async () => {
  const { session, peer, stdout } = await open()
  const chunk = message(1, 'x'.repeat(32 * 1024))
  for (let i = 0; i < 1000; i++) peer.send(chunk)
  peer.send(message(3, '{"status":"Success"}'))
  while (!stdout.writableNeedDrain) await new Promise(setImmediate)
  for (let turn = 0; turn < 200; turn++) await new Promise(setImmediate)
  assert.ok(stdout.writableLength + stdout.readableLength < 4 * 1024 * 1024)
  let bytes = 0
  stdout.on('data', (data: Buffer) => (bytes += data.length))
  assert.deepEqual(await session.ended, { kind: 'success' })
  assert.equal(bytes, 1000 * 32 * 1024)
})

test('a server that refuses is an error that says so', async () => {
  const output = { stdout: new PassThrough(), stderr: new PassThrough() }
  await assert.rejects(
    WebSocketSession.open(url('/exec/unknown'), output),
    (error: unknown) =>
      error instanceof MonitorError && error.message === 'open session: the server answered 404 Not Found',
  )
  await assert.rejects(
    WebSocketSession.open('http://127.0.0.1:1/exec/x', output),
    /open session: connect ECONNREFUSED/,
  )
})
