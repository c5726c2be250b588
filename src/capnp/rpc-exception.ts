// Errors on the wire: an exception has a text and one of four types. Between our own two ends it also carries the code
// of a MonitorError, in a field that the protocol has retired and other implementations ignore.

import type { ErrorCode } from '../base/errors.ts'
import { MonitorError, messageOf } from '../base/errors.ts'
import { MAX_EXCEPTION_BYTES } from '../base/limits.ts'
import type { Exception } from './rpc-messages.ts'

/** By number. */
const exceptionTypes = ['failed', 'overloaded', 'disconnected', 'unimplemented'] as const
export type ExceptionType = (typeof exceptionTypes)[number]

/** gRPC's numbers of our codes; 0 on the wire: none. */
const codeNumbers: Record<ErrorCode, number> = {
  canceled: 1,
  'invalid-argument': 3,
  'deadline-exceeded': 4,
  'not-found': 5,
  'already-exists': 6,
  'resource-exhausted': 8,
  'failed-precondition': 9,
  unimplemented: 12,
  internal: 13,
  unavailable: 14,
}

/** An exception of the RPC: what the peer sent, or what it is to be sent. */
export class RpcException extends Error {
  readonly type: ExceptionType
  /** Only when a peer of our own sent it. */
  readonly code: ErrorCode | undefined

  constructor(type: ExceptionType, reason: string, code?: ErrorCode) {
    super(reason)
    this.name = 'RpcException'
    this.type = type
    this.code = code
  }
}

/** What is sent for anything thrown. */
export function encodeException(error: unknown): Exception {
  const reason = Buffer.from(messageOf(error)).subarray(0, MAX_EXCEPTION_BYTES).toString()
  if (error instanceof RpcException) {
    return {
      reason,
      type: exceptionTypes.indexOf(error.type),
      code: error.code ? codeNumbers[error.code] : 0,
    }
  }
  const code = error instanceof MonitorError ? error.code : 'internal'
  const type: ExceptionType = code === 'unimplemented' ? 'unimplemented' : 'failed'
  return { reason, type: exceptionTypes.indexOf(type), code: codeNumbers[code] }
}

/** What was received. */
export function decodeException(exception: Exception): RpcException {
  const code = Object.entries(codeNumbers).find(([, number]) => number === exception.code)?.[0]
  return new RpcException(
    exceptionTypes[exception.type] ?? 'failed',
    exception.reason,
    code as ErrorCode | undefined,
  )
}
