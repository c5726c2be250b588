// Bytes that wait. Views of large read buffers are copied when they are small, so that a byte never keeps 64 KiB
// alive, and small ones are joined, so that a million one-byte frames are not a million objects.

/** Blocks grow with what waits: many queues hold a few bytes, some hold megabytes. */
const minBlockBytes = 1024
const maxBlockBytes = 16 * 1024
/** A view is kept as it is if it is at least this share of its memory. */
const keptShare = 8

/** A queue of bytes, first in, first out. */
export class ChunkQueue {
  #chunks: Buffer[] = []
  /** The last of #chunks, if it is a block of ours with room. */
  #block: Buffer | undefined
  #blockUsed = 0
  #bytes = 0

  get bytes(): number {
    return this.#bytes
  }

  push(chunk: Buffer): void {
    if (chunk.length === 0) return
    this.#bytes += chunk.length
    if (chunk.length >= maxBlockBytes && chunk.length * keptShare >= chunk.buffer.byteLength) {
      this.#closeBlock()
      this.#chunks.push(chunk)
      return
    }
    for (let from = 0; from < chunk.length;) from += this.#copyIn(chunk, from)
  }

  /** All of it; the queue is empty afterwards. */
  takeAll(): Buffer[] {
    this.#closeBlock()
    const chunks = this.#chunks
    this.#chunks = []
    this.#bytes = 0
    return chunks
  }

  #copyIn(chunk: Buffer, from: number): number {
    if (this.#block === undefined) {
      this.#block = Buffer.allocUnsafeSlow(Math.min(maxBlockBytes, Math.max(minBlockBytes, this.#bytes)))
      this.#blockUsed = 0
      this.#chunks.push(this.#block)
    }
    const copied = chunk.copy(this.#block, this.#blockUsed, from)
    this.#blockUsed += copied
    if (this.#blockUsed === this.#block.length) this.#block = undefined
    return copied
  }

  #closeBlock(): void {
    if (this.#block !== undefined)
      this.#chunks[this.#chunks.length - 1] = this.#block.subarray(0, this.#blockUsed)
    this.#block = undefined
  }
}
