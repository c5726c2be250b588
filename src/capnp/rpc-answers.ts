// The callee's half of a connection: what the peer asked, and what it has been told. Throws on a breach of the
// protocol, which the connection answers with an Abort; whatever a method does wrong becomes an exception of its call.
//
// Bounded are the calls that run, not the table: go-capnp sends its Finish long after the Return, by the thousand.

import { MonitorError } from '../base/errors.ts'
import { MAX_ANSWERS, MAX_REPLY_BYTES, MAX_RUNNING_CALLS } from '../base/limits.ts'
import type { RpcAccount } from './rpc-budget.ts'
import { RpcException, encodeException } from './rpc-exception.ts'
import type { Call, Finish, MessageTarget, Release } from './rpc-messages.ts'
import {
  CapTag,
  Exception,
  Message,
  MessageTag,
  Payload,
  Return,
  ReturnTag,
  TargetTag,
} from './rpc-messages.ts'
import type { BoundMethod, CallContext, Service } from './rpc-service.ts'
import type { Init, StructTable } from './schema.ts'
import { encodeMessage } from './struct-builder.ts'
import type { StructReader } from './struct-reader.ts'

/** The bootstrap capability's number in our export table, which has no other entry. */
const bootstrapExport = 0

class Answer implements CallContext {
  readonly isBootstrap: boolean
  returned = false
  /** Takes the call out of the queue, while it waits there. */
  leaveQueue: (() => void) | undefined
  /** Set while a call with a large reply runs. */
  endReservation: (() => void) | undefined
  #controller: AbortController | undefined
  #reason: MonitorError | undefined

  constructor(isBootstrap: boolean) {
    this.isBootstrap = isBootstrap
  }

  /** Made only for methods that look at it. */
  get signal(): AbortSignal {
    this.#controller ??= new AbortController()
    if (this.#reason !== undefined) this.#controller.abort(this.#reason)
    return this.#controller.signal
  }

  abort(reason: MonitorError): void {
    this.#reason = reason
    this.#controller?.abort(reason)
  }
}

export interface AnswersOptions {
  readonly services: readonly Service[]
  readonly account: RpcAccount
  readonly send: (message: readonly Buffer[]) => void
  /** Told of errors that are no MonitorError: mistakes in a method. */
  readonly onUnexpectedError: (method: string, error: unknown) => void
}

/** Open calls of one connection. */
export class Answers {
  readonly #options: AnswersOptions
  readonly #answers = new Map<number, Answer>()
  #running = 0
  /** References that the peer holds to the bootstrap capability. */
  #references = 0
  #closed = false

  constructor(options: AnswersOptions) {
    this.#options = options
  }

  bootstrap(questionId: number): void {
    const answer = this.#open(questionId, true)
    answer.returned = true
    if (this.#options.services.length === 0) {
      return this.#sendException(
        questionId,
        new RpcException('unimplemented', 'there is no bootstrap capability'),
      )
    }
    this.#references++
    const capability = {
      content: { capability: 0 },
      capTable: [{ tag: CapTag.senderHosted, id: bootstrapExport }],
    }
    this.#send(questionId, ReturnTag.results, Payload, capability)
  }

  call(reader: StructReader, call: Call): void {
    const id = call.questionId
    const answer = this.#open(id, false)
    this.#running++
    try {
      this.#checkTarget(call.target)
      const bound = this.#boundMethod(call)
      const params = reader.struct(bound.method.params, call.params.content)
      if (this.#running > MAX_RUNNING_CALLS) {
        throw new RpcException('overloaded', `${MAX_RUNNING_CALLS} calls of this connection are running`)
      }
      if (bound.large) this.#runWhenRoom(id, answer, bound, params)
      else this.#run(id, answer, bound, params)
    } catch (error) {
      if (error instanceof ProtocolBreach) throw error
      this.#fail(id, answer, error)
    }
  }

  /** The peer needs the answer no more: a running call is cancelled, and answered at once so that its id is free. */
  finish(finish: Finish): void {
    const answer = this.#answers.get(finish.questionId)
    if (answer === undefined) throw new ProtocolBreach('Finish for a question that is not open')
    this.#answers.delete(finish.questionId)
    if (answer.isBootstrap && finish.releaseResultCaps && this.#references > 0) this.#references--
    if (answer.returned) return
    answer.returned = true
    this.#cancel(answer, new MonitorError('canceled', 'the caller gave up'))
    this.#options.send(
      encodeMessage(Message, {
        tag: MessageTag.return,
        body: { table: Return, value: { answerId: finish.questionId, tag: ReturnTag.canceled } },
      }),
    )
  }

  release(release: Release): void {
    if (release.id !== bootstrapExport || release.referenceCount > this.#references) {
      throw new ProtocolBreach('Release of a capability that is not exported')
    }
    this.#references -= release.referenceCount
  }

