// A sink that keeps the beginning of an output, for exec sync; the rest is thrown away, so that no process waits for us.

import { MAX_EXEC_SYNC_BYTES } from '../base/limits.ts'
import type { ByteSink } from '../base/remote-stdio.ts'

/** Keeps at most 16 MiB. Never full. */
export class OutputCapture implements ByteSink {
  readonly buffered = 0
  onDrain: (() => void) | undefined
  readonly #limit: number
  #memory: Buffer = Buffer.alloc(0)
  #length = 0
  #truncated = false

  constructor(limit = MAX_EXEC_SYNC_BYTES) {
    this.#limit = limit
  }

  /** What was kept. Valid until the next write. */
  get bytes(): Buffer {
    return this.#memory.subarray(0, this.#length)
  }

  /** True if more came than was kept. */
  get truncated(): boolean {
    return this.#truncated
  }

  write(chunk: Buffer): boolean {
    const length = Math.min(chunk.length, this.#limit - this.#length)
    if (length < chunk.length) this.#truncated = true
    this.#reserve(this.#length + length)
    chunk.copy(this.#memory, this.#length, 0, length)
    this.#length += length
    return true
  }

  end(): void {}

  /** Grows by doubling: many small chunks cost no more than few large ones. */
  #reserve(length: number): void {
    if (length <= this.#memory.length) return
    const larger = Buffer.allocUnsafeSlow(
      Math.min(this.#limit, Math.max(length, this.#memory.length * 2, 4096)),
    )
    this.#memory.copy(larger, 0, 0, this.#length)
    this.#memory = larger
  }
}
