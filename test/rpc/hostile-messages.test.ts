// Messages that are well formed and mean harm: amplification, floods, peers that do not read.

import assert from 'node:assert/strict'
import { once } from 'node:events'
import type { Socket } from 'node:net'
import { afterEach, beforeEach, describe, test } from 'node:test'
import { MAX_MESSAGE_VALUES } from '../../src/base/limits.ts'
import { MessageFramer } from '../../src/capnp/message-framing.ts'
import {
  Call,
  Finish,
  Message,
  MessageTag,
  Bootstrap,
  Return,
  ReturnTag,
} from '../../src/capnp/rpc-messages.ts'
import type { Init, Method, StructTable } from '../../src/capnp/schema.ts'
import { encodeMessage } from '../../src/capnp/struct-builder.ts'
import { StructReader } from '../../src/capnp/struct-reader.ts'
import { dialUnix } from '../../src/client/dial-unix.ts'
import { MonitorClient } from '../../src/client/monitor-client.ts'
import { Conmon } from '../../src/generated/conmon.ts'
import { checkLeaks } from '../support/leak-check.ts'
import { TestServer } from './serve.ts'

checkLeaks()

let server: TestServer
let socket: Socket
beforeEach(async () => {
  server = new TestServer()
  socket = await dialUnix(server.path)
  socket.on('error', () => {})
  socket.write(rpc(MessageTag.bootstrap, Bootstrap, { questionId: 0 }))
})
afterEach(() => {
  socket.destroy()
  server.close()
})

function rpc<T>(tag: number, table: StructTable<T>, value: Init<T>): Buffer {
  return Buffer.concat(encodeMessage(Message, { tag, body: { table, value } }))
}

function call<P, R>(questionId: number, method: Method<P, R>, params: Init<P>): Buffer {
  return rpc(MessageTag.call, Call, {
    questionId,
    interfaceId: method.interfaceId,
    methodId: method.ordinal,
    target: { importedCap: 0 },
    params: { content: { table: method.params, value: params } },
  })
}

function exec(questionId: number, id: string): Buffer {
  return call(questionId, Conmon.methods.execSyncContainer, { request: { id } })
}

/** Until so many Returns have come; their answer ids and tags. */
async function returns(count: number): Promise<{ answerId: number; tag: number }[]> {
  const framer = new MessageFramer(2 ** 26)
  const found: { answerId: number; tag: number }[] = []
  const onData = (chunk: Buffer): void => {
    framer.push(chunk)
    for (let segments = framer.next(); segments !== undefined; segments = framer.next()) {
      const reader = new StructReader(segments)
      const { tag, body } = reader.struct(Message, reader.root())
      if (tag === MessageTag.return) found.push(reader.struct(Return, body))
    }
  }
  socket.on('data', onData)
  while (found.length < count) await once(socket, 'data')
  socket.off('data', onData)
  return found.map(({ answerId, tag }) => ({ answerId, tag }))
}

async function checkOthers(): Promise<void> {
  const client = await MonitorClient.connect(server.path)
  assert.equal((await client.version()).tag, 'tag')
  client.close()
}

/** CPU time of this process, which other processes cannot lengthen. */
async function cpuMs(work: () => Promise<unknown>): Promise<number> {
  const before = process.cpuUsage()
  await work()
  const { user, system } = process.cpuUsage(before)
  return (user + system) / 1000
}

describe('the server', () => {
  test('ends a connection whose capability table claims 2^28 elements of no size, at once', async () => {
    const message = exec(1, 'x'.repeat(588))
    assert.equal(message.length, 760)
    // The table's pointer follows the content's in the params; the claim takes the place of the text's first words.
    const claim = message.indexOf('xxxxxxxx')
    message.writeUInt32LE(((2 ** 28) << 2) >>> 0, claim)
    message.writeUInt32LE(0, claim + 4)
    const table = capTablePointer(message)
    message.writeUInt32LE((((claim - table) / 8 - 1) << 2) | 1, table)
    message.writeUInt32LE(7, table + 4)
    const spent = await cpuMs(async () => {
      socket.write(message)
      socket.resume()
      await once(socket, 'close')
    })
    assert.ok(
      server.diagnostics.some((line) => line.includes('more than')),
      server.diagnostics.join(''),
    )
    assert.ok(spent < 250, `${spent} ms`)
    await checkOthers()
  })

  test('decodes the largest number of values there may be without a stall', async () => {
    const metadata = Array.from({ length: (MAX_MESSAGE_VALUES - 1000) / 4 }, () => ({ key: 'k', value: 'v' }))
    const message = call(1, Conmon.methods.version, { request: { metadata } })
    const spent = await cpuMs(async () => {
      socket.write(message)
      assert.deepEqual(await returns(2), [
        { answerId: 0, tag: ReturnTag.results },
        { answerId: 1, tag: ReturnTag.results },
      ])
    })
    assert.ok(spent < 250, `${spent} ms`)
  })

  test('fails a call with too many values, and only that', async () => {
    const metadata = Array.from({ length: MAX_MESSAGE_VALUES }, () => ({}))
    socket.write(call(1, Conmon.methods.version, { request: { metadata } }))
    socket.write(call(2, Conmon.methods.version, {}))
    assert.deepEqual((await returns(3)).slice(1), [
      { answerId: 1, tag: ReturnTag.exception },
      { answerId: 2, tag: ReturnTag.results },
    ])
  })

  test('starts no large call while too much is unread, and gives it all in the end', async () => {
    for (let i = 1; i <= 100; i++) socket.write(exec(i, `big:${2 * 1024 * 1024}`))
    while (server.calls.started < 64) await new Promise((resolve) => setImmediate(resolve))
    await checkOthers()
    // 64 have a reservation each; their replies are more than 64 MiB.
    assert.equal(server.calls.started, 64)
    assert.equal((await returns(101)).length, 101)
    assert.equal(server.calls.started, 100)
  })

  test('refuses the call beyond the limit of those that run, and takes it later', async () => {
    for (let i = 1; i <= 1025; i++) socket.write(exec(i, 'hang'))
    const [, refused] = await returns(2)
    assert.deepEqual(refused, { answerId: 1025, tag: ReturnTag.exception })
    // 64 run, the others wait: both are cancelled alike.
    assert.equal(server.calls.running, 64)
    for (let i = 1; i <= 1024; i++) socket.write(rpc(MessageTag.finish, Finish, { questionId: i }))
    await returns(1024)
    socket.write(exec(2000, 'x'))
    assert.deepEqual(await returns(1), [{ answerId: 2000, tag: ReturnTag.results }])
    assert.equal(server.calls.running, 0)
  })
})

/** Where the pointer to the capability table of a call's params lies. */
function capTablePointer(message: Buffer): number {
  // Message: 1 + 1 words, then the Call: 3 + 3; its second pointer leads to the params' two pointers.
  const header = 8
  const callStart = header + 8 * 3
  const paramsPointer = callStart + 8 * 4
  const offset = message.readInt32LE(paramsPointer) >> 2
  return paramsPointer + 8 + offset * 8 + 8
}
