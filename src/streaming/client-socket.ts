// The socket of one upgraded client, whatever is spoken on it: corked writes without copies, who waits for room,
// holding the client back, noticing that it has gone, silence, and the close after the last byte.
// It knows neither SPDY nor WebSocket.

import type { Duplex } from 'node:stream'
import { SOCKET_HIGH_WATER_BYTES } from '../base/limits.ts'
import type { Clock, Timer } from './clock.ts'

/** Time limits of a session; 0 ms for idle: never. */
export interface SessionLimits {
  readonly idleMs: number
  readonly creationMs: number
  readonly closeMs: number
}

/** How a protocol stops and starts its input, and asks a silent client for a sign of life. */
export interface ClientFlow {
  pause(): void
  resume(): void
  /** Writes a ping: the answer does not matter, a broken connection shows in the write. */
  probe(): void
  /** Silence for the idle limit. */
  idle(): void
}

/** Somebody who waits until the socket has room. */
export interface DrainWaiter {
  drained(): void
}

/** While a held back client is not read, only a write can tell that it has gone. */
const probeIntervalMs = 1000
/** A client that still sends after our close is alive and may still be reading; it gets at most this. */
const maxLingerMs = 120_000
/** Answers to pings and bad streams that a client may leave unread. */
const maxUnreadAnswerBytes = 64 * 1024
/** A client that does not read is told a failure for so long: perhaps it failed because it does not read. */
export const failedFlushMs = 30_000
/** Small payloads are copied behind their header: cheaper than a system call with two parts. */
export const maxCopiedBytes = 1024

export class ClientSocket {
  readonly socket: Duplex
  readonly #clock: Clock
  readonly #limits: SessionLimits
  readonly #flow: ClientFlow
  readonly #gone = new AbortController()
  readonly #waiting = new Set<DrainWaiter>()
  readonly #holders = new Set<string>()
  #lastActive: number
  #lastHeard = 0
  #idleTimer: Timer | undefined
  #probeTimer: Timer | undefined
  #closeTimer: Timer | undefined
  #lingerUntil: number | undefined
  #closed = false

