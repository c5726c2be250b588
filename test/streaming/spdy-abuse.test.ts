// What a client must not achieve with frames: the server is a process of its own, whose memory and loop are watched.

import assert from 'node:assert/strict'
import { deflateRawSync } from 'node:zlib'
import { after, before, test } from 'node:test'
import { spdyDictionary } from '../../src/wire/spdy-dictionary.ts'
import { checkLeaks } from '../support/leak-check.ts'
import { ChildServer } from './support/child.ts'
import type { Measure } from './support/child-server.ts'
import { control, data, headerBlock, SpdyClient, types, u32 } from './support/spdy-client.ts'

// Ends before the check for leaks, because it was asked for before it.
const child = new ChildServer({ after })
checkLeaks()

const exec = {
  kind: 'exec',
  containerId: 'c1',
  tty: false,
  stdin: true,
  stdout: true,
  stderr: false,
} as const

/** The budget is 250 ms; other work on the machine must not fail the test. */
const stallLimitMs = 5 * 250
const growthLimitBytes = 64 * 1024 * 1024

async function open(command = 'hold'): Promise<SpdyClient> {
  const [url = ''] = await child.issue([{ ...exec, command: [command] }])
  return await SpdyClient.connect(url)
}

/** Blocks that need no real compressor: stored, then flushed. */
function stored(plain: Buffer, first: boolean): Buffer {
  const header = Buffer.alloc(5)
  header.writeUInt16LE(plain.length, 1)
  header.writeUInt16LE(~plain.length & 0xffff, 3)
  const start = first ? Buffer.from('78f9e3c6a7c2', 'hex') : Buffer.alloc(0)
  return Buffer.concat([start, header, plain, Buffer.from('000000ffff', 'hex')])
}

function syn(id: number, block: Buffer): Buffer {
  return control(types.synStream, 0, Buffer.concat([u32(id, 0), Buffer.alloc(2), block]))
}

function bomb(bytes: number): Buffer {
  const deflated = deflateRawSync(Buffer.alloc(bytes), { dictionary: spdyDictionary, finishFlush: 2 })
  return Buffer.concat([Buffer.from('78f9e3c6a7c2', 'hex'), deflated])
}

const good = stored(headerBlock({ streamtype: 'error' }), true)

/** Each is answered by a goaway with PROTOCOL_ERROR and the end. */
const fatal: readonly (readonly [string, () => Buffer])[] = [
  ['a block of 60 KB that inflates to 64 MiB', () => syn(1, bomb(64 * 1024 * 1024).subarray(0, 60_000))],
  ['a block that inflates to 1 MiB', () => syn(1, bomb(1024 * 1024))],
  ['2^31-1 headers', () => syn(1, stored(u32(0x7fffffff, 1, 0x61000000), true))],
  ['SETTINGS with 2^24 entries', () => control(types.settings, 0, u32(0x01000000, 1, 2))],
  ['zlib without our dictionary', () => syn(1, Buffer.from('789c626000000000ffff', 'hex'))],
  ['zlib with another dictionary', () => syn(1, Buffer.from('78f912345678626000000000ffff', 'hex'))],
  ['no zlib', () => syn(1, Buffer.from('00112233445566778899', 'hex'))],
  ['a control frame of 16 MiB', () => u32(0x80030008, 0x00ffffff, 0, 0)],
  ['DATA on stream 0', () => Buffer.concat([syn(1, good), data(0, 'abc')])],
  ['another version', () => u32(0x80020006, 4, 1)],
]

let idle: Measure

before(async () => {
  const client = await open('discard')
  await client.openAll('error', 'stdin', 'stdout')
  // Any use makes a Node process grow; what counts is what abuse adds.
  for (let i = 0; i < 128; i++) {
    const block = data(3, Buffer.alloc(1024 * 1024))
    if (!client.socket.write(block)) await new Promise((resolve) => client.socket.once('drain', resolve))
  }
  client.socket.destroy()
  await client.closed()
  idle = await child.measure()
})

async function assertUnharmed(): Promise<void> {
  const now = await child.measure()
  assert.ok(now.rssBytes < idle.rssBytes + growthLimitBytes, JSON.stringify({ idle, now }))
  assert.ok(now.stallMs < stallLimitMs, `the loop stood still for ${now.stallMs} ms`)
}

for (const [name, frames] of fatal) {
  test(`says goaway and closes at ${name}`, async () => {
    const client = await open()
    client.send(frames())
    await client.until(() => client.ended)
    assert.match(client.summary(), /goaway\d:1$/)
    client.socket.destroy()
    await client.closed()
    await assertUnharmed()
  })
}

test('ignores DATA on streams that are closed or even, and keeps the session', async () => {
  const client = await open()
  await client.openAll('error', 'stdin', 'stdout')
  client.send(data(3, '', true), data(3, 'closed'), data(2, 'even'), data(77, 'unknown'))
  client.send(control(types.ping, 0, u32(1)))
  await client.until(() => client.framesOf(1, types.ping).length > 0)
  assert.equal(client.summary(), 'reply1 reply3 reply5 data1:1 ping1')
  client.socket.destroy()
  await client.closed()
})

test('refuses most of 100,000 streams and stays small', async () => {
  const client = await open()
  const later = stored(headerBlock({ streamtype: 'x' }), false)
  client.send(syn(1, good))
  for (let id = 3; id < 200_001;) {
    const frames: Buffer[] = []
    for (const end = id + 4000; id < end; id += 2) frames.push(syn(id, later))
    if (!client.socket.write(Buffer.concat(frames)))
      await new Promise((resolve) => client.socket.once('drain', resolve))
  }
  client.send(control(types.ping, 0, u32(1)))
  await client.until(() => client.frames.at(-1)?.type === types.ping)
  assert.equal(client.frames.filter(({ type }) => type === types.synReply).length, 16)
  client.socket.destroy()
  await client.closed()
  await assertUnharmed()
})

test('does not read a client that does not read the answers to its pings', async () => {
  const client = await open()
  client.socket.pause()
  const pings = Buffer.concat(Array.from({ length: 20_000 }, () => control(types.ping, 0, u32(1))))
  const total = 200_000_000
  let sent = 0
  let held = false
  while (sent < total && !held) {
    sent += pings.length
    if (client.socket.write(pings)) continue
    // A second without progress while the server lives is being held back.
    const drained = new Promise<boolean>((resolve) => client.socket.once('drain', () => resolve(true)))
    const patience = new Promise<boolean>((resolve) => setTimeout(() => resolve(false), 1000))
    held = !(await Promise.race([drained, patience]))
  }
  assert.ok(held, 'the server took 200 MB of pings')
  await assertUnharmed()
  client.socket.destroy()
  await client.closed()
})
