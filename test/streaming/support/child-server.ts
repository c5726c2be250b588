// A streaming server in a process of its own: what a test does to it cannot hide behind the test's own work.
// Its parent talks to it by messages.

import { createServer, type AddressInfo } from 'node:net'
import { Diagnostics } from '../../../src/base/diagnostics.ts'
import type { Session } from '../../../src/streaming/session.ts'
import { StreamingServer } from '../../../src/streaming/streaming-server.ts'
import { readdirSync } from 'node:fs'
import { FakeBackend } from './fake-backend.ts'

export type Order =
  | { readonly do: 'adopt'; readonly fd: number }
  | { readonly do: 'issue'; readonly sessions: readonly Session[] }
  | { readonly do: 'measure' }

export interface Measure {
  readonly sessions: number
  readonly rssBytes: number
  /** What is reachable. */
  readonly heapBytes: number
  readonly fds: number
  /** The longest time for which the loop stood still since the last measure. */
  readonly stallMs: number
  /** A port that echoes. */
  readonly echoPort: number
}

const backend = new FakeBackend()
backend.keepsRuns = false
const server = new StreamingServer({
  backend,
  diagnostics: new Diagnostics(() => {}),
  // Many requests of a fuzzer never spend their token.
  limits: { maxPending: 1_000_000 },
})
const echo = createServer((socket) => {
  socket.on('error', () => {})
  socket.pipe(socket)
}).listen(0, '127.0.0.1')
let stallMs = 0
let tick = { at: performance.now(), cpu: process.cpuUsage() }
// Time in which this process did not run at all, because others had the processor, is no stall of its loop.
setInterval(() => {
  const cpu = process.cpuUsage(tick.cpu)
  const now = performance.now()
  stallMs = Math.max(stallMs, Math.min(now - tick.at, (cpu.user + cpu.system) / 1000))
  tick = { at: now, cpu: process.cpuUsage() }
}, 10)

process.on('message', (order: Order) => {
  void obey(order).then((answer) => process.send?.(answer))
})
process.on('disconnect', () => process.exit(0))

async function obey(order: Order): Promise<unknown> {
  if (order.do === 'measure') return measure()
  if (order.do === 'issue') return await Promise.all(order.sessions.map((session) => server.issue(session)))
  server.adopt(order.fd)
  return 'adopted'
}

function measure(): Measure {
  const longest = stallMs
  globalThis.gc?.()
  globalThis.gc?.()
  stallMs = 0
  tick = { at: performance.now(), cpu: process.cpuUsage() }
  const { rss, heapUsed, arrayBuffers } = process.memoryUsage()
  return {
    sessions: server.sessions(),
    rssBytes: rss,
    heapBytes: heapUsed + arrayBuffers,
    fds: readdirSync('/proc/self/fd').length,
    stallMs: longest,
    echoPort: (echo.address() as AddressInfo).port,
  }
}
