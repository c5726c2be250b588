// What SPDY and WebSocket both are to a session once their handshake is over.

import type { RemoteStdio } from '../base/remote-stdio.ts'
import type { SessionOutcome } from '../wire/remote-status.ts'

/** One client of an exec or attach session. */
export interface Transport {
  readonly stdio: RemoteStdio
  /**
   * Ends the session: what was written is followed by the ends of stdout and stderr, the status and the close. Only
   * the first call counts. A client that is gone is told nothing.
   */
  finish(outcome: SessionOutcome): void
  /** Ends the session from our side before its process has: a failure for the client, `gone` for the backend. */
  stop(message: string): void
}
