// SPDY/3.1 header blocks (streaming.md §2.3).
//
//   block: count u32, count × (nameLen u32, name, valueLen u32, value)      then zlib, one stream per direction for
//   the connection's life, each block ended by a sync flush (… 00 00 ff ff)
//
// A sync flush ends on a byte boundary, so each block is raw deflate whose only state is the output before it.

import { MonitorError } from '../base/errors.ts'
import { MAX_SPDY_CONTROL_BYTES, MAX_SPDY_HEADERS } from '../base/limits.ts'
import { Inflater } from './inflate.ts'
import { spdyDictionary, spdyDictionaryId } from './spdy-dictionary.ts'

/** CMF and FLG of a zlib stream, and the dictionary's id. */
const zlibHeaderBytes = 6

/** Inflates the blocks of one direction of one connection, in their order, every one of them. */
export class HeaderInflater {
  readonly #inflater = new Inflater(spdyDictionary, MAX_SPDY_CONTROL_BYTES)
  #started = false
  #inflatedBytes = 0

  /** Inflated so far: what a peer makes us do for a few bytes. */
  get inflatedBytes(): number {
    return this.#inflatedBytes
  }

  /**
   * The plain block, valid until the next one. Throws on anything that is not zlib with this dictionary, flushed, and of
   * a sane size.
   */
  inflate(block: Buffer): Buffer {
    const deflated = this.#started ? block : withoutZlibHeader(block)
    this.#started = true
    const plain = this.#inflater.inflate(deflated)
    this.#inflatedBytes += plain.length
    return plain
  }
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
