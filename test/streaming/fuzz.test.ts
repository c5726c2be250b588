// 20,000 mutated inputs on the streaming port: HTTP, SPDY and WebSocket, whole sessions and halves of them.

import assert from 'node:assert/strict'
import { connect } from 'node:net'
import { test } from 'node:test'
import type { Session } from '../../src/streaming/session.ts'
import { decodeStatus } from '../../src/wire/remote-status.ts'
import { checkLeaks } from '../support/leak-check.ts'
import { ChildServer } from './support/child.ts'
import { Mutator } from './support/mutator.ts'
import { maskedFrame } from './support/raw-web-socket.ts'
import { control, data, headerBlock, HeaderDeflater, SpdyClient, types, u32 } from './support/spdy-client.ts'

checkLeaks()

const inputs = 20_000
const atOnce = 16
/** The budget is 250 ms; other work on the machine must not fail the test. */
const stallLimitMs = 5 * 250
/** Tokens that nobody took yet, and what the allocator keeps. */
const heapGrowthLimitBytes = 8 * 1024 * 1024
const growthLimitBytes = 48 * 1024 * 1024

const streams = { containerId: 'c1', stdin: true, stdout: true } as const
const sessions: readonly Session[] = [
  { kind: 'exec', ...streams, command: ['hold'], tty: false, stderr: true },
  { kind: 'exec', ...streams, command: ['echo', '1'], tty: true, stderr: false },
  { kind: 'exec', ...streams, command: ['source', '100000', '7'], tty: false, stderr: false },
  { kind: 'attach', ...streams, tty: true, stderr: false, stdinOnce: false, replayBytes: 0 },
  { kind: 'portforward', podSandboxId: 'p1', netnsPath: '', ports: [] },
]

/** What follows a handshake: frames of a session that would be right. */
interface Seed {
  readonly kinds: readonly Session['kind'][]
  readonly head: string
  readonly frames: Buffer
}

const post =
  'POST PATH HTTP/1.1\r\nHost: x\r\nContent-Length: 0\r\nConnection: Upgrade\r\nUpgrade: SPDY/3.1\r\n'
const versions = ['v4.channel.k8s.io', 'v3.channel.k8s.io', 'channel.k8s.io', 'portforward.k8s.io']
const spdyHead = `${post}${versions.map((name) => `X-Stream-Protocol-Version: ${name}\r\n`).join('')}\r\n`
const webSocketHead = (protocol: string) =>
  `GET PATH HTTP/1.1\r\nHost: x\r\nConnection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Version: 13\r\n` +
  `Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\nSec-WebSocket-Protocol: ${protocol}\r\n\r\n`

async function seeds(echoPort: number): Promise<Seed[]> {
  const commands: readonly Session['kind'][] = ['exec', 'attach']
  const sizes = '{"Width":80,"Height":24}\n{"Width":81,"Height":25}\n'
  const syns = async (all: readonly Record<string, string>[]): Promise<Buffer[]> => {
    const deflater = new HeaderDeflater()
    const frames: Buffer[] = []
    for (const [i, headers] of all.entries()) {
      const block = await deflater.deflate(headerBlock(headers))
      frames.push(control(types.synStream, 0, Buffer.concat([u32(2 * i + 1, 0), Buffer.alloc(2), block])))
    }
    deflater.close()
    return frames
  }
  const roles = ['error', 'stdin', 'stdout', 'stderr', 'resize'].map((streamtype) => ({ streamtype }))
  const exec = Buffer.concat([
    ...(await syns(roles)),
    control(types.settings, 0, u32(1, 0x04000000, 100)),
    control(types.ping, 0, u32(1)),
    data(3, 'input'),
    data(9, sizes),
    control(9, 0, u32(0, 65_536)),
    data(3, 'more', true),
    control(types.rst, 0, u32(5, 5)),
    control(types.goAway, 0, u32(0, 0)),
  ])
  const port = String(echoPort)
  const pairs = ['0', '1'].flatMap((requestid) => [
    { streamtype: 'error', port, requestid },
    { streamtype: 'data', port, requestid },
  ])
  const forwards = Buffer.concat([
    ...(await syns(pairs)),
    data(1, '', true),
    data(3, 'hello'),
    data(3, '', true),
    data(7, 'other'),
    control(types.rst, 0, u32(7, 5)),
    control(types.goAway, 0, u32(0, 0)),
  ])
  const channels = Buffer.concat([
    maskedFrame(0x82, '\0input'),
    maskedFrame(0x82, `\u0004${sizes}`),
    maskedFrame(0x89, 'ping'),
    maskedFrame(0x02, '\0frag'),
    maskedFrame(0x80, 'ment'),
    maskedFrame(0x81, '0aGVsbG8='),
    maskedFrame(0x82, Buffer.from([255, 0])),
    maskedFrame(0x88, Buffer.from([3, 232])),
  ])
  return [
    { kinds: commands, head: spdyHead, frames: exec },
    { kinds: ['portforward'], head: spdyHead, frames: forwards },
    { kinds: commands, head: webSocketHead('v5.channel.k8s.io, v4.channel.k8s.io'), frames: channels },
    { kinds: commands, head: webSocketHead('v4.base64.channel.k8s.io'), frames: channels },
  ]
}

