// What an error channel carries at the end of a session: JSON Status of v4 and later, or the text of v1 to v3
// (streaming.md §4), and the way back for clients.
//
//   {"status":"Success"}
//   {"status":"Failure","message":…,"reason":"NonZeroExitCode","details":{"causes":[{"reason":"ExitCode","message":"7"}]}}

import { exitCodeOf, type ExitStatus } from '../base/remote-stdio.ts'

/** How a session ended, as its client is told. */
export type SessionOutcome =
  | { readonly kind: 'success' }
  | { readonly kind: 'exited'; readonly status: ExitStatus }
  | { readonly kind: 'failed'; readonly message: string }

/** Failures quote what containers and OCI runtimes say; longer texts are cut (cases B61). */
const maxMessageChars = 4096
const loneSurrogate = /[\ud800-\udbff](?![\udc00-\udfff])|(?<![\ud800-\udbff])[\udc00-\udfff]/g

/** The payload of the error channel; empty for a success before v4. */
export function encodeStatus(outcome: SessionOutcome, asJson: boolean): Buffer {
  const status = statusOf(outcome)
  if (asJson) return Buffer.from(JSON.stringify(status))
  return Buffer.from(status.message ?? '')
}

/** What came on an error channel. Nothing or anything unknown is a failure: an empty channel is a cut session. */
export function decodeStatus(payload: Buffer): SessionOutcome {
  const text = payload.toString().trim()
  let status: Partial<Status>
  try {
    status = Object(JSON.parse(text)) as Partial<Status>
  } catch {
    return { kind: 'failed', message: text === '' ? 'the session ended without a status' : text }
  }
  if (status.status === 'Success') return { kind: 'success' }
  const message = typeof status.message === 'string' ? status.message : text
  if (status.reason !== 'NonZeroExitCode') return { kind: 'failed', message }
  const code = exitCodeIn(status)
  return code === undefined ? { kind: 'failed', message } : { kind: 'exited', status: { code } }
}

interface Status {
  readonly status: 'Success' | 'Failure'
  readonly message?: string
  readonly reason?: string
  readonly details?: { readonly causes: readonly { readonly reason?: string; readonly message?: string }[] }
  readonly code?: number
}

function statusOf(outcome: SessionOutcome): Status {
  if (outcome.kind === 'success') return { status: 'Success' }
  if (outcome.kind === 'failed') {
    const message = `Internal error occurred: ${cut(outcome.message)}`
    return { status: 'Failure', message, reason: 'InternalError', code: 500 }
  }
  // Clients parse an unsigned 8-bit number and nothing else.
  const code = exitCodeOf(outcome.status) & 0xff
  if (code === 0) return { status: 'Success' }
  return {
    status: 'Failure',
    message: `command terminated with non-zero exit code: exit status ${code}`,
    reason: 'NonZeroExitCode',
    details: { causes: [{ reason: 'ExitCode', message: String(code) }] },
  }
}

function exitCodeIn(status: Partial<Status>): number | undefined {
  const causes = status.details?.causes
  const cause = Array.isArray(causes) ? causes.find((each) => each?.reason === 'ExitCode') : undefined
  const text: unknown = cause?.message
  return typeof text === 'string' && /^\d{1,3}$/.test(text) && Number(text) < 256 ? Number(text) : undefined
}

/** At most maxMessageChars, and valid Unicode: a lone half of a surrogate pair becomes U+FFFD. */
function cut(message: string): string {
  const short = message.length <= maxMessageChars ? message : `${message.slice(0, maxMessageChars)}…`
  return short.replace(loneSurrogate, '\ufffd')
}
