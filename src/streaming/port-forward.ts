// Port-forward over SPDY: one client's connection that carries many forwarded TCP connections. Pairs streams by
// request id, keeps one stalled connection from taking all memory, and lets all have their turn (streaming.md §5.1).

import type { Socket } from 'node:net'
import type { Duplex } from 'node:stream'
import {
  MAX_FORWARD_BUFFER_BYTES,
  MAX_FORWARD_STREAMS,
  MAX_TOTAL_FORWARD_BUFFER_BYTES,
} from '../base/limits.ts'
import type { SessionLimits } from './client-socket.ts'
import type { Clock } from './clock.ts'
import { ForwardedConnection, type ForwardOwner } from './forwarded-connection.ts'
import type { PortForwardSession, StreamingBackend } from './session.ts'
import { SpdyConnection, type SpdyOwner, type SpdyStream } from './spdy-connection.ts'

/** Pod sockets that start to read at once when the client has room: each may bring 64 KiB. */
const turnsAtOnce = 4

export interface PortForwardOptions {
  readonly session: PortForwardSession
  readonly backend: StreamingBackend
  readonly clock: Clock
  readonly limits: SessionLimits
}

export class PortForward implements SpdyOwner, ForwardOwner {
  readonly clock: Clock
  readonly podSandboxId: string
  readonly #options: PortForwardOptions
  readonly #connection: SpdyConnection
  readonly #forwards = new Map<string, ForwardedConnection>()
  /** Forwards whose pod takes too little. */
  readonly #stalled = new Set<ForwardedConnection>()
  #pendingBytes = 0
  #turns: ForwardedConnection[] = []
  #turnsScheduled = false

  constructor(socket: Duplex, options: PortForwardOptions) {
    this.#options = options
    const { clock, limits, session } = options
    this.clock = clock
    this.podSandboxId = session.podSandboxId
    this.#connection = new SpdyConnection(socket, {
      owner: this,
      clock,
      limits,
      maxStreams: MAX_FORWARD_STREAMS,
    })
    this.#connection.client.gone.addEventListener('abort', () => this.#destroyAll(), { once: true })
  }

  /** Starts reading; `head` came with the request. */
  start(head: Buffer): void {
    this.#connection.start(head)
  }

  opened(stream: SpdyStream, headers: ReadonlyMap<string, string>): void {
    const port = parsePort(headers.get('port'))
    const kind = headers.get('streamtype')
    if (port === undefined || (kind !== 'data' && kind !== 'error')) return stream.reset()
    stream.reply()
    // Clients older than request ids open the error stream first and the data stream right after it.
    const requestId = headers.get('requestid') ?? String(kind === 'error' ? stream.id : stream.id - 2)
    let forward = this.#forwards.get(requestId)
    if (forward === undefined) {
      forward = new ForwardedConnection(requestId, this, this.#options.limits.creationMs)
      this.#forwards.set(requestId, forward)
    }
    if (forward.add(kind, stream, port)) return undefined
    forward.say(`error processing stream for request ${requestId}: ${kind} stream already assigned`)
    return stream.reset()
  }

  /** The connection ends with its last stream. */
  goneAway(): void {}

  idle(): void {
    this.#connection.close()
    this.#connection.client.abandon()
  }

  stop(message: string): void {
    for (const forward of this.#forwards.values()) forward.failForwarding(message)
    this.idle()
  }

  async dial(port: number, signal: AbortSignal): Promise<Socket> {
    return await this.#options.backend.dial(this.#options.session, port, signal)
  }

  corked(write: () => void): void {
    this.#connection.corked(write)
  }

  account(forward: ForwardedConnection, bytes: number): void {
    this.#pendingBytes += bytes - forward.accounted
    forward.accounted = bytes
    if (bytes > MAX_FORWARD_BUFFER_BYTES) this.#stalled.add(forward)
    else if (bytes <= MAX_FORWARD_BUFFER_BYTES / 2) this.#stalled.delete(forward)
    const { client } = this.#connection
    if (this.#stalled.size > 0 || this.#pendingBytes > MAX_TOTAL_FORWARD_BUFFER_BYTES) client.hold('pods')
    else if (this.#pendingBytes <= MAX_TOTAL_FORWARD_BUFFER_BYTES / 2) client.release('pods')
  }

  takeTurn(forward: ForwardedConnection): void {
    this.#turns.push(forward)
    this.#scheduleTurns(queueMicrotask)
  }

  remove(forward: ForwardedConnection): void {
    if (this.#forwards.get(forward.requestId) === forward) this.#forwards.delete(forward.requestId)
  }

  /** A few at a time, so that a client that reads a little is not answered with a chunk of every pod socket. */
  readonly #giveTurns = (): void => {
    this.#turnsScheduled = false
    const { client } = this.#connection
    if (client.buffered > 0) return this.#scheduleTurns((give) => client.socket.once('drain', give))
    for (const forward of this.#turns.splice(0, turnsAtOnce)) forward.resume()
    return this.#turns.length > 0 ? this.#scheduleTurns(setImmediate) : undefined
  }

  #scheduleTurns(later: (give: () => void) => void): void {
    if (this.#turnsScheduled) return
    this.#turnsScheduled = true
    later(this.#giveTurns)
  }

  #destroyAll(): void {
    this.#turns = []
    for (const forward of this.#forwards.values()) forward.destroy()
  }
}

/** A port as Go's ParseUint reads it, but not 0. */
function parsePort(text: string | undefined): number | undefined {
  const port = /^\d{1,5}$/.test(text ?? '') ? Number(text) : 0
  return port > 0 && port <= 65_535 ? port : undefined
}
