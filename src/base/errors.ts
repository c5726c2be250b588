// The one error class of holdfast and its closed set of codes. Four edges translate it, nobody else:
// rpc (exception text), streaming (HTTP status or status stream), cri (gRPC status), cli (sentence, exit code).

/** Codes map one to one to gRPC's. */
export type ErrorCode =
  | 'invalid-argument'
  | 'not-found'
  | 'already-exists'
  | 'failed-precondition'
  | 'resource-exhausted'
  | 'deadline-exceeded'
  | 'unavailable'
  | 'unimplemented'
  | 'canceled'
  | 'internal'

/** A failure with a code. The message is a verb-object chain that names the object: `create container c1: read pidfile: ENOENT`. */
export class MonitorError extends Error {
  readonly code: ErrorCode

  constructor(code: ErrorCode, message: string, options?: { cause?: unknown }) {
    super(message, options)
    this.name = 'MonitorError'
    this.code = code
  }

  /** The same failure seen from one step further out: the code stays, the message gets a prefix. */
  static within(step: string, error: unknown, code: ErrorCode = 'internal'): MonitorError {
    return new MonitorError(
      error instanceof MonitorError ? error.code : code,
      `${step}: ${messageOf(error)}`,
      {
        cause: error,
      },
    )
  }
}

/** Anything thrown, as a MonitorError; what is not one is `internal`. */
export function fromUnknown(error: unknown): MonitorError {
  if (error instanceof MonitorError) return error
  return new MonitorError('internal', messageOf(error), { cause: error })
}

/** The text of anything thrown. */
export function messageOf(error: unknown): string {
  return error instanceof Error ? error.message : String(error)
}

/** True for a system error with one of these names (`ENOENT`). */
export function isErrno(error: unknown, ...names: string[]): boolean {
  return error instanceof Error && 'code' in error && names.includes(String(error.code))
}