  /** The connection is gone. */
  close(): void {
    this.#closed = true
    const reason = new MonitorError('unavailable', 'the connection of the caller is gone')
    for (const answer of this.#answers.values()) {
      if (!answer.returned) this.#cancel(answer, reason)
    }
    this.#answers.clear()
  }

  #open(questionId: number, isBootstrap: boolean): Answer {
    if (this.#answers.has(questionId)) throw new ProtocolBreach('the question id is already in use')
    if (this.#answers.size >= MAX_ANSWERS) throw new ProtocolBreach('too many questions are open')
    const answer = new Answer(isBootstrap)
    this.#answers.set(questionId, answer)
    return answer
  }

  #cancel(answer: Answer, reason: MonitorError): void {
    if (answer.leaveQueue !== undefined) {
      answer.leaveQueue()
      this.#running--
    }
    answer.abort(reason)
  }

  #checkTarget(target: MessageTarget): void {
    switch (target.tag) {
      case TargetTag.importedCap:
        if (target.importedCap === bootstrapExport && this.#references > 0) return
        throw new ProtocolBreach('the target of a call is not exported')
      case TargetTag.promisedAnswer: {
        const { questionId, transform } = target.promisedAnswer
        const answer = this.#answers.get(questionId)
        if (answer === undefined)
          throw new ProtocolBreach('the target of a call is not a question that is open')
        if (answer.isBootstrap && transform.every((step) => step.tag === 0)) return
        throw new RpcException('failed', 'the target of a call is not a capability')
      }
      default:
        throw new RpcException('unimplemented', 'the target of a call is of an unknown kind')
    }
  }

  #boundMethod(call: Call): BoundMethod {
    if (call.sendResultsTo !== 0) {
      throw new RpcException('unimplemented', 'results can be sent to the caller only')
    }
    const service = this.#options.services.find((each) => each.interfaceId === call.interfaceId)
    if (service === undefined) {
      const name = `0x${call.interfaceId.toString(16)}`
      throw new RpcException('unimplemented', `interface ${name} is not implemented`)
    }
    const bound = service.methods.get(call.methodId)
    if (bound !== undefined) return bound
    throw new RpcException('unimplemented', `method ${call.methodId} of ${service.name} is not implemented`)
  }

  #runWhenRoom(id: number, answer: Answer, bound: BoundMethod, params: unknown): void {
    const { account } = this.#options
    let started = false
    const leaveQueue = account.budget.whenRoom(account, () => {
      started = true
      answer.leaveQueue = undefined
      answer.endReservation = account.reserve()
      this.#run(id, answer, bound, params)
    })
    if (!started) answer.leaveQueue = leaveQueue
  }

  #run(id: number, answer: Answer, bound: BoundMethod, params: unknown): void {
    const fail = (error: unknown): void => {
      if (!(error instanceof MonitorError)) this.#options.onUnexpectedError(bound.method.name, error)
      this.#fail(id, answer, error)
    }
    try {
      const result = bound.call(params, answer)
      if (!(result instanceof Promise)) return this.#succeed(id, answer, bound, result)
      result.then((value) => this.#succeed(id, answer, bound, value), fail)
    } catch (error) {
      fail(error)
    }
  }

  #succeed(id: number, answer: Answer, bound: BoundMethod, value: Init<unknown>): void {
    if (!answer.returned && !this.#closed) {
      answer.returned = true
      try {
        const content = { table: bound.method.results, value }
        this.#send(id, ReturnTag.results, Payload, { content })
      } catch (error) {
        this.#sendException(id, error)
      }
    }
    this.#settled(answer)
  }

  #fail(id: number, answer: Answer, error: unknown): void {
    if (!answer.returned && !this.#closed) {
      answer.returned = true
      this.#sendException(id, error)
    }
    this.#settled(answer)
  }

  /** After the reply has been sent, so that its bytes count when others look for room. */
  #settled(answer: Answer): void {
    this.#running--
    answer.endReservation?.()
  }

  #sendException(answerId: number, error: unknown): void {
    this.#send(answerId, ReturnTag.exception, Exception, encodeException(error))
  }

  /** The whole reply is made before any of it is sent, so that a failure leaves nothing behind. */
  #send<T>(answerId: number, tag: number, table: StructTable<T>, value: Init<T>): void {
    const message = encodeMessage(Message, {
      tag: MessageTag.return,
      body: { table: Return, value: { answerId, tag, body: { table, value } } },
    })
    const bytes = message.reduce((sum, part) => sum + part.length, 0)
    if (bytes > MAX_REPLY_BYTES) {
      throw new MonitorError('resource-exhausted', `a reply of ${bytes} bytes exceeds the limit`)
    }
    this.#options.send(message)
  }
}

/** The peer does not keep to the protocol: the connection cannot go on. */
class ProtocolBreach extends RpcException {
  constructor(reason: string) {
    super('failed', reason)
  }
}
