// The bounds on what connections may pile up, with a small budget.

import assert from 'node:assert/strict'
import { once } from 'node:events'
import { mkdtempSync, rmSync } from 'node:fs'
import type { Server, Socket } from 'node:net'
import { connect, createServer } from 'node:net'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { afterEach, beforeEach, describe, test } from 'node:test'
import type { Deferred } from '../../src/base/lifetime.ts'
import { deferred } from '../../src/base/lifetime.ts'
import { RpcBudget } from '../../src/capnp/rpc-budget.ts'
import { RpcConnection } from '../../src/capnp/rpc-connection.ts'
import { Bootstrap, Call, Finish, Message, MessageTag } from '../../src/capnp/rpc-messages.ts'
import { bindService } from '../../src/capnp/rpc-service.ts'
import type { Init, Interface, Method, StructTable } from '../../src/capnp/schema.ts'
import { encodeMessage } from '../../src/capnp/struct-builder.ts'
import { checkLeaks } from '../support/leak-check.ts'

checkLeaks()

interface Text {
  readonly text: string
}
const Text: StructTable<Text> = {
  name: 'Text',
  dataWords: 0,
  pointers: 1,
  fields: [{ name: 'text', kind: 'text', offset: 0 }],
}
interface EchoMethods {
  readonly small: Method<Text, Text>
  readonly large: Method<Text, Text>
}
const Echo: Interface<EchoMethods> = {
  name: 'Echo',
  id: 0x1234n,
  methods: {
    small: { name: 'small', interfaceId: 0x1234n, ordinal: 0, params: Text, results: Text },
    large: { name: 'large', interfaceId: 0x1234n, ordinal: 1, params: Text, results: Text },
  },
}

const limits = {
  connectionReplies: 64 * 1024,
  totalReplies: 96 * 1024,
  totalRequests: 64 * 1024,
  reservation: 16 * 1024,
}

/** Texts of large calls in the order they started; they end when the test says. */
let started: string[]
let pending: Map<string, Deferred<Init<Text>>>
let budget: RpcBudget
let directory: string
let path: string
let server: Server
let ends: RpcConnection[]
let reasons: string[]

beforeEach(async () => {
  started = []
  pending = new Map()
  ends = []
  reasons = []
  budget = new RpcBudget(limits)
  directory = mkdtempSync(join(tmpdir(), 'holdfast-limits-'))
  path = join(directory, 'socket')
  const service = bindService(
    Echo,
    {
      small: ({ text }) => ({ text }),
      large: ({ text }) => {
        started.push(text)
        const result = deferred<Init<Text>>()
        pending.set(text, result)
        return result.promise
      },
    },
    ['large'],
  )
  server = createServer((socket) => {
    const end = new RpcConnection(socket, { services: [service], budget, maxMessageBytes: 2 ** 20 })
    ends.push(end)
    void end.ended.then((reason) => reasons.push(reason.message))
  })
  server.listen(path)
  await once(server, 'listening')
})
afterEach(() => {
  for (const end of ends) end.close()
  server.close()
  rmSync(directory, { recursive: true })
})

async function client(): Promise<RpcConnection> {
  const socket = connect(path)
  await once(socket, 'connect')
  return new RpcConnection(socket)
}

async function bootstrapped(): Promise<Socket> {
  const socket = connect(path)
  socket.on('error', () => {})
  await once(socket, 'connect')
  socket.write(rpc(MessageTag.bootstrap, Bootstrap, { questionId: 0 }))
  return socket
}

function rpc<T>(tag: number, table: StructTable<T>, value: Init<T>): Buffer {
  return Buffer.concat(encodeMessage(Message, { tag, body: { table, value } }))
}

function call(questionId: number, methodId: number, text: string): Buffer {
  return rpc(MessageTag.call, Call, {
    questionId,
    interfaceId: Echo.id,
    methodId,
    target: { importedCap: 0 },
    params: { content: { table: Text, value: { text } } },
  })
}

async function turns(count: number): Promise<void> {
  for (let i = 0; i < count; i++) await new Promise((resolve) => setImmediate(resolve))
}

/** Calls in turn, so that they arrive in order. */
async function large(connection: RpcConnection, ...texts: string[]): Promise<Promise<string>[]> {
  await connection.call(Echo.methods.small, { text: '' })
  return texts.map((text) => connection.call(Echo.methods.large, { text }).then((result) => result.text))
}

function finish(text: string): void {
  pending.get(text)?.resolve({ text })
}

