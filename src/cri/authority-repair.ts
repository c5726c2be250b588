// HTTP/2 from clients that put the path of the unix socket, or nothing, into `:authority`, or leave it out (cases B78).
// Node's HTTP/2 answers these with RST_STREAM, so the field is repaired on the way in. Nothing else is touched.
//
//   frame:  length u24 | type u8 | flags u8 | stream u31 | payload          HEADERS: [pad u8] [priority 5] block [padding]
//   field (HPACK):  1 index7 | 01 index6 | 001 size5 | 000n index4, then [name] value;  string: H length7 | bytes
//
// A replacement has the length of the original once decoded, because both ends' dynamic tables must stay the same size.

const preface = Buffer.from('PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n')
const headerBytes = 9
const HEADERS = 1
const END_HEADERS = 0x4
const PADDED = 0x8
const PRIORITY = 0x20
/** SETTINGS_MAX_FRAME_SIZE of a server that says nothing. */
const maxFrameBytes = 16_384
/** `:authority` in HPACK's static table. */
const AUTHORITY = 1
const SLASH = 0x2f
const DOT = 0x2e
/** Both have six bits in HPACK's Huffman code: one can stand where the other stood. */
const HUFFMAN_SLASH = 0x18
const HUFFMAN_DOT = 0x17
/** Takes the place of an empty `:authority`: a field of the same size that nobody reads. */
const placeholder = Buffer.from('x-no-autho')
const nothing = Buffer.alloc(0)

/** How many Huffman codes there are of each length. The code is canonical, so this is enough to find their ends. */
const codesOfLength = new Map([
  [5, 10],
  [6, 26],
  [7, 32],
  [8, 6],
  [10, 5],
  [11, 3],
  [12, 2],
  [13, 6],
  [14, 2],
  [15, 3],
  [19, 3],
  [20, 8],
  [21, 13],
  [22, 26],
  [23, 29],
  [24, 12],
  [25, 4],
  [26, 15],
  [27, 19],
  [28, 29],
  [30, 4],
])

/** `:authority: localhost`, in no table. */
const localhost = Buffer.concat([Buffer.from([AUTHORITY, 9]), Buffer.from('localhost')])

/** One connection's bytes from the client, passed on as they come; only HEADERS frames wait until they are whole. */
export class AuthorityRepair {
  #state: 'preface' | 'header' | 'payload' | 'foreign' = 'preface'
  #waiting: Buffer = nothing
  /** Bytes of a frame of another type that are still to pass. */
  #passing = 0
  /** Whether this client names no authority; known from its first request on. */
  #nameless: boolean | undefined

