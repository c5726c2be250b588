// A clock that moves when told.

import type { Clock, Timer } from '../../../src/streaming/clock.ts'

/** Calls what is due, in order, when time is advanced. */
export class FakeClock implements Clock {
  #now = 0
  readonly #timers = new Set<{ readonly at: number; readonly call: () => void }>()

  now(): number {
    return this.#now
  }

  after(milliseconds: number, call: () => void): Timer {
    const timer = { at: this.#now + milliseconds, call }
    this.#timers.add(timer)
    return { cancel: () => this.#timers.delete(timer) }
  }

  get timers(): number {
    return this.#timers.size
  }

  advance(milliseconds: number): void {
    const until = this.#now + milliseconds
    for (let next = this.#next(until); next !== undefined; next = this.#next(until)) {
      this.#now = next.at
      this.#timers.delete(next)
      next.call()
    }
    this.#now = until
  }

  #next(until: number): { readonly at: number; readonly call: () => void } | undefined {
    let first: { readonly at: number; readonly call: () => void } | undefined
    for (const timer of this.#timers) {
      if (timer.at <= until && (first === undefined || timer.at < first.at)) first = timer
    }
    return first
  }
}
