import assert from 'node:assert/strict'
import { once } from 'node:events'
import type { Socket } from 'node:net'
import { test } from 'node:test'
import { checkLeaks } from '../support/leak-check.ts'
import { eventually } from './support/eventually.ts'
import { connectTo, pattern } from './support/fake-backend.ts'
import { FakeClock } from './support/fake-clock.ts'
import { echo, forward, protocols, serve } from './support/forwarding.ts'
import { control, data, SpdyClient, types, u32 } from './support/spdy-client.ts'
import { startServer } from './support/test-server.ts'

checkLeaks()

test('gives up a lonely stream at the creation timeout and forgets it', async (t) => {
  const clock = new FakeClock()
  const { portForward, backend } = startServer(t, { clock })
  const port = await serve(t, echo)
  const client = await SpdyClient.connect(await portForward(), { protocols })
  const headers = { port: String(port), requestid: 'r' }
  const before = clock.timers
  const error = await client.open({ ...headers, streamtype: 'error' })
  clock.advance(29_000)
  const stream = await client.open({ ...headers, streamtype: 'data' })
  client.send(data(stream, 'in time', true))
  await client.until(() => client.hasFin(stream) && client.hasFin(error))
  assert.equal(client.bytesOf(stream).toString(), 'in time')
  await eventually('pair is forgotten', () => clock.timers === before)
  const lonely = await client.open({ ...headers, streamtype: 'error' })
  clock.advance(30_000)
  await client.until(() => client.framesOf(lonely, types.rst).length > 0)
  assert.match(client.bytesOf(lonely).toString(), /timed out waiting for streams/)
  assert.equal(backend.dials.length, 1)
  client.socket.destroy()
  await client.closed()
})

test('says so when a request gets a second stream of a kind', async (t) => {
  const { portForward } = startServer(t)
  const port = await serve(t, echo)
  const client = await SpdyClient.connect(await portForward(), { protocols })
  const headers = { port: String(port), requestid: '0' }
  const error = await client.open({ ...headers, streamtype: 'error' })
  await client.open({ ...headers, streamtype: 'error' })
  await client.until(() => client.bytesOf(error).length > 0)
  assert.equal(
    client.bytesOf(error).toString(),
    'error processing stream for request 0: error stream already assigned',
  )
  client.socket.destroy()
  await client.closed()
})

test('ends a half-closed connection whose pod stays silent for a minute', async (t) => {
  const clock = new FakeClock()
  const { portForward } = startServer(t, { clock })
  const sockets: Socket[] = []
  const port = await serve(t, (socket) => {
    sockets.push(socket.resume())
  })
  const client = await SpdyClient.connect(await portForward(), { protocols })
  const { error, stream } = await forward(client, port)
  client.send(data(stream, 'x', true))
  await eventually('half closed', () => sockets[0]?.readableEnded === true)
  clock.advance(50_000)
  sockets[0]?.write('slow')
  await client.until(() => client.bytesOf(stream).length === 4)
  clock.advance(59_000)
  assert.ok(!client.hasFin(stream))
  clock.advance(1000)
  await client.until(() => client.hasFin(stream) && client.hasFin(error))
  client.socket.destroy()
  await client.closed()
})

test('lets a pod that does not read stall only itself below the limit', async (t) => {
  const { portForward } = startServer(t)
  const stuck: Socket[] = []
  const deaf = await serve(t, (socket) => {
    stuck.push(socket.pause())
  })
  const good = await serve(t, echo)
  const client = await SpdyClient.connect(await portForward(), { protocols })
  const stalled = await forward(client, deaf)
  const bytes = pattern(2 * 1024 * 1024)
  for (let from = 0; from < bytes.length; from += 65_536)
    client.send(data(stalled.stream, bytes.subarray(from, from + 65_536)))
  for (let i = 0; i < 5; i++) {
    const { stream } = await forward(client, good)
    client.send(data(stream, pattern(200_000, i), true))
    await client.until(() => client.hasFin(stream))
    assert.ok(client.bytesOf(stream).equals(pattern(200_000, i)))
  }
  client.send(data(stalled.stream, '', true))
  const [socket] = stuck
  const chunks: Buffer[] = []
  socket?.on('data', (chunk: Buffer) => chunks.push(chunk)).resume()
  await eventually('all read', () => socket?.readableEnded === true)
  assert.ok(Buffer.concat(chunks).equals(bytes))
  client.socket.destroy()
  await client.closed()
})

test('stops reading from the client above the limit, and goes on when the pod reads or dies', async (t) => {
  const { portForward } = startServer(t)
  const stuck: Socket[] = []
  const deaf = await serve(t, (socket) => {
    stuck.push(socket.pause())
  })
  const client = await SpdyClient.connect(await portForward(), { protocols })
  const stalled = await forward(client, deaf)
  const block = data(stalled.stream, pattern(1024 * 1024))
  for (let i = 0; i < 64; i++) client.send(block)
  let held = -1
  await eventually('client is held back', () => {
    const same = held === client.socket.writableLength
    held = client.socket.writableLength
    return same && held > 0 && stuck.length > 0
  })
  client.send(control(types.ping, 0, u32(1)))
  stuck[0]?.resetAndDestroy()
  await client.until(() => client.framesOf(1, types.ping).length > 0 && client.hasFin(stalled.error))
  client.socket.destroy()
  await client.closed()
})