/** Sends one input, perhaps in two parts, reads what comes, and leaves in one of three ways. */
async function throwAt(port: number, input: Buffer, mutator: Mutator): Promise<void> {
  const [cut, way] = [mutator.number(input.length + 1), mutator.number(3)]
  await new Promise<void>((resolve) => {
    const socket = connect(port, '127.0.0.1', () => {
      socket.write(input.subarray(0, cut))
      setImmediate(() => {
        socket.write(input.subarray(cut))
        if (way === 0) socket.end()
        else setImmediate(() => (way === 1 ? socket.destroy() : socket.resetAndDestroy()))
      })
    })
    socket.on('data', () => {})
    socket.on('error', () => {})
    socket.on('close', () => resolve())
  })
}

test(
  'survives 20,000 mutated inputs without a stall, and gives all memory back',
  { timeout: 300_000 },
  async (t) => {
    const child = new ChildServer(t)
    const mutator = new Mutator(20_261_130)
    const all = await seeds((await child.measure()).echoPort)
    const urls: { readonly session: Session; readonly url: string }[] = []
    const nextUrl = async (kinds: readonly Session['kind'][]): Promise<URL> => {
      const found = urls.findIndex(({ session }) => kinds.includes(session.kind))
      const [entry] = found < 0 ? [] : urls.splice(found, 1)
      if (entry !== undefined) return new URL(entry.url)
      const wanted = sessions.filter(({ kind }) => kinds.includes(kind))
      const batch = Array.from({ length: 40 }, () => mutator.pick(wanted))
      const issued = await child.issue(batch)
      issued.forEach((url, i) => urls.push({ url, session: batch[i] as Session }))
      return await nextUrl(kinds)
    }
    const run = async (count: number): Promise<void> => {
      for (let i = 0; i < count; i++) {
        const seed = mutator.pick(all)
        const url = await nextUrl(seed.kinds)
        const head = Buffer.from(seed.head.replace('PATH', url.pathname))
        // Mostly the frames, so that sessions are reached; sometimes the request.
        const bytes =
          mutator.number(8) === 0
            ? mutator.mutate(Buffer.concat([head, seed.frames]))
            : Buffer.concat([head, mutator.mutate(seed.frames)])
        await throwAt(Number(url.port), bytes, mutator)
      }
    }
    await runAll(run, 1000)
    const before = await child.measure()
    await runAll(run, inputs - 1000)
    let after = await child.measure()
    for (let i = 0; i < 200 && (after.sessions > 0 || after.fds > before.fds); i++) {
      await new Promise((resolve) => setTimeout(resolve, 50))
      const next = await child.measure()
      after = { ...next, stallMs: Math.max(after.stallMs, next.stallMs) }
    }
    t.diagnostic(JSON.stringify({ before, after }))
    assert.equal(child.process.exitCode, null)
    assert.equal(after.sessions, 0)
    assert.ok(after.fds <= before.fds + 2, `${before.fds} descriptors before, ${after.fds} after`)
    assert.ok(after.stallMs < stallLimitMs, `the loop stood still for ${after.stallMs} ms`)
    assert.ok(after.heapBytes < before.heapBytes + heapGrowthLimitBytes, JSON.stringify({ before, after }))
    assert.ok(after.rssBytes < before.rssBytes + growthLimitBytes, JSON.stringify({ before, after }))

    const [good = ''] = await child.issue(sessions.slice(2, 3))
    const client = await SpdyClient.connect(good)
    await client.openAll('error', 'stdin', 'stdout')
    await client.until(() => client.ended)
    assert.deepEqual(decodeStatus(client.bytesOf(1)), { kind: 'exited', status: { code: 7 } })
  },
)

async function runAll(run: (count: number) => Promise<void>, count: number): Promise<void> {
  await Promise.all(Array.from({ length: atOnce }, () => run(Math.ceil(count / atOnce))))
}
