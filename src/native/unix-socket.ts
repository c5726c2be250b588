// Unix sockets that Node cannot make: paths longer than sun_path, SOCK_SEQPACKET, and descriptors in messages.
// Never unlinks a path on close: another process may listen there by then.

import { closeSync, lstatSync, unlinkSync } from 'node:fs'
import { Socket } from 'node:net'
import { isErrno, MonitorError } from '../base/errors.ts'
import {
  acceptFd,
  poll,
  pollSet,
  recvFds,
  sendFds,
  shutdown,
  unixConnect,
  unixListen,
  unpoll,
} from './addon.ts'
import type { PollEvents, PollHandle } from './addon.ts'

/** Connections taken, or messages read, per wake-up, so that others have their turn. */
const TURN = 16
/** Pause after accept has failed, for instance with EMFILE: the listener stays readable, and would spin. */
const ACCEPT_PAUSE_MS = 100

/**
 * A listening socket for `new net.Server().listen({ fd })` or SeqpacketServer; the path may be of any length. A socket
 * that nobody listens on any more is replaced; `already-exists` if somebody does, or if it is no socket.
 */
export function listenUnix(path: string, type: 'stream' | 'seqpacket' = 'stream'): number {
  for (let attempt = 0; ; attempt++) {
    try {
      return unixListen(path, type)
    } catch (error) {
      if (!isErrno(error, 'EADDRINUSE') || attempt > 2)
        throw MonitorError.within(`listen on ${path}`, error, 'unavailable')
      removeStale(path, type)
    }
  }
}

/** A connected socket; the path may be of any length. Throws `unavailable` if nobody listens. */
export function connectUnix(path: string): Socket {
  let fd: number
  try {
    fd = unixConnect(path)
  } catch (error) {
    throw MonitorError.within(`connect to ${path}`, error, 'unavailable')
  }
  return new Socket({ fd, readable: true, writable: true })
}

function removeStale(path: string, type: 'stream' | 'seqpacket'): void {
  try {
    if (!lstatSync(path).isSocket())
      throw new MonitorError('already-exists', `listen on ${path}: there is a file that is no socket`)
    closeSync(unixConnect(path, type))
    throw new MonitorError('already-exists', `listen on ${path}: somebody listens there`)
  } catch (error) {
    if (error instanceof MonitorError) throw error
    // A live listener of the other type answers EPROTOTYPE, a full one EAGAIN.
    if (isErrno(error, 'EPROTOTYPE', 'EAGAIN'))
      throw new MonitorError('already-exists', `listen on ${path}: somebody listens there`)
    if (!isErrno(error, 'ECONNREFUSED', 'ENOENT')) throw MonitorError.within(`listen on ${path}`, error)
  }
  try {
    unlinkSync(path)
  } catch (error) {
    if (!isErrno(error, 'ENOENT')) throw MonitorError.within(`remove socket ${path}`, error)
  }
}

/** Accepts the connections of a listening socket of any type. */
export class SeqpacketServer {
  readonly fd: number
  readonly #onConnection: (fd: number) => void
  readonly #handle: PollHandle
  #pause: NodeJS.Timeout | undefined
  #open = true

  /** Owns `fd`; each connection is non-blocking and belongs to `onConnection`. */
  constructor(fd: number, onConnection: (fd: number) => void) {
    this.fd = fd
    this.#onConnection = onConnection
    this.#handle = poll(fd, () => this.#accept())
  }

