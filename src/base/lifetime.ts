// Things that end: a stack of closers, and deadlines.

/** Closes what was opened, last first. A closer that throws does not stop the others. */
export class Closers {
  readonly #stack: (() => void)[] = []

  add(close: () => void): void {
    this.#stack.push(close)
  }

  /** Forgets everything: somebody else owns it now. */
  release(): void {
    this.#stack.length = 0
  }

  /** Errors are collected and the first one is thrown at the end. */
  close(): void {
    let first: unknown
    for (let close = this.#stack.pop(); close !== undefined; close = this.#stack.pop()) {
      try {
        close()
      } catch (error) {
        first ??= error
      }
    }
    if (first !== undefined) throw first
  }
}

/** The promise's value, or `late()`'s when `milliseconds` have passed. Leaves no timer behind. */
export async function withDeadline<T>(
  promise: Promise<T>,
  milliseconds: number,
  late: () => T | Promise<T>,
): Promise<T> {
  let timer: NodeJS.Timeout | undefined
  const deadline = new Promise<T>((resolve, reject) => {
    timer = setTimeout(() => {
      try {
        resolve(late())
      } catch (error) {
        reject(error)
      }
    }, milliseconds)
  })
  try {
    return await Promise.race([promise, deadline])
  } finally {
    clearTimeout(timer)
  }
}

/** A promise and the functions that settle it. */
export interface Deferred<T> {
  readonly promise: Promise<T>
  resolve(value: T | PromiseLike<T>): void
  reject(reason: unknown): void
}

export function deferred<T>(): Deferred<T> {
  let resolve!: Deferred<T>['resolve']
  let reject!: Deferred<T>['reject']
  const promise = new Promise<T>((onResolve, onReject) => {
    resolve = onResolve
    reject = onReject
  })
  return { promise, resolve, reject }
}
