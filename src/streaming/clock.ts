// Time as a parameter: sessions and tokens take a Clock, tests pass a fake one.

/** A timer that can be cancelled any number of times. */
export interface Timer {
  cancel(): void
}

/** Monotonic milliseconds, and calls after some of them. */
export interface Clock {
  now(): number
  after(milliseconds: number, call: () => void): Timer
}

/** The real one. Its timers do not keep the process alive. */
export const systemClock: Clock = {
  now: () => performance.now(),
  after: (milliseconds, call) => {
    const timer = setTimeout(call, milliseconds).unref()
    return { cancel: () => clearTimeout(timer) }
  },
}