  /** Stops listening, here: connections wait in the queue if another process holds the socket as well. */
  close(): void {
    if (!this.#open) return
    this.#open = false
    clearTimeout(this.#pause)
    unpoll(this.#handle)
    closeSync(this.fd)
  }

  #accept(): void {
    for (let i = 0; i < TURN && this.#open; i++) {
      let connection: number | null
      try {
        connection = acceptFd(this.fd)
      } catch {
        this.#rest()
        return
      }
      if (connection === null) return
      this.#onConnection(connection)
    }
  }

  #rest(): void {
    pollSet(this.#handle, 0)
    this.#pause = setTimeout(() => pollSet(this.#handle, 1), ACCEPT_PAUSE_MS)
  }
}

/** What a connection tells its owner, always in a later turn than the owner's own calls. */
export interface SeqpacketListener {
  /** The descriptors belong to the listener. */
  message(data: Buffer, fds: number[]): void
  /** The peer sends no more; it may still read. Once. */
  inputEnded(): void
  /** The peer is gone; messages that it sent before may still come. Once. */
  hungUp(): void
  /** There is room again after `send` returned false. */
  drained(): void
}

/** One SOCK_SEQPACKET connection: whole messages in and out. */
export class SeqpacketConnection {
  readonly fd: number
  readonly #listener: SeqpacketListener
  readonly #handle: PollHandle
  #events: PollEvents = 1
  #reading = true
  #blocked = false
  #inputEnded = false
  #hungUp = false
  #open = true

  /** Owns `fd`. */
  constructor(fd: number, listener: SeqpacketListener) {
    this.fd = fd
    this.#listener = listener
    this.#handle = poll(fd, (status, events) => this.#ready(status, events))
  }

  get open(): boolean {
    return this.#open
  }

  /** False: no room; nothing was sent, and `drained` will be called. What is sent to a peer that is gone is thrown away. */
  send(data: Uint8Array, fds: readonly number[] = []): boolean {
    if (!this.#open) return true
    try {
      this.#blocked = sendFds(this.fd, data, fds) < 0
    } catch (error) {
      if (!isErrno(error, 'EPIPE', 'ECONNRESET')) this.#breakOff(error)
      this.#blocked = false
    }
    this.#apply()
    return !this.#blocked
  }

  /** No messages until `resume`: the peer's writes wait. */
  pause(): void {
    this.#reading = false
    this.#apply()
  }

  resume(): void {
    this.#reading = true
    this.#apply()
  }

  /** Ends the connection for every holder of the socket. What the peer has not read yet stays readable for it. */
  close(): void {
    if (!this.#open) return
    // Unread input would reset the connection, and the peer would see an error before our last messages.
    if (!this.#inputEnded) this.#discardInput()
    this.#open = false
    unpoll(this.#handle)
    shutdown(this.fd)
    closeSync(this.fd)
  }

  #ready(status: number, events: number): void {
    // An error of a unix socket is a peer that left without reading everything; the watch has stopped.
    const failed = status < 0
    if (failed) this.#events = 0
    if ((failed || (events & 4) !== 0) && !this.#hungUp) {
      this.#hungUp = true
      this.#listener.hungUp()
    }
    if ((failed || (events & 2) !== 0) && this.#open && this.#blocked) {
      this.#blocked = false
      this.#listener.drained()
    }
    if (failed || (events & 1) !== 0) this.#receive()
    this.#apply()
  }

  #receive(): void {
    for (let i = 0; i < TURN && this.#open && this.#reading && !this.#inputEnded; i++) {
      let message: { data: Buffer; fds: number[] } | null
      try {
        message = recvFds(this.fd)
      } catch (error) {
        // ECONNRESET is reported before the messages that came earlier; those and the end follow.
        if (!isErrno(error, 'ECONNRESET')) this.#breakOff(error)
        continue
      }
      if (message === null) return
      if (message.data.length === 0 && message.fds.length === 0) {
        this.#inputEnded = true
        this.#listener.inputEnded()
      } else {
        this.#listener.message(message.data, message.fds)
      }
    }
  }

  /**
   * Part of the conversation is lost (a message that is too long, no room for its descriptors): the connection ends as
   * if the peer had left. Wrong arguments are our own mistake.
   */
  #breakOff(error: unknown): void {
    if (!(error instanceof Error && 'errno' in error)) throw error
    shutdown(this.fd)
  }

  #discardInput(): void {
    try {
      for (let message = recvFds(this.fd); message !== null; message = recvFds(this.fd)) {
        for (const fd of message.fds) closeSync(fd)
        if (message.data.length === 0 && message.fds.length === 0) return
      }
    } catch {
      // The peer is gone already.
    }
  }

  #apply(): void {
    if (!this.#open) return
    const wanted = this.#wanted()
    if (wanted === this.#events) return
    this.#events = wanted
    pollSet(this.#handle, wanted)
  }

  /** After the end of input only a hang-up is of interest: a half-closed socket is readable for ever. */
  #wanted(): PollEvents {
    const reading = this.#reading && !this.#inputEnded
    const writing = this.#blocked && !this.#hungUp
    if (reading) return writing ? 3 : 1
    if (writing) return 2
    return this.#hungUp ? 0 : 4
  }
}
