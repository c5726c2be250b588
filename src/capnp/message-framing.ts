// Stream framing of Cap'n Proto messages: bytes in, segments out; limits are kept before anything is collected.
//
//   uint32 segment count - 1 │ uint32 words of segment 0 │ … │ padding to 8 bytes │ segment 0 │ segment 1 │ …

import { MonitorError } from '../base/errors.ts'
import { MAX_MESSAGE_SEGMENTS } from '../base/limits.ts'

/** Cuts a byte stream into messages. A message is its segments: views of what was pushed, or of one copy of it. */
export class MessageFramer {
  readonly #maxBytes: number
  #chunks: Buffer[] = []
  #buffered = 0
  /** Bytes wanted before the next look: the count, then the header, then the whole message. */
  #wanted = 4

  constructor(maxBytes: number) {
    this.#maxBytes = maxBytes
  }

  /** Bytes of messages that are not complete, or not yet taken. */
  get buffered(): number {
    return this.#buffered
  }

  push(chunk: Buffer): void {
    this.#chunks.push(chunk)
    this.#buffered += chunk.length
  }

  /** The next complete message. Throws when the stream is no sequence of messages within the limits. */
  next(): Buffer[] | undefined {
    for (;;) {
      if (this.#buffered < this.#wanted) return undefined
      const bytes = this.#joined()
      const segments = bytes.readUInt32LE(0) + 1
      if (segments > MAX_MESSAGE_SEGMENTS) {
        throw new MonitorError('invalid-argument', `message of ${segments} segments exceeds the limit`)
      }
      const header = headerBytes(segments)
      if (bytes.length < header) {
        this.#wanted = header
        continue
      }
      const total = header + bodyBytes(bytes, segments, this.#maxBytes)
      if (bytes.length < total) {
        this.#wanted = total
        continue
      }
      this.#wanted = 4
      this.#buffered -= total
      this.#chunks = bytes.length > total ? [bytes.subarray(total)] : []
      return cut(bytes, segments, header)
    }
  }

  /** One buffer of all that came. Called only when `#wanted` bytes are there, so a message is joined at most thrice. */
  #joined(): Buffer {
    const [first = Buffer.alloc(0)] = this.#chunks
    if (this.#chunks.length <= 1) return first
    const bytes = Buffer.concat(this.#chunks, this.#buffered)
    this.#chunks = [bytes]
    return bytes
  }
}

/** Bytes of the header in front of so many segments. */
export function headerBytes(segments: number): number {
  return (4 + 4 * segments + 7) & ~7
}

function bodyBytes(bytes: Buffer, segments: number, maxBytes: number): number {
  let total = 0
  for (let i = 0; i < segments; i++) total += bytes.readUInt32LE(4 + 4 * i) * 8
  if (total > maxBytes)
    throw new MonitorError('invalid-argument', `message of ${total} bytes exceeds the limit`)
  return total
}

function cut(bytes: Buffer, segments: number, header: number): Buffer[] {
  let at = header
  return Array.from({ length: segments }, (_, i) => {
    const length = bytes.readUInt32LE(4 + 4 * i) * 8
    at += length
    return bytes.subarray(at - length, at)
  })
}
