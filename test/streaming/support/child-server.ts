// A streaming server in a process of its own: what a test does to it cannot hide behind the test's own work.
// Its parent talks to it by messages.

import { createServer, type AddressInfo } from 'node:net'
import { monitorEventLoopDelay } from 'node:perf_hooks'
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
  readonly fds: number
  /** The longest time for which the loop stood still since the last measure. */
  readonly stallMs: number
  /** A port that echoes. */
  readonly echoPort: number
}

const backend = new FakeBackend()
const server = new StreamingServer({ backend, diagnostics: new Diagnostics(() => {}) })
const echo = createServer((socket) => {
  socket.on('error', () => {})
  socket.pipe(socket)
}).listen(0, '127.0.0.1')
const delay = monitorEventLoopDelay({ resolution: 10 })
delay.enable()

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
  const stallMs = delay.max / 1e6
  backend.runs.length = 0
  globalThis.gc?.()
  globalThis.gc?.()
  delay.reset()
  return {
    sessions: server.sessions(),
    rssBytes: process.memoryUsage().rss,
    fds: readdirSync('/proc/self/fd').length,
    stallMs,
    echoPort: (echo.address() as AddressInfo).port,
  }
}
