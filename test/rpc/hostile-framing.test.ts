// Streams that are no Cap'n Proto, or only nearly: the server ends such a connection or waits, and serves others.

import assert from 'node:assert/strict'
import { once } from 'node:events'
import type { Socket } from 'node:net'
import { after, describe, test } from 'node:test'
import { dialUnix } from '../../src/client/dial-unix.ts'
import { MonitorClient } from '../../src/client/monitor-client.ts'
import { checkLeaks } from '../support/leak-check.ts'
import { TestServer } from './serve.ts'

checkLeaks()

/** Bootstrap with question 0. */
const bootstrap = words(0, 4, 0, 1 | (1 << 16), 8, 0, 0, 1, 0, 0)
const halfBootstrap = bootstrap.subarray(0, 20)

function words(...values: number[]): Buffer {
  const bytes = Buffer.alloc(4 * values.length)
  values.forEach((value, i) => bytes.writeUInt32LE(value >>> 0, 4 * i))
  return bytes
}

/** Bytes of no meaning, the same each time. */
function noise(length: number): Buffer {
  let state = 12345
  return Buffer.from(
    Array.from({ length }, () => {
      state = (Math.imul(state, 1103515245) + 12345) >>> 0
      return state >>> 16
    }),
  )
}

interface Case {
  readonly title: string
  readonly chunks: readonly Buffer[]
  /** The client ends its side. */
  readonly ends?: boolean
  /** What the server does: end the connection, wait for more, or answer so many messages. */
  readonly outcome: 'ends' | 'waits' | number
}

const cases: Case[] = [
  { title: 'a segment table of 4 GiB', chunks: [words(0, 0x20000000)], outcome: 'ends' },
  { title: 'a segment table of 32 GiB', chunks: [words(0, 0xffffffff)], outcome: 'ends' },
  { title: '2^32 segments', chunks: [words(0xffffffff, 1)], outcome: 'ends' },
  {
    title: '512 segments of 4 GiB',
    chunks: [words(511, ...Array.from({ length: 512 }, () => 0x20000000)), words(0)],
    outcome: 'ends',
  },
  { title: 'a message of no words', chunks: [words(0, 0)], outcome: 'ends' },
  { title: 'a thousand messages of no words', chunks: [Buffer.alloc(8000)], outcome: 'ends' },
  { title: 'half a header and the end', chunks: [words(0).subarray(0, 3)], ends: true, outcome: 'ends' },
  { title: 'half a message and the end', chunks: [halfBootstrap], ends: true, outcome: 'ends' },
  { title: 'half a message', chunks: [halfBootstrap], outcome: 'waits' },
  {
    title: 'a bootstrap byte by byte',
    chunks: Array.from(bootstrap, (_, i) => bootstrap.subarray(i, i + 1)),
    outcome: 1,
  },
  { title: 'HTTP', chunks: [Buffer.from('GET / HTTP/1.1\r\nHost: x\r\n\r\n')], outcome: 'ends' },
  { title: '64 KiB of 0xff', chunks: [Buffer.alloc(65536, 0xff)], outcome: 'ends' },
  { title: '64 KiB of noise', chunks: [noise(65536)], outcome: 'ends' },
  { title: 'a message of 63 MiB that does not come', chunks: [words(0, 63 << 17)], outcome: 'ends' },
  { title: 'a bootstrap and the end', chunks: [bootstrap], ends: true, outcome: 1 },
]

describe('the server', async () => {
  const server = new TestServer()
  after(() => server.close())
  for (const { title, chunks, ends, outcome } of cases) {
    test(`survives ${title}`, async () => {
      const socket = await dialUnix(server.path)
      socket.on('error', () => {})
      const received: Buffer[] = []
      socket.on('data', (chunk: Buffer) => received.push(chunk))
      for (const chunk of chunks) {
        socket.write(chunk)
        await new Promise((resolve) => setImmediate(resolve))
      }
      if (ends === true) socket.end()
      if (outcome === 'ends') await ended(socket)
      if (typeof outcome === 'number') {
        while (Buffer.concat(received).length < 8) await once(socket, 'data')
        assert.equal(Buffer.concat(received).readUInt16LE(16), 3, 'a Return')
      }
      const client = await MonitorClient.connect(server.path)
      assert.equal((await client.version()).tag, 'tag')
      client.close()
      if (outcome === 'waits') assert.deepEqual(received, [])
      socket.destroy()
    })
  }
})

async function ended(socket: Socket): Promise<void> {
  if (!socket.readableEnded && !socket.destroyed) await once(socket, 'close')
}
