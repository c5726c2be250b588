// The caller's half of a connection: calls on the peer's bootstrap capability, each settled exactly once.

import { MonitorError } from '../base/errors.ts'
import { RpcException, decodeException } from './rpc-exception.ts'
import {
  Bootstrap,
  Call,
  CapTag,
  Exception,
  Finish,
  Message,
  MessageTag,
  Payload,
  Return,
  ReturnTag,
} from './rpc-messages.ts'
import type { Init, Method, StructTable } from './schema.ts'
import { encodeMessage } from './struct-builder.ts'
import type { StructReader } from './struct-reader.ts'

interface Question {
  /** Set while somebody waits; a cancelled question stays in the table until its Return comes. */
  waiting: { resolve(reader: StructReader, payload: Payload): void; reject(error: unknown): void } | undefined
  readonly releaseResultCaps: boolean
}

/** Calls that were sent and have not returned. */
export class Questions {
  readonly #send: (message: readonly Buffer[]) => void
  readonly #questions = new Map<number, Question>()
  #nextId = 0
  #capability: Promise<number> | undefined
  #closedBy: RpcException | undefined

  constructor(send: (message: readonly Buffer[]) => void) {
    this.#send = send
  }

  /** Calls a method. Rejects with the peer's exception, or with the signal's reason, which tells the peer to give up. */
  async call<P, R>(method: Method<P, R>, params: Init<P>, signal?: AbortSignal): Promise<R> {
    this.#capability ??= this.#bootstrap()
    const importedCap = await orAborted(this.#capability, signal)
    return await new Promise((resolve, reject) => {
      const id = this.#ask(
        MessageTag.call,
        Call,
        (questionId) => ({
          questionId,
          interfaceId: method.interfaceId,
          methodId: method.ordinal,
          target: { importedCap },
          params: { content: { table: method.params, value: params } },
        }),
        {
          releaseResultCaps: true,
          waiting: {
            resolve: (reader, payload) => {
              signal?.removeEventListener('abort', abort)
              resolve(reader.struct(method.results, payload.content))
            },
            reject: (error) => {
              signal?.removeEventListener('abort', abort)
              reject(error)
            },
          },
        },
      )
      const abort = (): void => this.#cancel(id, signal?.reason)
      signal?.addEventListener('abort', abort)
    })
  }

  return(reader: StructReader, message: Return): void {
    const question = this.#questions.get(message.answerId)
    if (question === undefined) throw new RpcException('failed', 'Return for a question that is not open')
    this.#questions.delete(message.answerId)
    const { waiting } = question
    if (waiting === undefined) return
    this.#sendFinish(message.answerId, question.releaseResultCaps)
    try {
      switch (message.tag) {
        case ReturnTag.results:
          return waiting.resolve(reader, reader.struct(Payload, message.body))
        case ReturnTag.exception:
          return waiting.reject(decodeException(reader.struct(Exception, message.body)))
        default:
          return waiting.reject(
            new RpcException('failed', `a call returned in an unknown way (${message.tag})`),
          )
      }
    } catch (error) {
      waiting.reject(error)
    }
  }

  /** The connection is gone: whoever waits is told, and so is everybody who calls later. */
  close(reason: RpcException): void {
    this.#closedBy = reason
    const questions = [...this.#questions.values()]
    this.#questions.clear()
    for (const { waiting } of questions) waiting?.reject(reason)
  }

  async #bootstrap(): Promise<number> {
    const payload = await new Promise<Payload>((resolve, reject) => {
      const waiting = { resolve: (_: StructReader, value: Payload) => resolve(value), reject }
      this.#ask(MessageTag.bootstrap, Bootstrap, (questionId) => ({ questionId }), {
        releaseResultCaps: false,
        waiting,
      })
    })
    const [capability] = payload.capTable
    if (capability?.tag !== CapTag.senderHosted && capability?.tag !== CapTag.senderPromise) {
      throw new RpcException('failed', 'the peer offers no bootstrap capability')
    }
    return capability.id
  }

  #ask<T>(
    tag: number,
    table: StructTable<T>,
    valueFor: (questionId: number) => Init<T>,
    question: Question,
  ): number {
    if (this.#closedBy !== undefined) throw this.#closedBy
    const id = this.#nextId
    const message = encodeMessage(Message, { tag, body: { table, value: valueFor(id) } })
    this.#nextId = (id + 1) >>> 0
    this.#questions.set(id, question)
    this.#send(message)
    return id
  }

  #cancel(id: number, reason: unknown): void {
    const question = this.#questions.get(id)
    if (question?.waiting === undefined) return
    const { waiting } = question
    question.waiting = undefined
    this.#sendFinish(id, true)
    waiting.reject(reason ?? new MonitorError('canceled', 'the call was given up'))
  }

  #sendFinish(questionId: number, releaseResultCaps: boolean): void {
    const body = { table: Finish, value: { questionId, releaseResultCaps } }
    this.#send(encodeMessage(Message, { tag: MessageTag.finish, body }))
  }
}

/** The promise's value, unless the signal fires first. */
async function orAborted<T>(promise: Promise<T>, signal: AbortSignal | undefined): Promise<T> {
  if (signal === undefined) return await promise
  signal.throwIfAborted()
  let abort: (() => void) | undefined
  const aborted = new Promise<never>((_, reject) => {
    abort = () => reject(signal.reason as Error)
    signal.addEventListener('abort', abort)
  })
  try {
    return await Promise.race([promise, aborted])
  } finally {
    if (abort !== undefined) signal.removeEventListener('abort', abort)
  }
}