  /** The bytes to hand on, now. */
  push(chunk: Buffer): Buffer[] {
    const out: Buffer[] = []
    let rest = this.#waiting.length === 0 ? chunk : Buffer.concat([this.#waiting, chunk])
    for (;;) {
      const length = this.#take(rest)
      if (length === 0) break
      const piece = rest.subarray(0, length)
      out.push(this.#state === 'header' && isHeaders(piece) ? this.#repairFrame(piece) : piece)
      this.#advance(piece)
      rest = rest.subarray(length)
    }
    // A copy: the chunk's memory is the socket's.
    this.#waiting = rest.length === 0 ? nothing : Buffer.from(rest)
    return out
  }

  /** How many of these bytes can go on now. */
  #take(bytes: Buffer): number {
    if (bytes.length === 0) return 0
    if (this.#state === 'foreign') return bytes.length
    if (this.#state === 'payload') return Math.min(this.#passing, bytes.length)
    if (this.#state === 'preface') {
      const common = Math.min(preface.length, bytes.length)
      if (!bytes.subarray(0, common).equals(preface.subarray(0, common))) return bytes.length
      return common === preface.length ? common : 0
    }
    if (bytes.length < headerBytes) return 0
    if (!isHeaders(bytes)) return headerBytes
    const whole = headerBytes + bytes.readUIntBE(0, 3)
    return bytes.length < whole ? 0 : whole
  }

  #advance(piece: Buffer): void {
    if (this.#state === 'preface') {
      this.#state = piece.equals(preface) ? 'header' : 'foreign'
    } else if (this.#state === 'payload') {
      this.#passing -= piece.length
      if (this.#passing === 0) this.#state = 'header'
    } else if (this.#state === 'header' && !isHeaders(piece)) {
      this.#passing = piece.readUIntBE(0, 3)
      if (this.#passing > 0) this.#state = 'payload'
    }
  }

  /** The frame with a good `:authority`. A block that goes on in another frame, or is malformed, is left alone. */
  #repairFrame(original: Buffer): Buffer {
    const flags = original[4] ?? 0
    if ((flags & END_HEADERS) === 0) return original
    const frame = Buffer.from(original)
    const padding = (flags & PADDED) !== 0 ? (frame[headerBytes] ?? 0) : 0
    const start = headerBytes + ((flags & PADDED) !== 0 ? 1 : 0) + ((flags & PRIORITY) !== 0 ? 5 : 0)
    const end = frame.length - padding
    if (start > end) return original
    const block = frame.subarray(start, end)
    const found = findAuthority(block)
    if (found === 'malformed') return original
    const named = found !== undefined && found.value.length > 0
    if (named) replaceSlashes(found.value, found.huffman)
    // Later requests may refer to the first one's field in a way that cannot be seen here.
    this.#nameless ??= !named
    if (named || !this.#nameless) return frame
    const at = start + sizeUpdatesEnd(block)
    const [begin, over, instead] =
      found === undefined
        ? [at, at, nothing]
        : [start + found.begin, start + found.end, insteadOfEmpty(block[found.begin])]
    const parts = [frame.subarray(0, at), localhost, frame.subarray(at, begin), instead, frame.subarray(over)]
    const changed = Buffer.concat(parts)
    changed.writeUIntBE(changed.length - headerBytes, 0, 3)
    return changed
  }
}

/** The first `:authority` of a block, where it can be seen without the tables. */
function findAuthority(
  block: Buffer,
): { begin: number; end: number; value: Buffer; huffman: boolean } | undefined | 'malformed' {
  const reader = new HpackReader(block)
  while (reader.at < block.length) {
    const begin = reader.at
    const field = reader.field()
    if (field === undefined) return 'malformed'
    if (field.name === AUTHORITY) return { begin, end: reader.at, value: field.value, huffman: field.huffman }
  }
  return undefined
}

/** Changes of the table's size must stay at the beginning. */
function sizeUpdatesEnd(block: Buffer): number {
  const reader = new HpackReader(block)
  while (((block[reader.at] ?? 0) & 0xe0) === 0x20) if (reader.field() === undefined) break
  return reader.at
}

/**
 * Where the empty field was put into the tables of both ends, another of the same size takes its place. It is no
 * pseudo-header, so this works where `:authority` is the last of them, as in Go's clients.
 */
function insteadOfEmpty(first = 0): Buffer {
  if ((first & 0xc0) !== 0x40) return nothing
  return Buffer.concat([Buffer.from([0x40, placeholder.length]), placeholder, Buffer.from([0])])
}

/** Frames that are too long are refused later, whatever they hold: they need not wait. */
function isHeaders(frame: Buffer): boolean {
  return frame[3] === HEADERS && frame.readUIntBE(0, 3) <= maxFrameBytes
}

function replaceSlashes(value: Buffer, huffman: boolean): void {
  if (huffman) replaceHuffmanSlashes(value)
  else for (let at = value.indexOf(SLASH); at >= 0; at = value.indexOf(SLASH, at)) value[at] = DOT
}

/** Steps over HPACK fields without decoding them. */
class HpackReader {
  readonly #block: Buffer
  at = 0

  constructor(block: Buffer) {
    this.#block = block
  }

  /** The next field: the index of its name (0 for none) and its raw value. Undefined when it is malformed. */
  field(): { name: number; value: Buffer; huffman: boolean } | undefined {
    const first = this.#block[this.at] ?? 0
    if ((first & 0x80) !== 0) return named(this.#integer(7))
    if ((first & 0xe0) === 0x20) return named(this.#integer(5) === undefined ? undefined : 0)
    const name = this.#integer((first & 0x40) !== 0 ? 6 : 4)
    if (name === undefined) return undefined
    if (name === 0 && this.#string() === undefined) return undefined
    const value = this.#string()
    return value && { name, ...value }
  }

  #string(): { value: Buffer; huffman: boolean } | undefined {
    const huffman = ((this.#block[this.at] ?? 0) & 0x80) !== 0
    const length = this.#integer(7)
    if (length === undefined || this.at + length > this.#block.length) return undefined
    const value = this.#block.subarray(this.at, this.at + length)
    this.at += length
    return { value, huffman }
  }

  #integer(prefixBits: number): number | undefined {
    if (this.at >= this.#block.length) return undefined
    const most = (1 << prefixBits) - 1
    let value = (this.#block[this.at++] ?? 0) & most
    if (value < most) return value
    for (let shift = 0; shift < 28; shift += 7) {
      const byte = this.#block[this.at++]
      if (byte === undefined) return undefined
      value += (byte & 0x7f) << shift
      if ((byte & 0x80) === 0) return value
    }
    return undefined
  }
}

/** A field that stands in a table as a whole. In the static one, `:authority` has an empty value. */
function named(name: number | undefined): { name: number; value: Buffer; huffman: false } | undefined {
  return name === undefined ? undefined : { name, value: Buffer.alloc(0), huffman: false }
}

/** Finds each code's end and turns the slashes into dots, bit by bit, in place. */
function replaceHuffmanSlashes(value: Buffer): void {
  const bits = value.length * 8
  let begin = 0
  while (begin < bits) {
    const found = codeAt(value, begin)
    if (found === undefined) return
    if (found.length === 6 && found.code === HUFFMAN_SLASH) writeBits(value, begin, HUFFMAN_DOT, 6)
    begin += found.length
  }
}

/** The canonical code that begins at this bit; undefined in the padding at the end. */
function codeAt(value: Buffer, begin: number): { code: number; length: number } | undefined {
  let code = 0
  let firstCode = 0
  for (let length = 1; length <= 30 && begin + length <= value.length * 8; length++) {
    code = code * 2 + bitAt(value, begin + length - 1)
    const count = codesOfLength.get(length) ?? 0
    if (code - firstCode < count) return { code, length }
    firstCode = (firstCode + count) * 2
  }
  return undefined
}

function bitAt(value: Buffer, bit: number): number {
  return ((value[bit >> 3] ?? 0) >> (7 - (bit & 7))) & 1
}

function writeBits(value: Buffer, begin: number, code: number, length: number): void {
  for (let i = 0; i < length; i++) {
    const at = begin + i
    const mask = 0x80 >> (at & 7)
    const byte = value[at >> 3] ?? 0
    value[at >> 3] = ((code >> (length - 1 - i)) & 1) === 1 ? byte | mask : byte & ~mask
  }
}
