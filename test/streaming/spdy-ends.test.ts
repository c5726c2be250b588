// Back-pressure, and every way in which a SPDY session ends early.

import assert from 'node:assert/strict'
import { test } from 'node:test'
import { decodeStatus } from '../../src/wire/remote-status.ts'
import { checkLeaks } from '../support/leak-check.ts'
import { ChildServer } from './support/child.ts'
import { eventually } from './support/eventually.ts'
import { pattern } from './support/fake-backend.ts'
import { FakeClock } from './support/fake-clock.ts'
import { control, data, SpdyClient, types, u32 } from './support/spdy-client.ts'
import { startServer } from './support/test-server.ts'

checkLeaks()

test('gives the status at once when the process exits while the client sends', async (t) => {
  const { exec, backend } = startServer(t)
  const client = await SpdyClient.connect(await exec(['hold'], { stdin: true }))
  await client.openAll('error', 'stdin', 'stdout')
  const run = await backend.next()
  run.stdin.stuck = true
  run.stdio.connectStdin?.(run.stdin)
  const block = data(3, pattern(32_768))
  while (client.socket.write(block)) await new Promise((resolve) => setImmediate(resolve))
  await run.stdin.reach(1)
  run.end.resolve({ code: 4 })
  await client.until(() => client.ended)
  assert.deepEqual(decodeStatus(client.bytesOf(1)), { kind: 'exited', status: { code: 4 } })
})

test('holds a client back whose process does not read, and loses nothing', async (t) => {
  const { exec, backend } = startServer(t)
  const client = await SpdyClient.connect(await exec(['hold'], { stdin: true }))
  await client.openAll('error', 'stdin', 'stdout')
  const run = await backend.next()
  run.stdin.stuck = true
  run.stdio.connectStdin?.(run.stdin)
  const total = 32 * 1024 * 1024
  const bytes = pattern(total)
  for (let from = 0; from < total; from += 32_768) client.send(data(3, bytes.subarray(from, from + 32_768)))
  client.send(data(3, '', true))
  await run.stdin.reach(1)
  let held = -1
  await eventually('client is held back', () => {
    const same = held === client.socket.bytesWritten - client.socket.writableLength
    held = client.socket.bytesWritten - client.socket.writableLength
    return same && client.socket.writableLength > total / 2
  })
  assert.ok(run.stdin.bytes < 1024 * 1024, `${run.stdin.bytes} bytes given to a sink that is full`)
  run.stdin.drain()
  await run.stdin.ended.promise
  assert.ok(Buffer.concat(run.stdin.chunks).equals(bytes))
  run.end.resolve({ code: 0 })
  await client.until(() => client.ended)
})

test('gives a slow reader every byte and keeps little for it', async (t) => {
  const { exec, backend } = startServer(t)
  const total = 24 * 1024 * 1024
  const client = await SpdyClient.connect(await exec(['source', String(total), '9']))
  await client.openAll('error', 'stdout')
  client.socket.pause()
  const run = await backend.next()
  await eventually('output waits', () => (run.stdio.stdout?.buffered ?? 0) > 0)
  const most = run.stdio.stdout?.buffered ?? 0
  assert.ok(most <= 256 * 1024, `${most} bytes wait`)
  client.socket.resume()
  await client.until(() => client.ended)
  assert.ok(client.bytesOf(3).equals(pattern(total)))
  assert.deepEqual(decodeStatus(client.bytesOf(1)), { kind: 'exited', status: { code: 9 } })
})

for (const [name, leave] of [
  ['a FIN', (client: SpdyClient) => client.socket.end()],
  ['a reset', (client: SpdyClient) => client.socket.resetAndDestroy()],
] as const) {
  test(`tells the backend when a silent client has gone with ${name}`, async (t) => {
    const { exec, backend, server } = startServer(t)
    const client = await SpdyClient.connect(await exec(['hold'], { stdin: true }))
    await client.openAll('error', 'stdin', 'stdout')
    const run = await backend.next()
    client.send(data(3, pattern(256 * 1024)))
    await eventually('sent', () => client.socket.writableLength === 0)
    leave(client)
    await run.end.promise
    assert.equal(run.stdio.stdout?.write(Buffer.alloc(1_000_000)), true)
    await eventually('forgotten', () => server.sessions() === 0)
    await client.closed()
  })
}

