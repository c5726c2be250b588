// Sinks for tests: how a client takes its output.

import type { ByteSink } from '../../src/base/remote-stdio.ts'

/**
 * Takes everything. `keeping` keeps each chunk itself, so that memory that is used again shows, and is full until
 * `drain`; otherwise chunks are copied and it is never full.
 */
export class TestSink implements ByteSink {
  onDrain: (() => void) | undefined
  buffered = 0
  ends = 0
  writes = 0
  gone = false
  keeping: boolean
  /** Called after each write. */
  onWrite: (() => void) | undefined
  readonly #chunks: Buffer[] = []
  readonly #waiting: [bytes: number, resolve: () => void][] = []

  constructor(keeping = false) {
    this.keeping = keeping
  }

  get bytes(): Buffer {
    return Buffer.concat(this.#chunks)
  }

  get length(): number {
    return this.#chunks.reduce((sum, chunk) => sum + chunk.length, 0)
  }

  write(chunk: Buffer): boolean {
    if (this.gone) return true
    this.writes++
    this.#chunks.push(this.keeping ? chunk : Buffer.from(chunk))
    if (this.keeping) this.buffered += chunk.length
    this.#wake()
    this.onWrite?.()
    return !this.keeping
  }

  end(): void {
    this.ends++
    this.#wake()
  }

  /** Has room again. */
  drain(): void {
    this.buffered = 0
    this.onDrain?.()
  }

  /** Resolves when so many bytes have come, or the end. */
  until(bytes: number): Promise<void> {
    return new Promise((resolve) => {
      this.#waiting.push([bytes, resolve])
      this.#wake()
    })
  }

  #wake(): void {
    const length = this.#waiting.length > 0 ? this.length : 0
    for (const [bytes, resolve] of this.#waiting) if (this.ends > 0 || length >= bytes) resolve()
  }
}

/** A consumer that takes some turns of the event loop for each chunk. */
export function slowSink(turns = 3): TestSink {
  const sink = new TestSink(true)
  sink.onWrite = () => {
    let left = turns
    const turn = (): void => {
      if (left-- > 0) setImmediate(turn)
      else sink.drain()
    }
    turn()
  }
  return sink
}
