import assert from 'node:assert/strict'
import { test } from 'node:test'
import { checkLeaks } from '../support/leak-check.ts'
import { eventually } from './support/eventually.ts'
import { connectTo, pattern } from './support/fake-backend.ts'
import { echo, forward, protocols, serve } from './support/forwarding.ts'
import { control, data, SpdyClient, types, u32 } from './support/spdy-client.ts'
import { startServer } from './support/test-server.ts'

checkLeaks()

test('forwards bytes both ways and ends both streams without a word', async (t) => {
  const { portForward } = startServer(t)
  const port = await serve(t, echo)
  const client = await SpdyClient.connect(await portForward(), { protocols })
  assert.match(client.status, /X-Stream-Protocol-Version: portforward\.k8s\.io\r\n/)
  for (let i = 0; i < 3; i++) {
    const { error, stream } = await forward(client, port)
    client.send(data(stream, pattern(100_000, i)), data(stream, '', true))
    await client.until(() => client.hasFin(stream) && client.hasFin(error))
    assert.ok(client.bytesOf(stream).equals(pattern(100_000, i)))
    assert.equal(client.bytesOf(error).length, 0)
  }
  client.socket.destroy()
  await client.closed()
})

test('pairs streams in any order, keeps data that came first, and never crosses pairs', async (t) => {
  const { portForward } = startServer(t)
  const [a, b] = [await serve(t, (socket) => socket.end('a')), await serve(t, echo)]
  const client = await SpdyClient.connect(await portForward(), { protocols })
  const dataB = await client.open({ streamtype: 'data', port: String(b), requestid: 'b' })
  client.send(data(dataB, 'first', true))
  const errorA = await client.open({ streamtype: 'error', port: String(a), requestid: 'a' })
  const errorB = await client.open({ streamtype: 'error', port: String(b), requestid: 'b' })
  const dataA = await client.open({ streamtype: 'data', port: String(a), requestid: 'a' })
  await client.until(() => [dataA, errorA, dataB, errorB].every((id) => client.hasFin(id)))
  assert.equal(client.bytesOf(dataA).toString(), 'a')
  assert.equal(client.bytesOf(dataB).toString(), 'first')
  client.socket.destroy()
  await client.closed()
})

test('pairs streams without request ids by their numbers', async (t) => {
  const { portForward } = startServer(t)
  const port = String(await serve(t, (socket) => socket.end('hi')))
  const client = await SpdyClient.connect(await portForward(), { protocols })
  const error = await client.open({ streamtype: 'error', port })
  const stream = await client.open({ streamtype: 'data', port })
  await client.until(() => client.hasFin(stream) && client.hasFin(error))
  assert.equal(client.bytesOf(stream).toString(), 'hi')
  client.socket.destroy()
  await client.closed()
})

for (const [name, headers] of [
  ['without a port', { streamtype: 'data', requestid: '1' }],
  ['with port 0', { streamtype: 'data', port: '0', requestid: '1' }],
  ['with a port above 65535', { streamtype: 'data', port: '65536', requestid: '1' }],
  ['with a port that is no number', { streamtype: 'data', port: '-1', requestid: '1' }],
  ['without a type', { port: '80', requestid: '1' }],
  ['of an unknown type', { streamtype: 'stdin', port: '80', requestid: '1' }],
] as const) {
  test(`resets a stream ${name} without accepting it`, async (t) => {
    const { portForward, backend } = startServer(t)
    const client = await SpdyClient.connect(await portForward(), { protocols })
    await client.open(headers)
    assert.equal(client.summary(), 'rst1:5')
    assert.equal(backend.dials.length, 0)
    client.socket.destroy()
    await client.closed()
  })
}

test('tells a failed dial on the error stream, and the next connection works', async (t) => {
  const { portForward, backend } = startServer(t)
  const port = await serve(t, echo)
  const client = await SpdyClient.connect(await portForward(), { protocols })
  backend.dialer = async () => await Promise.reject(new Error('connect ECONNREFUSED 127.0.0.1:8081'))
  const { error, stream } = await forward(client, 8081)
  client.send(data(stream, 'to nobody'))
  await client.until(() => client.framesOf(error, types.rst).length > 0)
  const text = 'error forwarding port 8081 to pod pod1, uid : connect ECONNREFUSED 127.0.0.1:8081'
  assert.equal(client.bytesOf(error).toString(), text)
  assert.match(client.summary(), new RegExp(`data${error}:${text.length} rst${stream}:5 rst${error}:5$`))
  client.send(data(stream, 'still to nobody'))
  backend.dialer = connectTo
  const next = await forward(client, port)
  client.send(data(next.stream, 'hello', true))
  await client.until(() => client.hasFin(next.stream))
  assert.equal(client.bytesOf(next.stream).toString(), 'hello')
  client.socket.destroy()
  await client.closed()
})

