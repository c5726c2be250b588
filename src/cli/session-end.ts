// How a session ended, seen from the client, and the exit code and the sentence that follow.

import { exitCodeOf } from '../base/remote-stdio.ts'
import type { SessionOutcome } from '../wire/remote-status.ts'
import { EXIT_BROKEN, EXIT_NOT_EXECUTABLE, EXIT_NOT_FOUND } from './exit-codes.ts'

/** The end of a session: the server's word, none at all, or the person's wish. */
export type SessionEnd =
  SessionOutcome | { readonly kind: 'broken'; readonly message: string } | { readonly kind: 'detached' }

/** The exit code; says how it ended where the exit code alone does not. `what` names the session. */
export function conclude(end: SessionEnd, what: string, say: (text: string) => void): number {
  switch (end.kind) {
    case 'success':
      return 0
    case 'exited':
      return exitCodeOf(end.status)
    case 'detached':
      say(`detached: ${what}`)
      return 0
    case 'failed': {
      const message = readable(end.message)
      say(`error: ${what}: ${message}`)
      return exitCodeOfFailure(message) ?? EXIT_BROKEN
    }
    case 'broken':
  }
  say(`error: ${what}: the session broke: ${end.message}`)
  return EXIT_BROKEN
}

/** As a shell says it where the command could not be started; undefined for other failures. */
export function exitCodeOfFailure(message: string): number | undefined {
  if (/executable file .*not found|no such file or directory/i.test(message)) return EXIT_NOT_FOUND
  if (/permission denied|is a directory/i.test(message)) return EXIT_NOT_EXECUTABLE
  return undefined
}

/** A failure as a person reads it: an OCI runtime's log line is reduced to what it says. */
export function readable(message: string): string {
  return message
    .replace(/^(Internal error occurred: )+/, '')
    .replace(/time="[^"]*" level=\w+ msg="((?:[^"\\]|\\.)*)"/g, (_, text: string) =>
      text.replaceAll(/\\(.)/g, '$1'),
    )
}
