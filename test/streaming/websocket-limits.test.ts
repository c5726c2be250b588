import assert from 'node:assert/strict'
import { once } from 'node:events'
import { test } from 'node:test'
import { checkLeaks } from '../support/leak-check.ts'
import { eventually } from './support/eventually.ts'
import { pattern } from './support/fake-backend.ts'
import { FakeClock } from './support/fake-clock.ts'
import { closeCodeOf, maskedFrame, rawWebSocket } from './support/raw-web-socket.ts'
import { startServer } from './support/test-server.ts'
import { WebSocketClient } from './support/web-socket-client.ts'

checkLeaks()

const v5 = 'v5.channel.k8s.io'
const v4 = 'v4.channel.k8s.io'

test('joins messages in 1, 2 and 1000 fragments, with pings between them', async (t) => {
  const { exec } = startServer(t, { limits: { closeMs: 100 } })
  const { socket, received } = await rawWebSocket(await exec(['count'], { stdin: true }))
  socket.write(maskedFrame(0x82, '\0one'))
  socket.write(Buffer.concat([maskedFrame(0x02, '\0'), maskedFrame(0x89, 'ping'), maskedFrame(0x80, 'two')]))
  socket.write(maskedFrame(0x02, '\0'))
  for (let i = 0; i < 998; i++) socket.write(maskedFrame(0x00, 'x'))
  socket.write(maskedFrame(0x80, ''))
  socket.write(maskedFrame(0x82, Buffer.from([255, 0])))
  await once(socket, 'end')
  socket.destroy()
  const text = received().toString('latin1')
  assert.ok(text.includes('\x8a\x04ping'), 'pong with the payload of the ping')
  assert.ok(text.includes(`\x011004\n`), JSON.stringify(text))
})

test('takes text messages on a binary protocol, and ignores empty and unknown ones', async (t) => {
  const { exec } = startServer(t)
  const client = new WebSocketClient(await exec(['count'], { stdin: true }), v5)
  await client.ready()
  client.webSocket.send('\0abc')
  client.webSocket.send(Buffer.alloc(0))
  client.webSocket.send(Buffer.from([0]))
  for (const channel of [1, 2, 3, 4, 5, 77, 254]) client.send(channel, 'not input')
  client.closeStdin()
  assert.equal((await client.result()).stdout.toString(), '3\n')
})

test('drops a base64 message that is none, and goes on', async (t) => {
  const { exec } = startServer(t)
  const client = new WebSocketClient(await exec(['echo'], { stdin: true }), 'v4.base64.channel.k8s.io')
  await client.ready()
  client.webSocket.send('0not*base64')
  client.send(0, pattern(1000))
  await client.until(() => client.bytesOf(1).length === 1000)
  assert.ok(client.bytesOf(1).equals(pattern(1000)))
  client.webSocket.close()
  await client.result()
})

test('sends output as whole messages of at most 32 KiB, unfragmented and uncompressed', async (t) => {
  const { exec } = startServer(t, { limits: { closeMs: 100 } })
  const url = await exec(['source', '200000'])
  const { socket, response, received } = await rawWebSocket(url, {
    'Sec-WebSocket-Extensions': 'permessage-deflate; client_max_window_bits',
  })
  assert.equal(response.headers['sec-websocket-extensions'], undefined)
  await once(socket, 'end')
  socket.destroy()
  const frames = received()
  let bytes = 0
  for (let at = 0; at < frames.length;) {
    const first = frames.readUInt8(at)
    const short = frames.readUInt8(at + 1)
    const [length, header] = short === 126 ? [frames.readUInt16BE(at + 2), 4] : [short, 2]
    assert.ok(first === 0x82 || first === 0x88, `first byte ${first}`)
    assert.ok(length <= 32_769)
    if (first === 0x82 && frames[at + header] === 1) bytes += length - 1
    at += header + length
  }
  assert.equal(bytes, 200_000)
})

