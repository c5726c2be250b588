// Raw deflate (RFC 1951) of small blocks that share one history, as SPDY compresses its headers.
// Not node:zlib: that makes a native context for every block, whose memory is only returned by the garbage collector
// (20,000 headers cost 300 MB on Node 24), and a context that stays costs each connection 40 KiB.
//
//   block:  final 1 bit | type 2 bits | stored: align, length u16, ~length u16, bytes
//                                     | fixed or dynamic Huffman codes: literals, and (length, distance) into history

import { MonitorError } from '../base/errors.ts'

/** How far back a distance may reach. */
const historyBytes = 32 * 1024
const minRoomBytes = 512
const maxCodeBits = 15
const endOfBlock = 256

const lengthBase = [
  3, 4, 5, 6, 7, 8, 9, 10, 11, 13, 15, 17, 19, 23, 27, 31, 35, 43, 51, 59, 67, 83, 99, 115, 131, 163, 195,
  227, 258,
]
const lengthExtra = [0, 0, 0, 0, 0, 0, 0, 0, 1, 1, 1, 1, 2, 2, 2, 2, 3, 3, 3, 3, 4, 4, 4, 4, 5, 5, 5, 5, 0]
const distanceBase = [
  1, 2, 3, 4, 5, 7, 9, 13, 17, 25, 33, 49, 65, 97, 129, 193, 257, 385, 513, 769, 1025, 1537, 2049, 3073, 4097,
  6145, 8193, 12289, 16385, 24577,
]
const distanceExtra = [
  0, 0, 0, 0, 1, 1, 2, 2, 3, 3, 4, 4, 5, 5, 6, 6, 7, 7, 8, 8, 9, 9, 10, 10, 11, 11, 12, 12, 13, 13,
]
/** In this order the lengths of the codes for code lengths come. */
const codeLengthOrder = [16, 17, 18, 0, 8, 7, 9, 6, 10, 5, 11, 4, 12, 3, 13, 2, 14, 1, 15]

/** A canonical Huffman code: how many codes each length has, and the symbols in the order of their codes. */
interface Code {
  readonly counts: Uint16Array
  readonly symbols: Uint16Array
}

interface BlockCodes {
  readonly literals: Code
  readonly distances: Code
}

let fixedCodes: BlockCodes | undefined

/** Inflates blocks one after the other, each whole and ended by a sync flush. */
export class Inflater {
  readonly #maxOutput: number
  /** History, then what the current block says. */
  #output: Buffer
  #end: number
  #limit = 0
  #input: Buffer = Buffer.alloc(0)
  #position = 0
  #bits = 0
  #bitCount = 0

  /** `dictionary` is the first history. A block that inflates to more than `maxOutput` is refused. */
  constructor(dictionary: Buffer, maxOutput: number) {
    this.#maxOutput = maxOutput
    this.#output = Buffer.allocUnsafeSlow(dictionary.length + minRoomBytes)
    this.#end = dictionary.copy(this.#output)
  }

