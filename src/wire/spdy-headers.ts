// SPDY/3.1 header blocks (streaming.md §2.3).
//
//   block: count u32, count × (nameLen u32, name, valueLen u32, value)      then zlib, one stream per direction for
//   the connection's life, each block ended by a sync flush (… 00 00 ff ff)
//
// A sync flush ends on a byte boundary, so each block is raw deflate whose only state is the last 32 KiB of output:
// no zlib context lives between blocks.

import type { inflateRawSync } from 'node:zlib'
import { MonitorError } from '../base/errors.ts'
import { MAX_SPDY_CONTROL_BYTES, MAX_SPDY_HEADERS } from '../base/limits.ts'
import { spdyDictionary, spdyDictionaryId } from './spdy-dictionary.ts'

/** Z_SYNC_FLUSH: what is there is all there is, for now. */
const syncFlush = 2
const windowBytes = 32 * 1024
const minWindowBytes = 2 * 1024
/** CMF and FLG of a zlib stream, and the dictionary's id. */
const zlibHeaderBytes = 6

/** Inflates the blocks of one direction of one connection, in their order, every one of them. */
export class HeaderInflater {
  readonly #inflate: typeof inflateRawSync
  /** The last output, at most windowBytes of it, ends at #windowEnd; what is before it is of no use any more. */
  #window = spdyDictionary
  #windowEnd = spdyDictionary.length
  #started = false
  #inflatedBytes = 0

  /** `inflate` is node:zlib's, which is loaded on first use. */
  constructor(inflate: typeof inflateRawSync) {
    this.#inflate = inflate
  }

  /** Inflated so far: what a peer makes us do for a few bytes. */
  get inflatedBytes(): number {
    return this.#inflatedBytes
  }

  /** The plain block. Throws on anything that is not zlib with this dictionary, flushed, and of a sane size. */
  inflate(block: Buffer): Buffer {
    const deflated = this.#started ? block : withoutZlibHeader(block)
    this.#started = true
    if (deflated.length < 4 || deflated.readUInt32BE(deflated.length - 4) !== 0x0000ffff) {
      throw malformed('header block is not flushed')
    }
    let plain: Buffer
    try {
      plain = this.#inflate(deflated, {
        dictionary: this.#window.subarray(Math.max(0, this.#windowEnd - windowBytes), this.#windowEnd),
        finishFlush: syncFlush,
        maxOutputLength: MAX_SPDY_CONTROL_BYTES,
        chunkSize: 1024,
      })
    } catch (error) {
      throw new MonitorError('invalid-argument', 'inflate header block', { cause: error })
    }
    this.#inflatedBytes += plain.length
    this.#remember(plain)
    return plain
  }

  /** Grows with what a connection needs, a few kilobytes for most; copies are rare, so blocks cost no garbage. */
  #remember(plain: Buffer): void {
    const added = plain.subarray(-windowBytes)
    if (this.#windowEnd + added.length > this.#window.length || this.#window === spdyDictionary) {
      const kept = this.#window.subarray(Math.max(0, this.#windowEnd - windowBytes), this.#windowEnd)
      const needed = kept.length + added.length
      const larger = Buffer.allocUnsafeSlow(Math.max(minWindowBytes, Math.min(2 * needed, 2 * windowBytes)))
      this.#windowEnd = kept.copy(larger)
      this.#window = larger
    }
    this.#windowEnd += added.copy(this.#window, this.#windowEnd)
  }
}

/** Loads zlib for the first HeaderInflater. */
export async function loadInflate(): Promise<typeof inflateRawSync> {
  const zlib = await import('node:zlib')
  return zlib.inflateRawSync
}

/** Names are lower-case in the result whatever they were. Throws on a block that is not exactly its headers. */
export function parseHeaders(block: Buffer): Map<string, string> {
  let offset = 0
  const u32 = (): number => {
    if (offset + 4 > block.length) throw malformed('header block is cut')
    offset += 4
    return block.readUInt32BE(offset - 4)
  }
  const text = (): string => {
    const length = u32()
    if (length > block.length - offset) throw malformed('header block is cut')
    offset += length
    return block.toString('latin1', offset - length, offset)
  }
  const count = u32()
  if (count > MAX_SPDY_HEADERS) throw malformed(`header block has ${count} headers`)
  const headers = new Map<string, string>()
  for (let i = 0; i < count; i++) {
    const name = text().toLowerCase()
    const value = text()
    if (name === '' || headers.has(name)) throw malformed('header name is empty or double')
    headers.set(name, value)
  }
  if (offset !== block.length) throw malformed('header block is too long')
  return headers
}

/** What a SYN_REPLY of the server carries: no headers. Stored blocks without a dictionary, which every peer takes. */
export const emptyHeaderBlock = {
  first: Buffer.from('7801000400fbff00000000000000ffff', 'hex'),
  later: Buffer.from('000400fbff00000000000000ffff', 'hex'),
} as const

function withoutZlibHeader(block: Buffer): Buffer {
  const valid =
    block.length >= zlibHeaderBytes &&
    (block.readUInt8(0) & 0x0f) === 8 &&
    block.readUInt16BE(0) % 31 === 0 &&
    (block.readUInt8(1) & 0x20) !== 0 &&
    block.readUInt32BE(2) === spdyDictionaryId
  if (!valid) throw malformed('header block does not start as zlib with the dictionary of SPDY/3')
  return block.subarray(zlibHeaderBytes)
}

function malformed(what: string): MonitorError {
  return new MonitorError('invalid-argument', what)
}
