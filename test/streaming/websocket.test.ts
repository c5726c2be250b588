import assert from 'node:assert/strict'
import { test } from 'node:test'
import { checkLeaks } from '../support/leak-check.ts'
import { eventually } from './support/eventually.ts'
import { pattern } from './support/fake-backend.ts'
import { FakeClock } from './support/fake-clock.ts'
import { startServer } from './support/test-server.ts'
import { WebSocketClient } from './support/web-socket-client.ts'

checkLeaks()

const v5 = 'v5.channel.k8s.io'
const v4 = 'v4.channel.k8s.io'

for (const protocol of [v5, v4, 'v4.base64.channel.k8s.io']) {
  test(`runs a command over ${protocol} and tells its exit code after its output`, async (t) => {
    const { exec } = startServer(t)
    const client = new WebSocketClient(await exec(['source', '300000', '7']), protocol)
    const result = await client.result()
    assert.equal(client.webSocket.protocol, protocol)
    assert.ok(result.stdout.equals(pattern(300000)))
    assert.deepEqual(result.outcome, { kind: 'exited', status: { code: 7 } })
    assert.equal(result.closeCode, 1000)
    assert.deepEqual(client.messages[0], { channel: 1, payload: Buffer.alloc(0) }, 'ready message')
    assert.equal(client.messages.at(-1)?.channel, 3, 'the status comes last')
  })
}

for (const protocol of ['channel.k8s.io', 'base64.channel.k8s.io', []]) {
  test(`speaks text statuses to a client of ${JSON.stringify(protocol)}`, async (t) => {
    const { exec } = startServer(t)
    const client = new WebSocketClient(await exec(['source', '10', '7']), protocol)
    const { error, stdout } = await client.result()
    assert.equal(error.toString(), 'command terminated with non-zero exit code: exit status 7')
    assert.ok(stdout.equals(pattern(10)))
    const good = await new WebSocketClient(await exec(['exit', '0']), protocol).result()
    assert.equal(good.error.length, 0)
    assert.equal(good.closeCode, 1000)
  })
}

test('chooses the first of the client protocols that it knows', async (t) => {
  const { exec } = startServer(t)
  const client = new WebSocketClient(await exec(['exit']), ['v9.channel.k8s.io', v4, v5])
  await client.result()
  assert.equal(client.webSocket.protocol, v4)
})

test('keeps output going after the close signal of v5 has ended stdin', async (t) => {
  const { exec } = startServer(t)
  const client = new WebSocketClient(await exec(['count', '3'], { stdin: true }), v5)
  await client.ready()
  client.send(0, pattern(100_000))
  client.closeStdin()
  client.closeStdin()
  client.send(0, 'too late')
  const result = await client.result()
  assert.equal(result.stdout.toString(), '100000\n')
  assert.deepEqual(result.outcome, { kind: 'exited', status: { code: 3 } })
})

test('takes the close signal for an unknown channel under v4', async (t) => {
  const { exec, backend } = startServer(t)
  const client = new WebSocketClient(await exec(['hold'], { stdin: true }), v4)
  const run = await backend.next()
  run.stdio.connectStdin?.(run.stdin)
  await client.ready()
  client.closeStdin()
  client.send(0, 'still open')
  await run.stdin.reach(10)
  run.end.resolve({ code: 0 })
  assert.deepEqual((await client.result()).outcome, { kind: 'success' })
})

for (const [name, signal] of [
  ['of a channel that does not exist', [255, 9]],
  ['with a byte too many', [255, 0, 0]],
  ['without a channel', [255]],
] as const) {
  test(`ends only the session of a close signal ${name}`, async (t) => {
    const { exec, backend } = startServer(t)
    const client = new WebSocketClient(await exec(['hold'], { stdin: true }), v5)
    const other = new WebSocketClient(await exec(['hold'], { stdin: true }), v5)
    const [run, otherRun] = [await backend.next(), await backend.next()]
    await client.ready()
    client.webSocket.send(Buffer.from(signal))
    const result = await client.result()
    assert.equal(result.outcome.kind, 'failed')
    assert.equal(result.closeCode, 1002)
    assert.ok(run.stdio.gone.aborted)
    assert.ok(!otherRun.stdio.gone.aborted)
    otherRun.end.resolve({ code: 5 })
    assert.deepEqual((await other.result()).outcome, { kind: 'exited', status: { code: 5 } })
  })
}

test('hands over sizes that came before the process and after it', async (t) => {
  const { exec, backend } = startServer(t)
  const client = new WebSocketClient(await exec(['hold'], { tty: true, stdin: true }), v5)
  const run = await backend.next()
  await client.ready()
  client.send(4, '{"Width":203,"Height":57}')
  client.send(4, '{"Width":0,"Height":0}')
  client.send(4, '{"Width":80,"Height":24}')
  client.send(0, 'x')
  run.stdio.connectStdin?.(run.stdin)
  await run.stdin.reach(1)
  assert.deepEqual(run.sizes, [
    { width: 203, height: 57 },
    { width: 80, height: 24 },
  ])
  const late: unknown[] = []
  run.stdio.onResize((size) => late.push(size))
  assert.deepEqual(late, [{ width: 80, height: 24 }])
  run.end.resolve({ code: 0 })
  await client.result()
})

test('tells a failure of the backend with its text', async (t) => {
  const { exec, attach, backend } = startServer(t)
  const result = await new WebSocketClient(await exec(['fail', 'no such container']), v5).result()
  assert.deepEqual(JSON.parse(result.error.toString()), {
    status: 'Failure',
    message: 'Internal error occurred: error executing command in container: no such container',
    reason: 'InternalError',
    code: 500,
  })
  const attached = new WebSocketClient(await attach(), v5)
  await backend.next()
  const run = await backend.next()
  run.end.reject(new Error('lost'))
  const { outcome } = await attached.result()
  assert.deepEqual(outcome, {
    kind: 'failed',
    message: 'Internal error occurred: error attaching to container: lost',
  })
})

test('tells the backend at once when a silent client has gone', async (t) => {
  const { exec, backend, server } = startServer(t)
  const client = new WebSocketClient(await exec(['hold'], { stdin: true }), v5)
  const run = await backend.next()
  await client.ready()
  assert.equal(server.sessions(), 1)
  client.webSocket.terminate()
  await run.end.promise
  await client.result()
  await eventually('session is forgotten', () => server.sessions() === 0)
})

test('ends a session in which nothing moves for the idle limit, with a failure', async (t) => {
  const clock = new FakeClock()
  const { exec, backend } = startServer(t, { clock, limits: { idleMs: 5000 } })
  const client = new WebSocketClient(await exec(['hold'], { stdin: true }), v5)
  const run = await backend.next()
  run.stdio.connectStdin?.(run.stdin)
  await client.ready()
  clock.advance(4000)
  client.send(0, 'x')
  await run.stdin.reach(1)
  clock.advance(4999)
  assert.ok(!run.stdio.gone.aborted)
  clock.advance(1)
  assert.ok(run.stdio.gone.aborted)
  const { outcome } = await client.result()
  assert.equal(outcome.kind, 'failed')
})