for (const [name, frame, code] of [
  ['an unmasked frame', Buffer.from([0x82, 0x02, 0x00, 0x61]), 1002],
  ['a reserved bit', maskedFrame(0xc2, '\0a'), 1002],
  ['a reserved opcode', maskedFrame(0x83, '\0a'), 1002],
  ['a continuation of nothing', maskedFrame(0x80, 'a'), 1002],
  ['a fragmented ping', maskedFrame(0x09, 'a'), 1002],
  ['text that is not UTF-8', maskedFrame(0x81, Buffer.from([0x30, 0xff, 0xfe])), 1007],
  ['a close code that is never sent', maskedFrame(0x88, Buffer.from([0x03, 0xed])), 1002],
  [
    'a message above the limit',
    Buffer.concat([Buffer.from([0x82, 0xff, 0, 0, 0, 0, 4, 0, 0, 0, 1, 2, 3, 4])]),
    1009,
  ],
] as const) {
  test(`closes with ${code} at ${name}, and the backend knows`, async (t) => {
    const { exec, backend, server } = startServer(t, { limits: { closeMs: 100 } })
    const { socket, received } = await rawWebSocket(await exec(['hold'], { stdin: true }))
    const run = await backend.next()
    socket.write(frame)
    await once(socket, 'end')
    assert.equal(closeCodeOf(received()), code)
    assert.ok(run.stdio.gone.aborted)
    socket.end()
    await eventually('forgotten', () => server.sessions() === 0)
  })
}

test('gives a slow reader every byte and keeps little for it', async (t) => {
  const { exec, backend } = startServer(t)
  const total = 24 * 1024 * 1024
  const client = new WebSocketClient(await exec(['source', String(total), '9']), v5)
  await once(client.webSocket, 'open')
  client.webSocket.pause()
  const run = await backend.next()
  await eventually('output waits', () => (run.stdio.stdout?.buffered ?? 0) > 0)
  assert.ok((run.stdio.stdout?.buffered ?? 0) <= 256 * 1024)
  client.webSocket.resume()
  const { stdout, outcome, closeCode } = await client.result()
  assert.ok(stdout.equals(pattern(total)))
  assert.deepEqual(outcome, { kind: 'exited', status: { code: 9 } })
  assert.equal(closeCode, 1000)
})

test('holds a client back whose process does not read, and loses nothing', async (t) => {
  const { exec, backend } = startServer(t)
  const client = new WebSocketClient(await exec(['hold'], { stdin: true }), v5)
  const run = await backend.next()
  await client.ready()
  run.stdin.stuck = true
  run.stdio.connectStdin?.(run.stdin)
  const total = 32 * 1024 * 1024
  const bytes = pattern(total)
  for (let from = 0; from < total; from += 32_768) client.send(0, bytes.subarray(from, from + 32_768))
  client.closeStdin()
  let held = -1
  await eventually('client is held back', () => {
    const same = held === client.webSocket.bufferedAmount
    held = client.webSocket.bufferedAmount
    return same && held > total / 2
  })
  assert.ok(run.stdin.bytes < 1024 * 1024)
  run.stdin.drain()
  await run.stdin.ended.promise
  assert.ok(Buffer.concat(run.stdin.chunks).equals(bytes))
  run.end.resolve({ code: 0 })
  await client.result()
})

test('gives the status at once when the process exits while the client sends', async (t) => {
  const { exec, backend } = startServer(t)
  const client = new WebSocketClient(await exec(['hold'], { stdin: true }), v5)
  const run = await backend.next()
  await client.ready()
  run.stdin.stuck = true
  run.stdio.connectStdin?.(run.stdin)
  for (let i = 0; i < 1024; i++) client.send(0, pattern(32_768))
  await run.stdin.reach(1)
  run.end.resolve({ code: 4 })
  await client.until(() => client.bytesOf(3).length > 0)
  assert.deepEqual((await client.result()).outcome, { kind: 'exited', status: { code: 4 } })
})