test('holds fifty pods back while the client does not read, and gives each its turn', async (t) => {
  const { portForward, backend } = startServer(t)
  const bytes = pattern(1024 * 1024)
  const dialled: Socket[] = []
  backend.dialer = async (to, signal) => {
    const socket = await connectTo(to, signal)
    dialled.push(socket)
    return socket
  }
  const port = await serve(t, (socket) => {
    socket.once('data', () => socket.end(bytes))
  })
  const client = await SpdyClient.connect(await portForward(), { protocols })
  const pairs: { error: number; stream: number }[] = []
  for (let i = 0; i < 50; i++) pairs.push(await forward(client, port))
  client.socket.pause()
  for (const { stream } of pairs) client.send(data(stream, 'go'))
  await eventually('pods are held back', () => dialled.filter((socket) => socket.isPaused()).length > 30)
  client.socket.resume()
  for (const { stream, error } of pairs) {
    await client.until(() => client.hasFin(stream) && client.hasFin(error))
    assert.ok(client.bytesOf(stream).equals(bytes))
  }
  client.socket.destroy()
  await client.closed()
})

test('gives up a backend that never answers a dial', async (t) => {
  const clock = new FakeClock()
  const { portForward, backend } = startServer(t, { clock })
  const client = await SpdyClient.connect(await portForward(), { protocols })
  let aborted: AbortSignal | undefined
  backend.dialer = (_port, signal) => {
    aborted = signal
    return new Promise(() => {})
  }
  const { error, stream } = await forward(client, 80)
  await eventually('dial', () => aborted !== undefined)
  clock.advance(10_000)
  await client.until(() => client.framesOf(error, types.rst).length > 0)
  assert.match(client.bytesOf(error).toString(), /^error forwarding port 80 to pod pod1, uid : .*timed out$/)
  assert.equal(client.framesOf(stream, types.rst).length, 1)
  assert.ok(aborted?.aborted)
  client.socket.destroy()
  await client.closed()
})

test('closes a pod socket whose client has gone during the dial', async (t) => {
  const { portForward, backend } = startServer(t)
  const port = await serve(t, echo)
  const client = await SpdyClient.connect(await portForward(), { protocols })
  let late: Socket | undefined
  let release: (() => void) | undefined
  backend.dialer = async (to, signal) => {
    late = await connectTo(to, new AbortController().signal)
    await new Promise<void>((resolve) => (release = resolve))
    assert.ok(signal.aborted)
    return late
  }
  const { stream } = await forward(client, port)
  await eventually('connected', () => release !== undefined)
  client.send(control(types.rst, 0, u32(stream, 5)), control(types.ping, 0, u32(1)))
  await client.until(() => client.framesOf(1, types.ping).length > 0)
  release?.()
  await eventually('closed', () => late?.destroyed === true)
  client.socket.destroy()
  await client.closed()
})

test('ends with the last stream after a goaway', async (t) => {
  const { portForward, server } = startServer(t)
  const port = await serve(t, echo)
  const client = await SpdyClient.connect(await portForward(), { protocols })
  const { stream } = await forward(client, port)
  client.send(control(types.goAway, 0, u32(0, 0)), data(stream, 'last', true))
  await client.until(() => client.ended)
  assert.equal(client.bytesOf(stream).toString(), 'last')
  assert.match(client.summary(), /goaway\d+:0$/)
  client.socket.end()
  await eventually('forgotten', () => server.sessions() === 0)
  await client.closed()
})

test('ends idle connections by reset and goaway', async (t) => {
  const clock = new FakeClock()
  const { portForward } = startServer(t, { clock, limits: { idleMs: 5000 } })
  const port = await serve(t, echo)
  const client = await SpdyClient.connect(await portForward(), { protocols })
  const { stream } = await forward(client, port)
  client.send(data(stream, 'x'))
  await client.until(() => client.bytesOf(stream).length === 1)
  clock.advance(5000)
  await client.until(() => client.ended)
  assert.match(client.summary(), new RegExp(`rst${stream}:5 goaway${stream}:0$`))
  client.socket.destroy()
  await client.closed()
})

test('tells every forwarded connection when the server closes', async (t) => {
  const { portForward, server } = startServer(t)
  const port = await serve(t, echo)
  const client = await SpdyClient.connect(await portForward(), { protocols })
  const { error } = await forward(client, port)
  const closed = server.close()
  await client.until(() => client.ended)
  client.socket.end()
  await closed
  assert.match(
    client.bytesOf(error).toString(),
    /^error forwarding port \d+ to pod pod1, uid : the monitor is stopping$/,
  )
  await client.closed()
})

test('refuses port-forward over WebSocket, and the token is spent', async (t) => {
  const { portForward } = startServer(t)
  const url = await portForward()
  const headers = {
    Connection: 'Upgrade',
    Upgrade: 'websocket',
    'Sec-WebSocket-Version': '13',
    'Sec-WebSocket-Key': 'dGhlIHNhbXBsZSBub25jZQ==',
    'Sec-WebSocket-Protocol': 'SPDY/3.1+portforward.k8s.io',
  }
  const { request } = await import('node:http')
  const statuses: (number | undefined)[] = []
  for (let i = 0; i < 2; i++) {
    const [response] = (await once(request(url, { headers }).end(), 'response')) as [
      { statusCode?: number; resume(): void },
    ]
    response.resume()
    statuses.push(response.statusCode)
  }
  assert.deepEqual(statuses, [403, 404])
})