  /** What the block says, valid until the next one. Throws a MonitorError if it is malformed; that ends the stream. */
  inflate(block: Buffer): Buffer {
    this.#input = block
    this.#position = 0
    this.#bits = 0
    this.#bitCount = 0
    this.#forget()
    const start = this.#end
    this.#limit = start + this.#maxOutput
    // A sync flush is an empty stored block, which ends on a byte.
    let type = -1
    while (this.#position < block.length || type !== 0) type = this.#block()
    this.#input = Buffer.alloc(0)
    return this.#output.subarray(start, this.#end)
  }

  /** Forgets output that no distance reaches. */
  #forget(): void {
    if (this.#end < 2 * historyBytes) return
    this.#output.copyWithin(0, this.#end - historyBytes, this.#end)
    this.#end = historyBytes
  }

  /** Most connections need a few hundred bytes, so memory grows with need. */
  #need(bytes: number): void {
    const needed = this.#end + bytes
    if (needed > this.#limit) throw malformed('too long')
    if (needed <= this.#output.length) return
    const larger = Buffer.allocUnsafeSlow(needed + Math.min(this.#end, historyBytes / 2))
    this.#output.copy(larger, 0, 0, this.#end)
    this.#output = larger
  }

  #block(): number {
    if (this.#take(1) === 1) throw malformed('the stream ends')
    const type = this.#take(2)
    if (type === 0) this.#stored()
    else if (type === 1) this.#coded((fixedCodes ??= createFixedCodes()))
    else if (type === 2) this.#coded(this.#dynamicCodes())
    else throw malformed('unknown block type')
    return type
  }

  #stored(): void {
    this.#bits = 0
    this.#bitCount = 0
    const [input, at] = [this.#input, this.#position]
    if (at + 4 > input.length) throw malformed('cut')
    const length = input.readUInt16LE(at)
    if (length !== (~input.readUInt16LE(at + 2) & 0xffff)) throw malformed('stored length')
    if (at + 4 + length > input.length) throw malformed('cut')
    this.#need(length)
    input.copy(this.#output, this.#end, at + 4, at + 4 + length)
    this.#end += length
    this.#position = at + 4 + length
  }

  #coded({ literals, distances }: BlockCodes): void {
    for (;;) {
      const symbol = this.#decode(literals)
      if (symbol === endOfBlock) return
      if (symbol < endOfBlock) {
        this.#need(1)
        this.#output[this.#end++] = symbol
      } else this.#copy(symbol - endOfBlock - 1, distances)
    }
  }

  #copy(lengthSymbol: number, distances: Code): void {
    const length = value(lengthBase, lengthSymbol) + this.#take(value(lengthExtra, lengthSymbol))
    const distanceSymbol = this.#decode(distances)
    const distance = value(distanceBase, distanceSymbol) + this.#take(value(distanceExtra, distanceSymbol))
    if (distance > this.#end || distance > historyBytes) throw malformed('distance')
    this.#need(length)
    const output = this.#output
    // Byte by byte: a copy may overlap itself.
    for (let left = length; left > 0; left--) {
      output[this.#end] = output[this.#end - distance] ?? 0
      this.#end++
    }
  }

  /** The next bits, lowest first. */
  #take(count: number): number {
    while (this.#bitCount < count) {
      const byte = this.#input[this.#position++]
      if (byte === undefined) throw malformed('cut')
      this.#bits |= byte << this.#bitCount
      this.#bitCount += 8
    }
    const taken = this.#bits & ((1 << count) - 1)
    this.#bits >>>= count
    this.#bitCount -= count
    return taken
  }

  /** The next symbol: a code's bits come highest first, so one at a time. */
  #decode({ counts, symbols }: Code): number {
    let code = 0
    let first = 0
    let index = 0
    for (let length = 1; length <= maxCodeBits; length++) {
      code |= this.#take(1)
      const count = counts[length] ?? 0
      if (code - count < first) return symbols[index + code - first] ?? 0
      index += count
      first = (first + count) << 1
      code <<= 1
    }
    throw malformed('unknown code')
  }

  #dynamicCodes(): BlockCodes {
    const literals = this.#take(5) + 257
    const distances = this.#take(5) + 1
    const orderLength = this.#take(4) + 4
    if (literals > 286 || distances > 30) throw malformed('too many codes')
    const lengths = new Uint8Array(19)
    for (const symbol of codeLengthOrder.slice(0, orderLength)) lengths[symbol] = this.#take(3)
    const all = this.#codeLengths(createCode(lengths), literals + distances)
    if (all[endOfBlock] === 0) throw malformed('no end of block')
    return {
      literals: createCode(all.subarray(0, literals), true),
      distances: createCode(all.subarray(literals), true),
    }
  }

  #codeLengths(code: Code, total: number): Uint8Array {
    const lengths = new Uint8Array(total)
    for (let i = 0; i < total;) {
      const symbol = this.#decode(code)
      if (symbol < 16) {
        lengths[i++] = symbol
        continue
      }
      if (symbol === 16 && i === 0) throw malformed('nothing to repeat')
      const repeated = symbol === 16 ? (lengths[i - 1] ?? 0) : 0
      const times = symbol === 16 ? 3 + this.#take(2) : symbol === 17 ? 3 + this.#take(3) : 11 + this.#take(7)
      if (i + times > total) throw malformed('too many lengths')
      lengths.fill(repeated, i, i + times)
      i += times
    }
    return lengths
  }
}

/** The code with these lengths by symbol. Only a code of at most one symbol may leave codes unused. */
function createCode(lengths: Uint8Array, mayBeSingle = false): Code {
  const counts = new Uint16Array(maxCodeBits + 1)
  for (const length of lengths) counts[length] = (counts[length] ?? 0) + 1
  let left = 1
  const offsets = new Uint16Array(maxCodeBits + 2)
  for (let length = 1; length <= maxCodeBits; length++) {
    const count = counts[length] ?? 0
    left = 2 * left - count
    if (left < 0) throw malformed('too many codes of a length')
    offsets[length + 1] = (offsets[length] ?? 0) + count
  }
  const single =
    lengths.length - (counts[0] ?? 0) <= 1 && (counts[1] ?? 0) + (counts[0] ?? 0) === lengths.length
  if (left > 0 && !(mayBeSingle && single)) throw malformed('too few codes')
  const symbols = new Uint16Array(lengths.length)
  lengths.forEach((length, symbol) => {
    if (length === 0) return
    const offset = offsets[length] ?? 0
    symbols[offset] = symbol
    offsets[length] = offset + 1
  })
  return { counts, symbols }
}

function createFixedCodes(): BlockCodes {
  const lengths = new Uint8Array(288).fill(8, 0, 144).fill(9, 144, 256).fill(7, 256, 280).fill(8, 280)
  // Two of 32 distance codes never occur, but complete the code.
  return { literals: createCode(lengths), distances: createCode(new Uint8Array(32).fill(5)) }
}

/** An entry of a table that has none for symbols which must not occur. */
function value(table: readonly number[], symbol: number): number {
  const found = table[symbol]
  if (found === undefined) throw malformed('unknown symbol')
  return found
}

function malformed(what: string): MonitorError {
  return new MonitorError('invalid-argument', `inflate: ${what}`)
}
