// Plain objects → message, by table. One growing segment; large Data is not copied: the caller's buffer becomes a
// segment of its own, reached by a double-far pointer, and must not change until it has been sent.

import { MonitorError } from '../base/errors.ts'
import { headerBytes } from './message-framing.ts'
import type { Field, Init, PointerInit, PointerKind, ScalarKind, StructTable, Type } from './schema.ts'
import { kindBits } from './schema.ts'

/** Data from this size on is not copied. */
const ownSegmentBytes = 32 * 1024
const firstBytes = 512
/** Room for the header of a message of one segment, so that such a message is one buffer. */
const reserved = 8
const emptyStruct = 0xfffffffc

/** The message whose root is `value`, framed, as buffers to be written in this order. */
export function encodeMessage<T>(table: StructTable<T>, value: Init<T>): Buffer[] {
  return new StructBuilder().message(table, value as Record<string, unknown>)
}

class StructBuilder {
  #bytes = Buffer.allocUnsafe(firstBytes)
  #words = 0
  readonly #ownSegments: Buffer[] = []

  message(table: StructTable<unknown>, value: Record<string, unknown>): Buffer[] {
    this.#structPointer(this.#allocate(1), table, value)
    const segment = this.#bytes.subarray(0, reserved + this.#words * 8)
    if (this.#ownSegments.length === 0) {
      segment.writeUInt32LE(0, 0)
      segment.writeUInt32LE(this.#words, 4)
      return [segment]
    }
    return [this.#header(), segment.subarray(reserved), ...this.#ownSegments.flatMap(padded)]
  }

  #header(): Buffer {
    const header = Buffer.alloc(headerBytes(1 + this.#ownSegments.length))
    header.writeUInt32LE(this.#ownSegments.length, 0)
    header.writeUInt32LE(this.#words, 4)
    this.#ownSegments.forEach((bytes, i) => header.writeUInt32LE(Math.ceil(bytes.length / 8), 8 + 4 * i))
    return header
  }

  /** Zeroed words; their index. */
  #allocate(words: number): number {
    const at = this.#words
    this.#words += words
    const end = reserved + this.#words * 8
    if (end > this.#bytes.length) {
      const larger = Buffer.allocUnsafe(Math.max(this.#bytes.length * 2, end))
      this.#bytes.copy(larger, 0, 0, reserved + at * 8)
      this.#bytes = larger
    }
    this.#bytes.fill(0, reserved + at * 8, end)
    return at
  }

  #setWord(word: number, low: number, high: number): void {
    this.#bytes.writeUInt32LE(low >>> 0, reserved + word * 8)
    this.#bytes.writeUInt32LE(high >>> 0, reserved + word * 8 + 4)
  }

  /** Writes at `word` a pointer to `target`; `kind` 0: struct, 1: list. */
  #setPointer(word: number, kind: 0 | 1, target: number, high: number): void {
    this.#setWord(word, ((target - word - 1) << 2) | kind, high)
  }

  #structPointer(word: number, table: StructTable<unknown>, value: Record<string, unknown>): void {
    const size = table.dataWords + table.pointers
    // Not null: "there, and empty" (capnp.md of other writers: C++ and Go tell the two apart).
    if (size === 0) return this.#setWord(word, emptyStruct, 0)
    const at = this.#allocate(size)
    this.#setPointer(word, 0, at, table.dataWords | (table.pointers << 16))
    this.#fields(at, table, value)
  }

  #fields(at: number, table: StructTable<unknown>, value: Record<string, unknown>): void {
    for (const field of table.fields) {
      const fieldValue = value[field.name]
      if (fieldValue === undefined || fieldValue === null) continue
      if (kindBits[field.kind] > 0) this.#scalar(field, fieldValue, at * 64 + field.offset)
      else this.#pointerValue(field, fieldValue, at + table.dataWords + field.offset)
    }
  }

  #pointerValue(type: Type, value: unknown, word: number): void {
    switch (type.kind as PointerKind) {
      case 'text':
        return this.#text(value as string, word)
      case 'data':
        return this.#data(value as Uint8Array, word)
      case 'struct':
        return this.#structPointer(
          word,
          type.struct as StructTable<unknown>,
          value as Record<string, unknown>,
        )
      case 'pointer':
        return this.#anyPointer(value as PointerInit, word)
      case 'list':
        return this.#list(type.element as Type, value as readonly unknown[], word)
    }
  }

