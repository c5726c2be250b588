// Tells, once each time it changes, that a container's log cannot be written, and what was lost when it can be again
// (cases B57, M13). The keeper counts; the container runs on.

import { getSystemErrorName } from 'node:util'
import type { Diagnostics } from '../base/diagnostics.ts'
import type { PumpState } from '../keeper/keeper-client.ts'

export class LogReport {
  readonly #diagnostics: Diagnostics
  readonly #what: string
  #errno = 0

  constructor(diagnostics: Diagnostics, containerId: string, logPath: string) {
    this.#diagnostics = diagnostics
    this.#what = `write log ${logPath} of container ${containerId}`
  }

  /** What the keeper says of the log now. */
  update({ errno, dropped }: Pick<PumpState, 'errno' | 'dropped'>): void {
    if (errno === this.#errno) return
    const failed = errno !== 0
    this.#errno = errno
    if (failed) {
      const reason = getSystemErrorName(-errno)
      this.#diagnostics.error(
        `${this.#what}: ${reason}; the container runs on, and what cannot be written is lost`,
      )
    } else this.#diagnostics.warn(`${this.#what}: it works again; ${dropped} bytes were lost so far`)
  }
}