  constructor(socket: Duplex, options: { clock: Clock; limits: SessionLimits; flow: ClientFlow }) {
    this.socket = socket
    this.#clock = options.clock
    this.#limits = options.limits
    this.#flow = options.flow
    this.#lastActive = this.#clock.now()
    socket.on('drain', () => this.#drained())
    socket.on('error', () => this.vanish())
    socket.on('end', () => this.#heardEnd())
    socket.on('finish', () => this.#finished())
    socket.on('close', () => this.#onClose())
    if (this.#limits.idleMs > 0) this.#armIdle(this.#limits.idleMs)
  }

  /** Aborted when the client has gone before the session's end. */
  get gone(): AbortSignal {
    return this.#gone.signal
  }

  /** No bytes reach the client any more. */
  get dead(): boolean {
    return this.#closed || this.#gone.signal.aborted
  }

  /** Bytes that wait in this process. */
  get buffered(): number {
    return this.dead ? 0 : this.socket.writableLength
  }

  get ending(): boolean {
    return this.#lingerUntil !== undefined
  }

  /** Data moved, or a stream was opened: the session is not idle. */
  touch(): void {
    this.#lastActive = this.#clock.now()
  }

  /**
   * After a write: whether its memory may be reused and the writer may go on. If not, `waiter` is told when there is
   * room. A copied payload keeps no memory of the writer's, so only the amount counts.
   */
  settle(waiter: DrainWaiter, copied: boolean): boolean {
    const pending = this.socket.writableLength
    if (pending === 0 || (copied && pending <= SOCKET_HIGH_WATER_BYTES)) return true
    this.#waiting.add(waiter)
    return false
  }

  /** Stops reading from the client until every holder has released it. */
  hold(holder: string): void {
    if (this.dead || this.ending || this.#holders.has(holder)) return
    this.#holders.add(holder)
    if (this.#holders.size > 1) return
    this.#flow.pause()
    this.#armProbe()
  }

  release(holder: string): void {
    if (!this.#holders.delete(holder) || this.#holders.size > 0) return
    this.#probeTimer?.cancel()
    if (!this.#closed) this.#flow.resume()
  }

  /** Whatever is still in this process or comes from the client is lost: the connection ends now. */
  vanish(): void {
    if (!this.ending && !this.#gone.signal.aborted) this.#gone.abort()
    this.#wakeAll()
    this.socket.destroy()
  }

  /**
   * The last byte has been written. Waits until it is flushed, then for the client's own end while throwing away what
   * it sends: destroying a socket with unread input resets the connection, which may cost the client the tail.
   * A client that does not read is waited for until the idle limit, or for `flushMs`.
   */
  linger(flushMs = Infinity): void {
    if (this.dead || this.ending) return
    this.#lingerUntil = Infinity
    if (flushMs < Infinity) this.#closeTimer = this.#clock.after(flushMs, () => this.socket.destroy())
    const held = this.#holders.size > 0
    this.#holders.clear()
    this.#probeTimer?.cancel()
    if (held) this.#flow.resume()
    this.socket.on('data', () => {
      this.#lastHeard = this.#clock.now()
    })
    if (this.socket.writableLength === 0) this.#startClose()
  }

  /** The session ends without the client, which may still be there: what was written is flushed, then closed. */
  abandon(): void {
    if (!this.#closed) this.linger(failedFlushMs)
    this.#gone.abort()
    this.#wakeAll()
  }

  /** After an answer that the client provoked: who does not read answers is not read either. */
  boundAnswers(): void {
    if (this.buffered <= maxUnreadAnswerBytes || this.ending || this.#holders.has('answers')) return
    this.hold('answers')
    this.socket.once('drain', () => this.release('answers'))
  }

  #drained(): void {
    this.#wakeAll()
    if (this.#lingerUntil === Infinity) this.#startClose()
  }

  #wakeAll(): void {
    if (this.#waiting.size === 0) return
    const waiters = [...this.#waiting]
    this.#waiting.clear()
    for (const waiter of waiters) waiter.drained()
  }

  #heardEnd(): void {
    // No proxy passes on half a close, so a FIN in a session is the client's end.
    if (!this.ending) this.vanish()
    else this.socket.end()
  }

  #finished(): void {
    // Not our doing: ws ends the socket of a client that sent a Close frame.
    if (!this.ending) this.abandon()
    // An ended socket has no 'drain'.
    if (this.#lingerUntil === Infinity) this.#startClose()
  }

  #startClose(): void {
    const now = this.#clock.now()
    this.#lingerUntil = now + maxLingerMs
    this.#lastHeard = now
    this.#armClose(this.#limits.closeMs)
  }

  #armClose(milliseconds: number): void {
    this.#closeTimer?.cancel()
    this.#closeTimer = this.#clock.after(milliseconds, () => {
      const now = this.#clock.now()
      const quietUntil = Math.min(this.#lastHeard + this.#limits.closeMs, this.#lingerUntil ?? 0)
      if (quietUntil > now) this.#armClose(quietUntil - now)
      else this.socket.destroy()
    })
  }

  #armIdle(milliseconds: number): void {
    this.#idleTimer = this.#clock.after(milliseconds, () => {
      const left = this.#lastActive + this.#limits.idleMs - this.#clock.now()
      if (left > 0) this.#armIdle(left)
      else if (this.ending) this.socket.destroy()
      else {
        this.#armIdle(this.#limits.idleMs)
        this.#flow.idle()
      }
    })
  }

  #armProbe(): void {
    this.#probeTimer = this.#clock.after(probeIntervalMs, () => {
      if (this.socket.writableLength === 0) this.#flow.probe()
      this.#armProbe()
    })
  }

  #onClose(): void {
    this.#closed = true
    this.#idleTimer?.cancel()
    this.#probeTimer?.cancel()
    this.#closeTimer?.cancel()
    if (!this.ending && !this.#gone.signal.aborted) this.#gone.abort()
    this.#wakeAll()
  }
}
