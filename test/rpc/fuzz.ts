// Mutated messages at the RPC socket, each on a connection of its own behind a good Bootstrap, and good calls in between.
// The same seed gives the same messages.
// usage: node dist/test/rpc/fuzz.js [CASES] [SEED]

import assert from 'node:assert/strict'
import { once } from 'node:events'
import { mkdtempSync, readFileSync, readdirSync, rmSync } from 'node:fs'
import { createServer } from 'node:net'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { setFlagsFromString } from 'node:v8'
import { runInNewContext } from 'node:vm'
import { MonitorError } from '../../src/base/errors.ts'
import { RpcConnection } from '../../src/capnp/rpc-connection.ts'
import { dialUnix } from '../../src/client/dial-unix.ts'
import { MonitorClient } from '../../src/client/monitor-client.ts'
import { Conmon } from '../../src/generated/conmon.ts'
import { passes } from '../capnp/peers.ts'
import { TestServer } from './serve.ts'

export interface FuzzReport {
  readonly cases: number
  /** The most CPU time that one case took; other processes cannot lengthen it. */
  readonly worstMs: number
  readonly worst: Buffer
  /** Of the heap, after a collection; and open connections. */
  readonly grownBytes: number
  readonly connections: number
}

/** Pointers and counts that have broken readers. */
const special = [
  0xffffffff, 0x7fffffff, 0x80000000, 0xfffffffc, 1, 2, 3, 6, 0, 0xfffffff9, 7, 0xffff0000, 0x0000ffff,
  0x20000007,
]
const probeEvery = 100

export async function fuzz(cases: number, seed: number): Promise<FuzzReport> {
  const corpus = await readCorpus()
  const bootstrap = corpus.get('bootstrap')
  assert.ok(bootstrap !== undefined)
  const messages = [...corpus.values()]
  const random = new Random(seed)
  const server = new TestServer()
  server.quiet = true
  await probe(server.path)
  const heapBefore = heapUsed()
  let worst: Buffer = Buffer.alloc(0)
  let worstMs = 0
  for (let i = 1; i <= cases; i++) {
    const message = mutate(messages[random.below(messages.length)] ?? bootstrap, random)
    const before = process.cpuUsage()
    await send(server.path, [bootstrap, message, message])
    const { user, system } = process.cpuUsage(before)
    if ((user + system) / 1000 > worstMs) {
      worstMs = (user + system) / 1000
      worst = message
    }
    if (i % probeEvery === 0) await probe(server.path)
  }
  await probe(server.path)
  const connections = await server.connections()
  const grownBytes = heapUsed() - heapBefore
  server.close()
  return { cases, worstMs, worst, grownBytes, connections }
}

/** Samples that the C++ peer writes. */
async function readCorpus(): Promise<Map<string, Buffer>> {
  const directory = mkdtempSync(join(tmpdir(), 'holdfast-corpus-'))
  await passes('raw', ['-', 'dump', directory])
  const corpus = new Map(readdirSync(directory).map((name) => [name, readFileSync(join(directory, name))]))
  rmSync(directory, { recursive: true })
  return corpus
}

async function send(path: string, messages: readonly Buffer[]): Promise<void> {
  const socket = await dialUnix(path)
  socket.on('error', () => {})
  socket.resume()
  for (const message of messages) socket.write(message)
  socket.end()
  await once(socket, 'close')
}

/** Mutated replies to our client: each call must settle. Returns how many were answered as if nothing had happened. */
export async function fuzzClient(cases: number, seed: number): Promise<number> {
  const random = new Random(seed)
  const server = new TestServer()
  const [bootstrapReply, versionReply] = await record(server.path)
  server.close()
  assert.ok(bootstrapReply !== undefined && versionReply !== undefined)
  const directory = mkdtempSync(join(tmpdir(), 'holdfast-fuzz-'))
  const path = join(directory, 'socket')
  const liar = createServer((socket) => {
    socket.on('error', () => {})
    // The bootstrap is answered well, or the call would never be sent.
    socket.once('data', () => {
      socket.write(bootstrapReply)
      socket.once('data', () => socket.end(mutate(versionReply, random)))
    })
  })
  await new Promise<void>((resolve) => liar.listen(path, resolve))
  let answered = 0
  for (let i = 0; i < cases; i++) {
    const client = await MonitorClient.connect(path)
    await client.version({ verbose: true }).then(
      () => answered++,
      (error: unknown) => assert.ok(error instanceof MonitorError),
    )
    client.close()
  }
  await new Promise((resolve) => liar.close(resolve))
  rmSync(directory, { recursive: true })
  return answered
}

/** What the server answers to a bootstrap and to a version call. */
async function record(path: string): Promise<Buffer[]> {
  const replies: Buffer[] = []
  const socket = await dialUnix(path)
  socket.on('data', (chunk: Buffer) => replies.push(chunk))
  const connection = new RpcConnection(socket)
  await connection.call(Conmon.methods.version, { request: { verbose: true } })
  connection.close()
  return replies
}

async function probe(path: string): Promise<void> {
  const client = await MonitorClient.connect(path)
  assert.equal((await client.version()).tag, 'tag')
  client.close()
}

function mutate(original: Buffer, random: Random): Buffer {
  let bytes: Buffer = Buffer.from(original)
  const header = 8 * Math.ceil((4 + 4 * (bytes.readUInt32LE(0) + 1)) / 8)
  for (let left = 1 + random.below(4); left > 0; left--) {
    const body = bytes.length - header
    const word = header + 8 * random.below(body >> 3)
    const half = header + 4 * random.below(body >> 2)
    switch (random.below(8)) {
      case 0:
      case 1: {
        const at = header + random.below(body)
        bytes[at] = (bytes[at] ?? 0) ^ (1 << random.below(8))
        break
      }
      case 2:
      case 3:
        bytes.writeUInt32LE(random.of(special), half)
        break
      case 4:
        bytes.writeUInt32LE(random.next(), half)
        break
      case 5: {
        const from = header + 8 * random.below(body >> 3)
        bytes.copy(bytes, word, from, from + 8)
        break
      }
      case 6:
        if (random.below(4) === 0) bytes.writeUInt32LE(random.of(special), 4 * random.below(header >> 2))
        break
      default:
        if (random.below(4) === 0) bytes = bytes.subarray(0, Math.max(header + 8, random.below(bytes.length)))
    }
  }
  return bytes
}

/** xorshift32. */
class Random {
  #state: number

  constructor(seed: number) {
    this.#state = seed >>> 0 || 1
  }

  next(): number {
    let state = this.#state
    state = (state ^ (state << 13)) >>> 0
    state = (state ^ (state >>> 17)) >>> 0
    state = (state ^ (state << 5)) >>> 0
    this.#state = state
    return state
  }

  below(limit: number): number {
    return this.next() % limit
  }

  of(values: readonly number[]): number {
    return values[this.below(values.length)] ?? 0
  }
}

function heapUsed(): number {
  setFlagsFromString('--expose_gc')
  const collect = runInNewContext('gc') as () => void
  collect()
  return process.memoryUsage().heapUsed
}

if (process.argv[1] === import.meta.filename) {
  const report = await fuzz(Number(process.argv[2] ?? 20_000), Number(process.argv[3] ?? 1))
  process.stdout.write(`${JSON.stringify({ ...report, worst: report.worst.toString('hex') })}\n`)
}
