// The messages of Cap'n Proto's two-party RPC (rpc.capnp), as far as one bootstrap capability needs them. Unions are
// written out: a tag beside a pointer whose meaning it tells.

import type { Field, Pointer, StructTable } from './schema.ts'

/** Tags of Message. */
export const MessageTag = {
  unimplemented: 0,
  abort: 1,
  call: 2,
  return: 3,
  finish: 4,
  resolve: 5,
  release: 6,
  bootstrap: 8,
  disembargo: 13,
} as const

/** Tags of Return. */
export const ReturnTag = { results: 0, exception: 1, canceled: 2 } as const
/** Tags of MessageTarget. */
export const TargetTag = { importedCap: 0, promisedAnswer: 1 } as const
/** Tags of CapDescriptor that stand for a capability which the sender hosts. */
export const CapTag = { senderHosted: 1, senderPromise: 2 } as const
/** Tags of Disembargo's context. */
export const DisembargoTag = { senderLoopback: 0, receiverLoopback: 1 } as const

export interface Message {
  readonly tag: number
  readonly body: Pointer | undefined
}
export const Message = table<Message>('Message', 1, 1, [
  { name: 'tag', kind: 'uint16', offset: 0 },
  { name: 'body', kind: 'pointer', offset: 0 },
])

export interface Bootstrap {
  readonly questionId: number
}
export const Bootstrap = table<Bootstrap>('Bootstrap', 1, 1, [
  { name: 'questionId', kind: 'uint32', offset: 0 },
])

/** A step from a result to a capability in it: 0 stays, 1 follows a pointer field. */
interface PromisedAnswerOp {
  readonly tag: number
}
const PromisedAnswerOp = table<PromisedAnswerOp>('PromisedAnswer.Op', 1, 0, [
  { name: 'tag', kind: 'uint16', offset: 0 },
])

interface PromisedAnswer {
  readonly questionId: number
  readonly transform: readonly PromisedAnswerOp[]
}
const PromisedAnswer = table<PromisedAnswer>('PromisedAnswer', 1, 1, [
  { name: 'questionId', kind: 'uint32', offset: 0 },
  { name: 'transform', kind: 'list', offset: 0, element: { kind: 'struct', struct: PromisedAnswerOp } },
])

export interface MessageTarget {
  readonly importedCap: number
  readonly tag: number
  readonly promisedAnswer: PromisedAnswer
}
const MessageTarget = table<MessageTarget>('MessageTarget', 1, 1, [
  { name: 'importedCap', kind: 'uint32', offset: 0 },
  { name: 'tag', kind: 'uint16', offset: 32 },
  { name: 'promisedAnswer', kind: 'struct', offset: 0, struct: PromisedAnswer },
])

interface CapDescriptor {
  readonly tag: number
  readonly id: number
}
const CapDescriptor = table<CapDescriptor>('CapDescriptor', 1, 1, [
  { name: 'tag', kind: 'uint16', offset: 0 },
  { name: 'id', kind: 'uint32', offset: 32 },
])

export interface Payload {
  readonly content: Pointer | undefined
  readonly capTable: readonly CapDescriptor[]
}
export const Payload = table<Payload>('Payload', 0, 2, [
  { name: 'content', kind: 'pointer', offset: 0 },
  { name: 'capTable', kind: 'list', offset: 1, element: { kind: 'struct', struct: CapDescriptor } },
])

export interface Call {
  readonly questionId: number
  readonly methodId: number
  /** 0: to the caller. */
  readonly sendResultsTo: number
  readonly interfaceId: bigint
  readonly target: MessageTarget
  readonly params: Payload
}
export const Call = table<Call>('Call', 3, 3, [
  { name: 'questionId', kind: 'uint32', offset: 0 },
  { name: 'methodId', kind: 'uint16', offset: 32 },
  { name: 'sendResultsTo', kind: 'uint16', offset: 48 },
  { name: 'interfaceId', kind: 'uint64', offset: 64 },
  { name: 'target', kind: 'struct', offset: 0, struct: MessageTarget },
  { name: 'params', kind: 'struct', offset: 1, struct: Payload },
])

export interface Return {
  readonly answerId: number
  readonly releaseParamCaps: boolean
  readonly tag: number
  readonly body: Pointer | undefined
}
export const Return = table<Return>('Return', 2, 1, [
  { name: 'answerId', kind: 'uint32', offset: 0 },
  { name: 'releaseParamCaps', kind: 'bool', offset: 32, inverted: true },
  { name: 'tag', kind: 'uint16', offset: 48 },
  { name: 'body', kind: 'pointer', offset: 0 },
])

export interface Finish {
  readonly questionId: number
  readonly releaseResultCaps: boolean
}
export const Finish = table<Finish>('Finish', 1, 0, [
  { name: 'questionId', kind: 'uint32', offset: 0 },
  { name: 'releaseResultCaps', kind: 'bool', offset: 32, inverted: true },
])

export interface Release {
  readonly id: number
  readonly referenceCount: number
}
export const Release = table<Release>('Release', 1, 0, [
  { name: 'id', kind: 'uint32', offset: 0 },
  { name: 'referenceCount', kind: 'uint32', offset: 32 },
])

export interface Disembargo {
  readonly id: number
  readonly tag: number
  readonly target: MessageTarget
}
export const Disembargo = table<Disembargo>('Disembargo', 1, 1, [
  { name: 'id', kind: 'uint32', offset: 0 },
  { name: 'tag', kind: 'uint16', offset: 32 },
  { name: 'target', kind: 'struct', offset: 0, struct: MessageTarget },
])

export interface Exception {
  readonly reason: string
  /** `obsoleteDurability`, which nobody reads any more: our error code (rpc-exception.ts). */
  readonly code: number
  readonly type: number
}
export const Exception = table<Exception>('Exception', 1, 2, [
  { name: 'reason', kind: 'text', offset: 0 },
  { name: 'code', kind: 'uint16', offset: 16 },
  { name: 'type', kind: 'uint16', offset: 32 },
])

function table<T>(
  name: string,
  dataWords: number,
  pointers: number,
  fields: readonly Field[],
): StructTable<T> {
  return { name, dataWords, pointers, fields }
}
