// One end of the channel as a pipe of messages: sends in order, waits for room, matches answers to questions.
// What messages mean is keeper-client.ts's.

import { getSystemErrorName } from 'node:util'
import { MonitorError, messageOf, type ErrorCode } from '../base/errors.ts'
import { poll, pollSet, recvFds, sendFds, unpoll, type PollHandle } from '../native/addon.ts'
import {
  decodeMessage,
  encodeMessage,
  flag,
  toServer,
  type Incoming,
  type Outgoing,
} from './channel-messages.ts'

interface Waiting {
  readonly what: string
  readonly settle: (errno: number) => void
  readonly fail: (error: MonitorError) => void
}

const codes: Readonly<Record<string, ErrorCode>> = {
  EINVAL: 'invalid-argument',
  ENAMETOOLONG: 'invalid-argument',
  ENOENT: 'not-found',
  ESRCH: 'not-found',
  EMFILE: 'resource-exhausted',
  ENOMEM: 'resource-exhausted',
  ENOSPC: 'resource-exhausted',
  ENOSYS: 'unimplemented',
  ESHUTDOWN: 'failed-precondition',
}

/** Messages taken in one turn of the event loop. */
const messagesPerTurn = 256

/** Who receives what is no answer. */
export interface ChannelListener {
  message(message: Incoming, fds: readonly number[]): void
  closed(): void
}

/** The channel's descriptor, watched. It stays open when the channel is closed. */
export class Channel {
  readonly #fd: number
  readonly #listener: ChannelListener
  readonly #poll: PollHandle
  readonly #waiting = new Map<number, Waiting>()
  #queue: { bytes: Buffer; fds: readonly number[] }[] = []
  #tag = 0
  #heard = 0
  #closed = false

  constructor(fd: number, listener: ChannelListener) {
    this.#fd = fd
    this.#listener = listener
    this.#poll = poll(fd, (status, events) => {
      if (status >= 0 && (events & 2) !== 0) this.#flush()
      this.#receive()
    })
  }

  get closed(): boolean {
    return this.#closed
  }

  /** Messages received so far, answers included. */
  get heard(): number {
    return this.#heard
  }

  /** Sends without waiting for an answer. */
  send(message: Outgoing): void {
    this.#send(message, this.#nextTag())
  }

  /** Sends, and resolves to the errno of the answer, 0 when it was done. `what` begins the texts of errors. */
  request(what: string, message: Outgoing): Promise<number> {
    return new Promise((settle, fail) => {
      if (this.#closed) {
        fail(keeperGone(what))
        return
      }
      const tag = this.#nextTag()
      this.#waiting.set(tag, { what, settle, fail })
      this.#send({ ...message, flags: (message.flags ?? 0) | flag.ACK }, tag)
    })
  }

  /** Ends the watching; what waits for an answer fails. */
  close(): void {
    if (this.#closed) return
    this.#closed = true
    unpoll(this.#poll)
    this.#queue = []
    for (const { what, fail } of this.#waiting.values()) fail(keeperGone(what))
    this.#waiting.clear()
    this.#listener.closed()
  }

  #nextTag(): number {
    this.#tag = (this.#tag + 1) >>> 0
    return this.#tag
  }

  #send(message: Outgoing, tag: number): void {
    if (this.#closed) return
    const bytes = encodeMessage(message, tag)
    const fds = message.fds ?? []
    if (this.#queue.length === 0 && this.#trySend(bytes, fds, tag)) return
    this.#queue.push({ bytes, fds })
    pollSet(this.#poll, 3)
  }

  /** False: the socket is full. What cannot be sent at all fails by itself. */
  #trySend(bytes: Buffer, fds: readonly number[], tag: number): boolean {
    try {
      return sendFds(this.#fd, bytes, fds) >= 0
    } catch (error) {
      const waiting = this.#waiting.get(tag)
      this.#waiting.delete(tag)
      waiting?.fail(new MonitorError('internal', `${waiting.what}: ${messageOf(error)}`, { cause: error }))
      return true
    }
  }

  #flush(): void {
    for (let first = this.#queue[0]; first !== undefined; first = this.#queue[0]) {
      if (!this.#trySend(first.bytes, first.fds, first.bytes.readUInt32LE(8))) return
      this.#queue.shift()
    }
    pollSet(this.#poll, 1)
  }

  #receive(): void {
    for (let i = 0; i < messagesPerTurn && !this.#closed; i++) {
      let received
      try {
        received = recvFds(this.#fd)
      } catch {
        // Reset: the keeper died with messages from us unread.
        this.close()
        return
      }
      if (received === null) return
      const message = decodeMessage(received.data)
      if (message === undefined) {
        this.close()
        return
      }
      this.#heard++
      if (message.type === toServer.DONE) this.#answered(message)
      else this.#listener.message(message, received.fds)
    }
  }

  #answered(message: Incoming): void {
    const waiting = this.#waiting.get(message.tag)
    this.#waiting.delete(message.tag)
    waiting?.settle(Number(message.a))
  }
}

/** A refusal by the keeper, as an error. */
export function refusal(what: string, errno: number): MonitorError {
  const name = getSystemErrorName(-errno)
  return new MonitorError(codes[name] ?? 'internal', `${what}: ${name}`)
}

/** Nothing can be asked any more. */
export function keeperGone(what: string): MonitorError {
  return new MonitorError('unavailable', `${what}: the keeper is gone`)
}