test('takes a reset of the pod for an ordinary end: no text, the other streams go on', async (t) => {
  const { portForward } = startServer(t)
  const bad = await serve(t, (socket) => socket.once('data', () => socket.resetAndDestroy()))
  const good = await serve(t, echo)
  const client = await SpdyClient.connect(await portForward(), { protocols })
  const healthy = await forward(client, good)
  for (let i = 0; i < 20; i++) {
    const { error, stream } = await forward(client, bad)
    client.send(data(stream, 'x'))
    await client.until(() => client.framesOf(stream, types.rst).length > 0 && client.hasFin(error))
    assert.equal(client.bytesOf(error).length, 0)
  }
  client.send(data(healthy.stream, pattern(100_000), true))
  await client.until(() => client.hasFin(healthy.stream))
  assert.ok(client.bytesOf(healthy.stream).equals(pattern(100_000)))
  client.socket.destroy()
  await client.closed()
})

test('passes on the end of the client while the pod still answers', async (t) => {
  const { portForward } = startServer(t)
  const port = await serve(t, (socket) => {
    socket.resume()
    socket.once('end', () => socket.end('Reply'))
  })
  const client = await SpdyClient.connect(await portForward(), { protocols })
  const { error, stream } = await forward(client, port)
  client.send(data(stream, 'Input', true))
  await client.until(() => client.hasFin(stream) && client.hasFin(error))
  assert.equal(client.bytesOf(stream).toString(), 'Reply')
  client.socket.destroy()
  await client.closed()
})

test('passes on the end of the pod while the client still sends', async (t) => {
  const { portForward } = startServer(t)
  let got = 0
  let ended = false
  const port = await serve(t, (socket) => {
    socket.end(pattern(1024 * 1024))
    socket.on('data', (chunk: Buffer) => {
      got += chunk.length
    })
    socket.once('end', () => {
      ended = true
    })
  })
  const client = await SpdyClient.connect(await portForward(), { protocols })
  const { error, stream } = await forward(client, port)
  await client.until(() => client.hasFin(stream) && client.hasFin(error))
  assert.ok(client.bytesOf(stream).equals(pattern(1024 * 1024)))
  for (let i = 0; i < 320; i++) client.send(data(stream, pattern(32_768)))
  client.send(data(stream, '', true))
  await eventually('upload', () => ended)
  assert.equal(got, 320 * 32_768)
  client.socket.destroy()
  await client.closed()
})

test('ends the error stream and the pod socket when the client resets the data stream', async (t) => {
  const { portForward } = startServer(t)
  let closed = false
  const port = await serve(t, (socket) => socket.resume().once('end', () => (closed = true)))
  const client = await SpdyClient.connect(await portForward(), { protocols })
  const { error, stream } = await forward(client, port)
  client.send(data(stream, 'x'), control(types.rst, 0, u32(stream, 5)))
  await client.until(() => client.hasFin(error))
  assert.equal(client.bytesOf(error).length, 0)
  await eventually('pod socket is closed', () => closed)
  client.socket.destroy()
  await client.closed()
})

test('destroys every pod socket when the client is gone, and stops dialling', async (t) => {
  const { portForward, backend, server } = startServer(t)
  let open = 0
  const port = await serve(t, (socket) => {
    open++
    socket.resume().once('end', () => open--)
  })
  const client = await SpdyClient.connect(await portForward(), { protocols })
  for (let i = 0; i < 5; i++) await forward(client, port)
  await eventually('five sockets', () => open === 5)
  let aborted = false
  backend.dialer = (_port, signal) =>
    new Promise((_resolve, reject) =>
      signal.addEventListener('abort', () => {
        aborted = true
        reject(new Error('aborted'))
      }),
    )
  await forward(client, port)
  client.socket.destroy()
  await eventually('all closed', () => open === 0 && aborted)
  await eventually('forgotten', () => server.sessions() === 0)
})