  #anyPointer(value: PointerInit, word: number): void {
    if ('capability' in value) return this.#setWord(word, 3, value.capability)
    if ('table' in value) {
      return this.#structPointer(word, value.table, value.value as Record<string, unknown>)
    }
    // A far pointer to the other message's own root pointer, which is its first word.
    this.#setWord(word, 2, this.#ownSegments.push(value.message))
  }

  /** An empty text or data is a null pointer: every reader takes that for empty. */
  #text(value: string, word: number): void {
    const length = Buffer.byteLength(value)
    if (length === 0) return
    const at = this.#allocate(Math.ceil((length + 1) / 8))
    this.#setPointer(word, 1, at, ((length + 1) << 3) | 2)
    this.#bytes.write(value, reserved + at * 8, 'utf8')
  }

  #data(value: Uint8Array, word: number): void {
    const { length } = value
    if (length === 0) return
    if (length >= ownSegmentBytes) return this.#ownSegment(value, word)
    const at = this.#allocate(Math.ceil(length / 8))
    this.#setPointer(word, 1, at, (length << 3) | 2)
    this.#bytes.set(value, reserved + at * 8)
  }

  /** Double far: the landing pad says where the bytes begin and what they are. */
  #ownSegment(value: Uint8Array, word: number): void {
    const pad = this.#allocate(2)
    const segment = this.#ownSegments.push(Buffer.from(value.buffer, value.byteOffset, value.length))
    this.#setWord(word, (pad << 3) | 6, 0)
    this.#setWord(pad, 2, segment)
    this.#setWord(pad + 1, 1, (value.length << 3) | 2)
  }

  #list(element: Type, values: readonly unknown[], word: number): void {
    if (values.length === 0) return
    if (element.kind === 'struct')
      return this.#structList(element.struct as StructTable<unknown>, values, word)
    if (element.kind === 'text' || element.kind === 'data') {
      const at = this.#allocate(values.length)
      this.#setPointer(word, 1, at, (values.length << 3) | 6)
      values.forEach((value, i) => this.#pointerValue(element, value, at + i))
      return
    }
    const bits = kindBits[element.kind]
    const at = this.#allocate(Math.ceil((values.length * bits) / 64))
    this.#setPointer(word, 1, at, (values.length << 3) | (bits === 1 ? 1 : Math.log2(bits) - 1))
    const field = { ...element, name: 'element', offset: 0 }
    values.forEach((value, i) => this.#scalar(field, value, at * 64 + i * bits))
  }

  #structList(table: StructTable<unknown>, values: readonly unknown[], word: number): void {
    const size = table.dataWords + table.pointers
    const at = this.#allocate(1 + values.length * size)
    this.#setPointer(word, 1, at, ((values.length * size) << 3) | 7)
    this.#setWord(at, values.length << 2, table.dataWords | (table.pointers << 16))
    values.forEach((value, i) => this.#fields(at + 1 + i * size, table, value as Record<string, unknown>))
  }

  #scalar(field: Field, value: unknown, bit: number): void {
    const byte = reserved + Math.floor(bit / 8)
    switch (field.kind as ScalarKind) {
      case 'bool':
        if (value !== (field.inverted === true))
          this.#bytes[byte] = (this.#bytes[byte] ?? 0) | (1 << (bit % 8))
        return
      case 'uint64':
        this.#bytes.writeBigUInt64LE(BigInt.asUintN(64, inRange(field, value as bigint, 64n)), byte)
        return
      case 'enum':
        this.#bytes.writeUInt16LE(enumNumber(field, value as string), byte)
        return
      case 'int32':
        this.#bytes.writeInt32LE(integerIn(field, value as number, -0x80000000, 0x7fffffff), byte)
        return
      case 'uint8':
      case 'uint16':
      case 'uint32': {
        const bits = kindBits[field.kind]
        this.#bytes.writeUIntLE(integerIn(field, value as number, 0, 2 ** bits - 1), byte, bits / 8)
      }
    }
  }
}

function padded(bytes: Buffer): Buffer[] {
  const rest = bytes.length % 8
  return rest === 0 ? [bytes] : [bytes, Buffer.alloc(8 - rest)]
}

function integerIn(field: Field, value: number, from: number, to: number): number {
  if (Number.isInteger(value) && value >= from && value <= to) return value
  throw new MonitorError(
    'invalid-argument',
    `${field.name} is ${value}: not an integer from ${from} to ${to}`,
  )
}

function inRange(field: Field, value: bigint, bits: bigint): bigint {
  if (value >= 0n && value < 1n << bits) return value
  throw new MonitorError('invalid-argument', `${field.name} is ${value}: not from 0 to 2^${bits} - 1`)
}

function enumNumber(field: Field, name: string): number {
  const number = field.names?.indexOf(name) ?? -1
  if (number >= 0) return number
  throw new MonitorError(
    'invalid-argument',
    `${field.name} is ${JSON.stringify(name)}: not one of ${field.names?.join(', ')}`,
  )
}
