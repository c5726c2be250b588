// One two-party connection over a stream socket: framing, dispatch, Abort and the end. Both halves live on it: answers
// (what the peer asks) and questions (what we ask). No capability but the bootstrap one ever passes.

import type { Socket } from 'node:net'
import { messageOf } from '../base/errors.ts'
import { ABORT_LINGER_MS, MAX_MESSAGE_BYTES } from '../base/limits.ts'
import { MessageFramer } from './message-framing.ts'
import { Answers } from './rpc-answers.ts'
import type { RpcAccount } from './rpc-budget.ts'
import { RpcBudget } from './rpc-budget.ts'
import { RpcException, decodeException, encodeException } from './rpc-exception.ts'
import {
  Bootstrap,
  Call,
  Disembargo,
  DisembargoTag,
  Exception,
  Finish,
  Message,
  MessageTag,
  Release,
  Return,
} from './rpc-messages.ts'
import { Questions } from './rpc-questions.ts'
import type { Service } from './rpc-service.ts'
import type { Init, Method, Pointer, PointerInit } from './schema.ts'
import { encodeMessage } from './struct-builder.ts'
import { StructReader } from './struct-reader.ts'

export interface RpcConnectionOptions {
  /** What the bootstrap capability offers; none: only a client. */
  readonly services?: readonly Service[]
  /** Shared with other connections. */
  readonly budget?: RpcBudget
  readonly maxMessageBytes?: number
  readonly onUnexpectedError?: (method: string, error: unknown) => void
}

/** Owns the socket. */
export class RpcConnection {
  /** Why the connection ended: resolved once, never rejected. */
  readonly ended: Promise<RpcException>
  readonly #socket: Socket
  readonly #framer: MessageFramer
  readonly #account: RpcAccount
  readonly #answers: Answers
  readonly #questions: Questions
  #resolveEnded!: (reason: RpcException) => void
  #closed = false
  #corked = false
  #paused = false