test('notices by its own pings that a client has gone that it does not read', async (t) => {
  const clock = new FakeClock()
  const { exec, backend } = startServer(t, { clock })
  const client = await SpdyClient.connect(await exec(['hold'], { stdin: true }))
  await client.openAll('error', 'stdin', 'stdout')
  const run = await backend.next()
  run.stdin.stuck = true
  run.stdio.connectStdin?.(run.stdin)
  for (let i = 0; i < 64; i++) client.send(data(3, pattern(32_768)))
  await eventually('a ping of the server', () => {
    clock.advance(1000)
    return client.framesOf(2, types.ping).length > 0
  })
  client.socket.resetAndDestroy()
  await client.closed()
  await eventually('gone', () => {
    clock.advance(1000)
    return run.stdio.gone.aborted
  })
})

test('ends an idle session with a failure; pings do not count', async (t) => {
  const clock = new FakeClock()
  const { exec, backend } = startServer(t, { clock, limits: { idleMs: 5000 } })
  const client = await SpdyClient.connect(await exec(['hold']))
  await client.openAll('error', 'stdout')
  const run = await backend.next()
  clock.advance(4000)
  client.send(control(types.ping, 0, u32(1)))
  await client.until(() => client.framesOf(1, types.ping).length > 0)
  clock.advance(1000)
  assert.ok(run.stdio.gone.aborted)
  await client.until(() => client.ended)
  assert.equal(decodeStatus(client.bytesOf(1)).kind, 'failed')
})

test('never ends an idle session when the limit is zero', async (t) => {
  const clock = new FakeClock()
  const { exec, backend } = startServer(t, { clock, limits: { idleMs: 0 } })
  const client = await SpdyClient.connect(await exec(['hold']))
  await client.openAll('error', 'stdout')
  const run = await backend.next()
  clock.advance(1e9)
  assert.ok(!run.stdio.gone.aborted)
  run.end.resolve({ code: 0 })
  await client.until(() => client.ended)
})

test('tells every client a failure when the server closes', async (t) => {
  const { exec, server } = startServer(t)
  const client = await SpdyClient.connect(await exec(['hold']))
  await client.openAll('error', 'stdout')
  const closed = server.close()
  await client.until(() => client.ended)
  client.socket.end()
  await closed
  assert.deepEqual(decodeStatus(client.bytesOf(1)), {
    kind: 'failed',
    message: 'Internal error occurred: error executing command in container: the monitor is stopping',
  })
})

test('lets the tail of a session wait for a client that does not read, but a failure not for long', async (t) => {
  const clock = new FakeClock()
  const { exec, backend, server } = startServer(t, { clock })
  for (const failure of [false, true]) {
    const client = await SpdyClient.connect(await exec(['hold']))
    await client.openAll('error', 'stdout')
    const run = await backend.next()
    client.socket.pause()
    // More than the buffers of the kernel take.
    for (let i = 0; i < 32; i++) run.stdio.stdout?.write(Buffer.alloc(1024 * 1024))
    if (failure) run.end.reject(new Error('dropped'))
    else run.end.resolve({ code: 0 })
    await run.end.promise.catch(() => {})
    await new Promise((resolve) => setImmediate(resolve))
    clock.advance(29_999)
    assert.equal(server.sessions(), 1)
    clock.advance(3_600_000)
    if (failure) await eventually('forgotten', () => server.sessions() === 0)
    else assert.equal(server.sessions(), 1)
    client.socket.destroy()
    await client.closed()
    await eventually('forgotten', () => server.sessions() === 0)
  }
})

test('is no success for a client whose server dies', async (t) => {
  const child = new ChildServer(t)
  const session = {
    kind: 'exec',
    containerId: 'c',
    tty: false,
    stdin: false,
    stdout: true,
    stderr: false,
  } as const
  const [url = ''] = await child.issue([{ ...session, command: ['hold'] }])
  const client = await SpdyClient.connect(url)
  await client.openAll('error', 'stdout')
  child.process.kill('SIGKILL')
  await client.until(() => client.ended)
  assert.equal(client.bytesOf(1).toString(), ' ')
  assert.equal(decodeStatus(client.bytesOf(1)).kind, 'failed')
})
