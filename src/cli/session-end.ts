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
      const message = end.message.replace(/^(Internal error occurred: )+/, '')
      say(`error: ${what}: ${message}`)
      return exitCodeOfFailure(message)
    }
    case 'broken':
  }
  say(`error: ${what}: the session broke: ${end.message}`)
  return EXIT_BROKEN
}

/** As a shell says it where the command could not be started. */
function exitCodeOfFailure(message: string): number {
  if (/executable file .*not found|no such file or directory/i.test(message)) return EXIT_NOT_FOUND
  if (/permission denied|is a directory/i.test(message)) return EXIT_NOT_EXECUTABLE
  return EXIT_BROKEN
}
