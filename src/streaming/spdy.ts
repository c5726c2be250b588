// Exec and attach over SPDY: which stream is which, when a session may start, and the exact order of its end
// (streaming.md §2.4, §2.7).

import type { Duplex } from 'node:stream'
import type { RemoteStdio, TerminalSize } from '../base/remote-stdio.ts'
import { goAwayStatus } from '../wire/spdy-frame.ts'
import { encodeStatus, type SessionOutcome } from '../wire/remote-status.ts'
import type { StreamProtocol } from '../wire/stream-protocol.ts'
import { TerminalSizeReader } from '../wire/terminal-size.ts'
import { failedFlushMs, type SessionLimits } from './client-socket.ts'
import type { Clock, Timer } from './clock.ts'
import { failureOf, type StdioSession } from './run-session.ts'
import { SpdyConnection, type SpdyOwner, type SpdyStream } from './spdy-connection.ts'
import { StdinRelay } from './stdin-relay.ts'
import type { Transport } from './transport.ts'

/** Five are used; the rest is room for clients that open more than they need. */
const maxStreams = 16
/** How long a finished session waits for a `resize` stream that is on its way. */
const resizeGraceMs = 2000
/** Keeps the error stream from being empty, which every client takes for success, until the status is there. */
const armed = Buffer.from(' ')

type Role = 'error' | 'stdin' | 'stdout' | 'stderr' | 'resize'

export interface SpdyTransportOptions {
  readonly session: StdioSession
  readonly protocol: StreamProtocol
  readonly clock: Clock
  readonly limits: SessionLimits
  /** Called once, when all required streams are there: only then may anything run. */
  readonly onReady: (transport: SpdyTransport) => void
}

/** A client of an exec or attach session on SPDY. */
export class SpdyTransport implements Transport, SpdyOwner {
  readonly #options: SpdyTransportOptions
  readonly #connection: SpdyConnection
  readonly #stdin: StdinRelay
  readonly #sizes = new TerminalSizeReader()
  readonly #streams = new Map<Role, SpdyStream>()
  readonly #required: readonly Role[]
  /** For the streams at the start, and for the last one at the end. */
  #timer: Timer | undefined
  #ready = false
  #finished = false
  #failed = false
  #lastSize: TerminalSize | undefined
  #onResize: ((size: TerminalSize) => void) | undefined

  constructor(socket: Duplex, options: SpdyTransportOptions) {
    this.#options = options
    const { session, clock, limits } = options
    this.#required = requiredRoles(session)
    this.#connection = new SpdyConnection(socket, { owner: this, clock, limits, maxStreams })
    const { client } = this.#connection
    this.#stdin = new StdinRelay((held) => (held ? client.hold('stdin') : client.release('stdin')))
    this.#timer = clock.after(limits.creationMs, () =>
      this.stop('timed out waiting for client to create streams'),
    )
    socket.once('close', () => this.#timer?.cancel())
  }

  /** Starts reading; `head` came with the request. */
  start(head: Buffer): void {
    this.#connection.start(head)
  }

  get stdio(): RemoteStdio {
    return {
      stdout: this.#roleIfRequired('stdout'),
      stderr: this.#roleIfRequired('stderr'),
      connectStdin: this.#options.session.stdin ? (sink) => this.#stdin.connect(sink) : undefined,
      onResize: (listener) => this.#listenResize(listener),
      gone: this.#connection.client.gone,
    }
  }

  opened(stream: SpdyStream, headers: ReadonlyMap<string, string>): void {
    const role = headers.get('streamtype')
    // An unknown or second stream of a kind is accepted, because a refusal fails the client, and ignored.
    if (!isRole(role) || this.#streams.has(role)) return stream.reply()
    this.#streams.set(role, stream)
    if (role === 'stdin' && this.#options.session.stdin) this.#listenStdin(stream)
    if (role === 'resize' && this.#options.session.tty) this.#listenSizes(stream)
    if (this.#finished) {
      stream.reply()
      return this.#close()
    }
    if (this.#ready || !this.#required.every((each) => this.#streams.has(each))) return stream.reply()
    this.#ready = true
    this.#timer?.cancel()
    this.#connection.corked(() => {
      stream.reply()
      // In the same write: if we die right after the reply, the client must not see an empty error stream.
      if (this.#options.protocol.statusAsJson) this.#streams.get('error')?.write(armed)
    })
    return this.#options.onReady(this)
  }

  /** Without its streams a session never starts; with them it goes on to its end. */
  goneAway(): void {
    if (this.#finished) this.#close()
    else if (!this.#ready) this.stop('client went away before it had opened its streams')
  }

  idle(): void {
    this.stop(`session closed: no data for ${this.#options.limits.idleMs / 1000} s`)
  }

  finish(outcome: SessionOutcome): void {
    if (this.#finished) return
    this.#finished = true
    this.#timer?.cancel()
    this.#stdin.discard()
    this.#onResize = undefined
    const status = encodeStatus(outcome, this.#options.protocol.statusAsJson)
    this.#connection.corked(() => {
      if (this.#ready) {
        this.#roleIfRequired('stdout')?.end()
        this.#roleIfRequired('stderr')?.end()
        this.#streams.get('error')?.end(status)
      } else this.#streams.get('error')?.write(status)
      this.#failed = outcome.kind === 'failed'
      if (this.#sizesMayCome()) {
        this.#timer = this.#options.clock.after(resizeGraceMs, () => this.#close())
      } else this.#close()
    })
  }

  stop(message: string): void {
    this.finish(failureOf(this.#options.session, message))
    this.#close()
    this.#connection.client.abandon()
  }

  /**
   * A client with a terminal opens `resize` after the session has started. If the process is done before that, a
   * goaway would leave the client waiting for its reply for half a minute.
   */
  #sizesMayCome(): boolean {
    const { session, protocol } = this.#options
    const expected = this.#ready && session.tty && protocol.resize
    return (
      expected && !this.#streams.has('resize') && !this.#connection.goneAway && !this.#connection.client.dead
    )
  }

  /** Resets stdin, resize and whatever else is open; before the start that is every stream. */
  #close(): void {
    this.#timer?.cancel()
    this.#connection.close(goAwayStatus.ok, this.#failed ? failedFlushMs : Infinity)
  }

  #roleIfRequired(role: Role): SpdyStream | undefined {
    return this.#required.includes(role) ? this.#streams.get(role) : undefined
  }

  #listenStdin(stream: SpdyStream): void {
    const end = () => this.#stdin.end()
    stream.listener = { data: (piece) => this.#stdin.push(piece), end, reset: end }
  }

  #listenSizes(stream: SpdyStream): void {
    const data = (piece: Buffer): void => {
      for (const size of this.#sizes.read(piece)) {
        this.#lastSize = size
        this.#onResize?.(size)
      }
    }
    stream.listener = { data, end: () => {}, reset: () => {} }
  }

  #listenResize(listener: (size: TerminalSize) => void): void {
    if (this.#finished) return
    this.#onResize = listener
    if (this.#lastSize !== undefined) listener(this.#lastSize)
  }
}

/** What must be there before the process starts. Sizes may come late or never; a terminal has no stderr. */
function requiredRoles(session: StdioSession): readonly Role[] {
  const roles: Role[] = ['error']
  if (session.stdin) roles.push('stdin')
  if (session.stdout) roles.push('stdout')
  if (session.stderr && !session.tty) roles.push('stderr')
  return roles
}

function isRole(name: string | undefined): name is Role {
  return ['error', 'stdin', 'stdout', 'stderr', 'resize'].includes(name ?? '')
}
