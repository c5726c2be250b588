// Token → session: single use, a short life, a bounded number (streaming.md §1.2). A token is the only authentication
// of a stream, so it comes from a cryptographic source and stands in no message.

import { MonitorError } from '../base/errors.ts'
import type { Clock } from './clock.ts'
import type { Session } from './session.ts'

export interface SessionTokensOptions {
  readonly clock: Clock
  /** A fresh token: at least 128 random bits, letters that a URL path takes as they are. */
  readonly randomToken: () => string
  readonly maxPending: number
  readonly lifetimeMs: number
}

/** The sessions that wait for their client. */
export class SessionTokens {
  readonly #options: SessionTokensOptions
  /** In order of age. */
  readonly #pending = new Map<string, { readonly session: Session; readonly expiresAt: number }>()

  constructor(options: SessionTokensOptions) {
    this.#options = options
  }

  get pending(): number {
    return this.#pending.size
  }

  /** A token for this session. Expired ones make room; none is ever displaced. */
  issue(session: Session): string {
    const { clock, randomToken, maxPending, lifetimeMs } = this.#options
    this.#forgetExpired(clock.now())
    if (this.#pending.size >= maxPending) {
      throw new MonitorError('resource-exhausted', 'maximum number of in-flight requests exceeded')
    }
    const token = randomToken()
    this.#pending.set(token, { session, expiresAt: clock.now() + lifetimeMs })
    return token
  }

  /** The token's session. Whatever happens next, the token is spent. */
  take(token: string): Session | undefined {
    const entry = this.#pending.get(token)
    if (entry === undefined) return undefined
    this.#pending.delete(token)
    return this.#options.clock.now() <= entry.expiresAt ? entry.session : undefined
  }

  #forgetExpired(now: number): void {
    for (const [token, { expiresAt }] of this.#pending) {
      if (now <= expiresAt) return
      this.#pending.delete(token)
    }
  }
}