test('notices by its own pings that a client has gone that it does not read', async (t) => {
  const clock = new FakeClock()
  const { exec, backend } = startServer(t, { clock })
  const client = new WebSocketClient(await exec(['hold'], { stdin: true }), v5)
  const run = await backend.next()
  await client.ready()
  run.stdin.stuck = true
  run.stdio.connectStdin?.(run.stdin)
  for (let i = 0; i < 1024; i++) client.send(0, pattern(32_768))
  let pinged = false
  client.webSocket.on('ping', () => (pinged = true))
  await eventually('a ping of the server', () => {
    clock.advance(1000)
    return pinged
  })
  client.webSocket.terminate()
  await client.result()
  await eventually('gone', () => {
    clock.advance(1000)
    return run.stdio.gone.aborted
  })
})

for (const [name, leave] of [
  ['with a Close frame', (client: WebSocketClient) => client.webSocket.close(1000)],
  ['without one', (client: WebSocketClient) => client.webSocket.terminate()],
] as const) {
  test(`tells the backend when a client of v4 leaves ${name}`, async (t) => {
    const { exec, backend, server } = startServer(t)
    const client = new WebSocketClient(await exec(['hold'], { stdin: true }), v4)
    const run = await backend.next()
    await client.ready()
    leave(client)
    await run.end.promise
    assert.equal(run.stdio.stdout?.write(Buffer.alloc(1_000_000)), true)
    await client.result()
    await eventually('forgotten', () => server.sessions() === 0)
  })
}

test('tells the backend at once of a Close frame behind which output waits', async (t) => {
  const { exec, backend } = startServer(t)
  const { socket } = await rawWebSocket(await exec(['hold'], { stdin: true }))
  const run = await backend.next()
  socket.pause()
  // More than the buffers of the kernel take.
  for (let i = 0; i < 32; i++) run.stdio.stdout?.write(Buffer.alloc(1024 * 1024))
  socket.write(maskedFrame(0x88, Buffer.from([3, 232])))
  await run.end.promise
  socket.destroy()
})

test('does not wait long for a client that never answers its Close', async (t) => {
  const clock = new FakeClock()
  const { exec, server } = startServer(t, { clock })
  const { socket, received } = await rawWebSocket(await exec(['exit']))
  await eventually('close frame', () => closeCodeOf(received()) === 1000)
  clock.advance(4999)
  assert.equal(server.sessions(), 1)
  clock.advance(1)
  await once(socket, 'end')
  await eventually('forgotten', () => server.sessions() === 0)
  socket.destroy()
})

test('waits for a client that still sends, but not for ever', async (t) => {
  const clock = new FakeClock()
  const { exec, server } = startServer(t, { clock })
  const { socket, received } = await rawWebSocket(await exec(['exit'], { stdin: true }))
  await eventually('close frame', () => closeCodeOf(received()) === 1000)
  for (let i = 0; i < 29; i++) {
    const before = socket.bytesWritten
    socket.write(maskedFrame(0x82, '\0still here'))
    await eventually('written', () => socket.bytesWritten > before && socket.writableLength === 0)
    for (let turn = 0; turn < 5; turn++) await new Promise((resolve) => setImmediate(resolve))
    clock.advance(4000)
    assert.equal(server.sessions(), 1, `after ${(i + 1) * 4} s`)
  }
  clock.advance(5000)
  await eventually('forgotten', () => server.sessions() === 0)
  socket.destroy()
})

test('keeps no session of a hundred clients that drop right after the handshake', async (t) => {
  const { exec, backend, server } = startServer(t)
  for (let i = 0; i < 100; i++) {
    const { socket } = await rawWebSocket(await exec(['hold'], { stdin: i % 2 === 0 }))
    if (i % 2 === 0) socket.destroy()
    else socket.resetAndDestroy()
  }
  await eventually('all forgotten', () => server.sessions() === 0)
  assert.ok(backend.runs.every(({ stdio }) => stdio.gone.aborted))
})