  constructor(socket: Socket, options: RpcConnectionOptions = {}) {
    this.#socket = socket
    this.#framer = new MessageFramer(options.maxMessageBytes ?? MAX_MESSAGE_BYTES)
    this.#account = (options.budget ?? new RpcBudget()).open()
    const send = (message: readonly Buffer[]): void => this.#write(message)
    this.#answers = new Answers({
      services: options.services ?? [],
      account: this.#account,
      send,
      onUnexpectedError: options.onUnexpectedError ?? (() => {}),
    })
    this.#questions = new Questions(send)
    this.ended = new Promise((resolve) => {
      this.#resolveEnded = resolve
    })
    socket.on('data', (chunk) => this.#received(chunk))
    socket.on('error', (error) => this.#end(new RpcException('disconnected', error.message)))
    socket.on('end', () => this.#end(new RpcException('disconnected', 'the peer closed the connection')))
    socket.on('close', () => this.#end(new RpcException('disconnected', 'the connection is closed')))
  }

  /** Calls a method of the peer's bootstrap capability. */
  call<P, R>(method: Method<P, R>, params: Init<P>, signal?: AbortSignal): Promise<R> {
    return this.#questions.call(method, params, signal)
  }

  /** Whether calls can still be made. */
  get isOpen(): boolean {
    return !this.#closed
  }

  close(): void {
    this.#end(new RpcException('disconnected', 'the connection is closed'))
  }

  #received(chunk: Buffer): void {
    if (this.#closed) return
    this.#framer.push(chunk)
    this.#handleMessages()
  }

  #handleMessages(): void {
    try {
      while (!this.#closed && !this.#paused) {
        const segments = this.#framer.next()
        if (segments === undefined) break
        this.#handle(segments)
      }
      if (!this.#closed) this.#account.setRequests(this.#framer.buffered)
    } catch (error) {
      this.#abort(error)
    }
  }

  #handle(segments: readonly Buffer[]): void {
    const reader = new StructReader(segments)
    const { tag, body } = reader.struct(Message, reader.root())
    switch (tag) {
      case MessageTag.bootstrap:
        return this.#answers.bootstrap(reader.struct(Bootstrap, body).questionId)
      case MessageTag.call:
        return this.#answers.call(reader, reader.struct(Call, body))
      case MessageTag.return:
        return this.#questions.return(reader, reader.struct(Return, body))
      case MessageTag.finish:
        return this.#answers.finish(reader.struct(Finish, body))
      case MessageTag.release:
        return this.#answers.release(reader.struct(Release, body))
      case MessageTag.disembargo:
        return this.#disembargo(reader, body, segments)
      // Nothing that we send can be unimplemented or resolve to something else.
      case MessageTag.resolve:
      case MessageTag.unimplemented:
        return
      case MessageTag.abort:
        return this.#end(peerAborted(reader.struct(Exception, body)))
      default:
        return this.#sendUnimplemented(segments)
    }
  }

  /** A loopback goes back at once: calls are handled in order, so there is nothing to wait for. */
  #disembargo(reader: StructReader, body: Pointer | undefined, segments: readonly Buffer[]): void {
    const { id, tag, target } = reader.struct(Disembargo, body)
    if (tag !== DisembargoTag.senderLoopback) return this.#sendUnimplemented(segments)
    const value = { id, tag: DisembargoTag.receiverLoopback, target }
    this.#send(MessageTag.disembargo, { table: Disembargo, value })
  }

  /** Echoes the message, as the protocol wants it. */
  #sendUnimplemented(segments: readonly Buffer[]): void {
    const [message] = segments
    if (message === undefined || segments.length > 1) {
      throw new RpcException('unimplemented', 'a message of an unknown kind')
    }
    this.#send(MessageTag.unimplemented, { message })
  }

  #send(tag: number, body: PointerInit): void {
    this.#write(encodeMessage(Message, { tag, body }))
  }

  /** Writes of one turn go to the kernel together. */
  #write(message: readonly Buffer[]): void {
    if (this.#closed || !this.#socket.writable) return
    if (!this.#corked) {
      this.#corked = true
      this.#socket.cork()
      process.nextTick(() => {
        this.#corked = false
        this.#socket.uncork()
      })
    }
    for (const part of message) {
      this.#account.sent(part.length)
      this.#socket.write(part, () => this.#delivered(part.length))
    }
    if (this.#account.isFull) this.#pause()
  }

  #delivered(bytes: number): void {
    this.#account.delivered(bytes)
    if (!this.#paused || this.#closed || this.#account.isFull) return
    this.#paused = false
    this.#socket.resume()
    this.#handleMessages()
  }

  /** A peer that does not read is not read from: what it asks waits in its own socket. */
  #pause(): void {
    this.#paused = true
    this.#socket.pause()
  }

  /** Tells the peer what it did wrong, and ends. */
  #abort(error: unknown): void {
    if (this.#closed) return
    this.#send(MessageTag.abort, { table: Exception, value: encodeException(error) })
    this.#end(new RpcException('failed', `the peer broke the protocol: ${messageOf(error)}`))
  }

  #end(reason: RpcException): void {
    if (this.#closed) return
    this.#closed = true
    this.#answers.close()
    this.#questions.close(disconnected(reason))
    this.#account.close()
    this.#resolveEnded(reason)
    this.#socket.end()
    this.#socket.resume()
    // A peer that does not close its end does not keep ours.
    const linger = setTimeout(() => this.#socket.destroy(), ABORT_LINGER_MS)
    this.#socket.once('close', () => clearTimeout(linger))
  }
}

function peerAborted(exception: Exception): RpcException {
  return new RpcException('disconnected', `the peer aborted: ${decodeException(exception).message}`)
}

/** Calls that were open when a connection ended failed by that, whatever ended it. */
function disconnected(reason: RpcException): RpcException {
  return new RpcException('disconnected', reason.message)
}