describe('calls with large replies', () => {
  test('run as many as have room, of a connection and in all, in the order they came', async () => {
    const [one, two] = [await client(), await client()]
    const first = await large(one, 'a', 'b', 'c', 'd', 'e')
    await turns(20)
    assert.deepEqual(started, ['a', 'b', 'c', 'd'])
    const second = await large(two, 'f', 'g', 'h')
    await turns(20)
    assert.deepEqual(started, ['a', 'b', 'c', 'd', 'f', 'g'])
    finish('f')
    assert.equal(await second[0], 'f')
    // `e` came first, but its connection has no room.
    assert.equal(started.at(-1), 'h')
    finish('b')
    assert.equal(await first[1], 'b')
    assert.equal(started.at(-1), 'e')
    for (const text of 'acdegh') finish(text)
    assert.deepEqual(await Promise.all([...first, ...second]), 'abcdefgh'.split(''))
    one.close()
    two.close()
  })

  test('never run when they are given up while they wait', async () => {
    const connection = await client()
    const running = await large(connection, 'a', 'b', 'c', 'd')
    const controller = new AbortController()
    const waiting = connection.call(Echo.methods.large, { text: 'e' }, controller.signal)
    const behind = connection.call(Echo.methods.large, { text: 'f' })
    await connection.call(Echo.methods.small, { text: '' })
    controller.abort(new Error('enough'))
    await assert.rejects(waiting, /enough/)
    await connection.call(Echo.methods.small, { text: '' })
    finish('a')
    await running[0]
    assert.deepEqual(started, ['a', 'b', 'c', 'd', 'f'])
    for (const text of 'bcdf') finish(text)
    assert.equal((await behind).text, 'f')
    await Promise.all(running)
    connection.close()
  })

  test('make room when their connection goes', async () => {
    const [one, two] = [await client(), await client()]
    const lost = [...(await large(one, 'a', 'b', 'c', 'd', 'e')), ...(await large(two, 'f', 'g', 'h'))]
    await turns(20)
    const settled = Promise.allSettled(lost)
    one.close()
    while (!started.includes('h')) await turns(1)
    assert.ok(!started.includes('e'))
    for (const text of 'abcdfgh') finish(text)
    const outcome = (await settled).map(({ status }) => status === 'fulfilled')
    assert.deepEqual(outcome, [false, false, false, false, false, true, true, true])
    two.close()
  })

  test('that fail make room as well', async () => {
    const connection = await client()
    const calls = await large(connection, 'a', 'b', 'c', 'd', 'e')
    await turns(20)
    pending.get('a')?.reject(new Error('no'))
    await assert.rejects(calls[0] ?? Promise.resolve(), /no/)
    assert.equal(started.at(-1), 'e')
    for (const text of 'bcde') finish(text)
    await Promise.all(calls.slice(1))
    connection.close()
  })
})

describe('a connection', () => {
  test('is not read while its peer reads nothing, and goes on when it does', async () => {
    const socket = await bootstrapped()
    const text = 'x'.repeat(1000)
    const one = Buffer.concat([call(1, 0, text), rpc(MessageTag.finish, Finish, { questionId: 1 })])
    const flood = Buffer.concat(Array.from({ length: 100 }, () => one))
    let accepted = 0
    while (accepted < 1000 && !socket.writableNeedDrain) {
      socket.write(flood)
      accepted++
      await turns(20)
    }
    assert.ok(accepted < 100, `${accepted} floods accepted`)
    const other = await client()
    assert.equal((await other.call(Echo.methods.small, { text: 'hi' })).text, 'hi')
    other.close()
    let received = 0
    socket.on('data', (chunk: Buffer) => {
      received += chunk.length
    })
    while (received < accepted * 100 * text.length) await once(socket, 'data')
    socket.destroy()
  })

  test('is aborted when half messages of all become too many', async () => {
    const half = Buffer.concat([Buffer.from([0, 0, 0, 0, 0, 64, 0, 0]), Buffer.alloc(40_000)])
    const [one, two] = [await bootstrapped(), await bootstrapped()]
    one.write(half)
    await turns(20)
    two.write(half)
    two.resume()
    await once(two, 'close')
    assert.deepEqual(reasons, ['the peer broke the protocol: too many bytes of unfinished messages'])
    // The room is free again.
    const three = await bootstrapped()
    three.write(half.subarray(0, 8 + 16_000))
    await turns(20)
    assert.equal(reasons.length, 1)
    one.destroy()
    three.destroy()
  })

  test('sends an exception in place of a reply that is too large', async () => {
    const connection = await client()
    const [reply] = await large(connection, 'a')
    await turns(20)
    pending.get('a')?.resolve({ text: 'x'.repeat(64 * 2 ** 20) })
    await assert.rejects(reply ?? Promise.resolve(), /a reply of \d+ bytes exceeds the limit/)
    assert.equal((await connection.call(Echo.methods.small, { text: 'hi' })).text, 'hi')
    connection.close()
  })

  test('sends an exception in place of a reply that cannot be written', async () => {
    const connection = await client()
    const [reply] = await large(connection, 'a')
    await turns(20)
    pending.get('a')?.resolve({ text: 5 as unknown as string })
    await assert.rejects(reply ?? Promise.resolve(), /string/)
    assert.equal((await connection.call(Echo.methods.small, { text: 'hi' })).text, 'hi')
    connection.close()
  })
})
