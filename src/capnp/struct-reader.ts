// Message → plain objects, by table. Every bound is checked before anything is made, and a budget on words and on
// values bounds what one message may cost, however it points at itself.
//
//   pointer word    ┌ low 32 bits ───────────────┬ high 32 bits ──────────────┐
//   struct  (0)     │ word offset 30 bits │ 00   │ data words 16 │ pointers 16│
//   list    (1)     │ word offset 30 bits │ 01   │ size code 3   │ count 29   │
//   far     (2)     │ pad word 29 │ double │ 10  │ segment                    │
//   other   (3)     │ 0 …           11           │ capability index           │

import { isUtf8 } from 'node:buffer'
import { MonitorError } from '../base/errors.ts'
import { MAX_MESSAGE_VALUES } from '../base/limits.ts'
import type { Field, Pointer, PointerKind, ScalarKind, StructTable, Type } from './schema.ts'
import { kindBits } from './schema.ts'

const elementBits = [0, 1, 8, 16, 32, 64, 64]
const pointerElements = 6
const structElements = 7
const emptyData = Buffer.alloc(0)

/** Reads one message. */
export class StructReader {
  readonly #segments: readonly Buffer[]
  #wordsLeft: number
  #valuesLeft = MAX_MESSAGE_VALUES

  constructor(segments: readonly Buffer[]) {
    this.#segments = segments
    const words = segments.reduce((sum, segment) => sum + segment.length / 8, 0)
    // Each object is read once and each pointer costs a word, so no honest message needs more.
    this.#wordsLeft = 2 * words + 64
  }

  /** The message's root pointer. */
  root(): Pointer | undefined {
    return this.#follow(this.#segments[0] ?? emptyData, 0)
  }

  /** The struct behind a pointer; a null pointer gives all defaults. */
  struct<T>(table: StructTable<T>, pointer: Pointer | undefined): T {
    if (pointer !== undefined && pointer.kind !== 'struct') throw malformed(`${table.name} is not a struct`)
    this.#countValues(1)
    const retired = table.retiredPointer
    const old = retired !== undefined && pointer?.pointers === table.pointers + 1
    const value: Record<string, unknown> = {}
    for (const field of table.fields) {
      value[field.name] =
        kindBits[field.kind] === 0
          ? this.#pointerField(
              field,
              pointer,
              old && field.offset >= retired ? field.offset + 1 : field.offset,
            )
          : readScalar(field, pointer)
    }
    return value as T
  }

  #pointerField(field: Field, pointer: Pointer | undefined, index: number): unknown {
    const target =
      pointer !== undefined && index < pointer.pointers
        ? this.#follow(pointer.segment, pointer.word + pointer.dataWords + index)
        : undefined
    return this.#value(field, target, field.name)
  }

  #value(type: Type, target: Pointer | undefined, name: string): unknown {
    switch (type.kind as PointerKind) {
      case 'text':
        return this.#text(target, name)
      case 'data':
        return target === undefined ? emptyData : this.#data(target, name)
      case 'struct':
        return this.struct(type.struct as StructTable<unknown>, target)
      case 'list':
        return target === undefined ? [] : this.#list(type.element as Type, target, name)
      case 'pointer':
        break
    }
    return target
  }

  #text(target: Pointer | undefined, name: string): string {
    if (target === undefined) return ''
    this.#checkBytes(target, name)
    const { segment, word, count } = target
    const start = word * 8
    const end = start + count - 1
    if (count === 0 || segment[end] !== 0) throw malformed(`${name} is a text without its NUL`)
    const text = segment.toString('utf8', start, end)
    // Replacement characters would make another path of it.
    if (text.includes('\ufffd') && !isUtf8(segment.subarray(start, end))) {
      throw new MonitorError('invalid-argument', `${name} is not valid UTF-8`)
    }
    return text
  }

  #data(target: Pointer, name: string): Buffer {
    this.#checkBytes(target, name)
    return target.segment.subarray(target.word * 8, target.word * 8 + target.count)
  }

  #checkBytes(target: Pointer, name: string): void {
    if (target.kind !== 'list' || target.elementSize !== 2) throw malformed(`${name} is not a list of bytes`)
    this.#countValues(1)
  }

  #list(element: Type, target: Pointer, name: string): unknown[] {
    if (target.kind !== 'list') throw malformed(`${name} is not a list`)
    this.#countValues(target.count)
    if (element.kind === 'struct') return this.#structList(element, target, name)
    if (element.kind === 'text' || element.kind === 'data') {
      if (target.elementSize !== pointerElements) throw malformed(`${name} is not a list of pointers`)
      return Array.from({ length: target.count }, (_, i) =>
        this.#value(element, this.#follow(target.segment, target.word + i), name),
      )
    }
    const bits = elementBits[target.elementSize] ?? 0
    if (target.elementSize === pointerElements || bits !== kindBits[element.kind]) {
      throw malformed(`${name} is not a list of ${element.kind}`)
    }
    const field = { ...element, name, offset: 0 }
    return Array.from({ length: target.count }, (_, i) =>
      scalarAt(field, target.segment, target.word * 64 + i * bits),
    )
  }

  #structList(element: Type, target: Pointer, name: string): unknown[] {
    if (target.elementSize !== structElements) throw malformed(`${name} is not a list of structs`)
    const { segment, word, dataWords, pointers } = target
    return Array.from({ length: target.count }, (_, i) =>
      this.struct(element.struct as StructTable<unknown>, {
        kind: 'struct',
        segment,
        word: word + i * (dataWords + pointers),
        dataWords,
        pointers,
        elementSize: 0,
        count: 0,
      }),
    )
  }

  /** What the pointer word at `word` points to; undefined when it is null. */
  #follow(segment: Buffer, word: number): Pointer | undefined {
    const [low, high] = pointerAt(segment, word)
    if (low === 0 && high === 0) return undefined
    if ((low & 3) !== 2) return this.#target(segment, word + 1 + (low >> 2), low, high)
    this.#charge(1)
    const pad = low >>> 3
    const padSegment = this.#segment(high)
    const [padLow, padHigh] = pointerAt(padSegment, pad)
    if ((low & 4) === 0) {
      if (padLow === 0 && padHigh === 0) return undefined
      if ((padLow & 3) === 2) throw malformed('a far pointer points to a far pointer')
      return this.#target(padSegment, pad + 1 + (padLow >> 2), padLow, padHigh)
    }
    // Double far: the pad is a far pointer to the content and a tag that describes it.
    const [tagLow, tagHigh] = pointerAt(padSegment, pad + 1)
    if ((padLow & 7) !== 2 || tagLow >>> 2 !== 0) throw malformed('a double-far landing pad is wrong')
    return this.#target(this.#segment(padHigh), padLow >>> 3, tagLow, tagHigh)
  }

  #target(segment: Buffer, word: number, low: number, high: number): Pointer {
    switch (low & 3) {
      case 0: {
        const dataWords = high & 0xffff
        const pointers = high >>> 16
        this.#reach(segment, word, dataWords + pointers)
        return { kind: 'struct', segment, word, dataWords, pointers, elementSize: 0, count: 0 }
      }
      case 1:
        return (high & 7) === structElements
          ? this.#structListTarget(segment, word, high >>> 3)
          : this.#scalarListTarget(segment, word, high)
      default:
        if (low !== 3) throw malformed('a pointer has an unknown kind')
        return { kind: 'capability', segment, word, dataWords: 0, pointers: 0, elementSize: 0, count: high }
    }
  }

  #scalarListTarget(segment: Buffer, word: number, high: number): Pointer {
    const elementSize = high & 7
    const count = high >>> 3
    this.#reach(segment, word, Math.ceil((count * (elementBits[elementSize] ?? 0)) / 64))
    return { kind: 'list', segment, word, dataWords: 0, pointers: 0, elementSize, count }
  }

  /** A list of structs begins with a tag word that looks like a struct pointer and counts the elements. */
  #structListTarget(segment: Buffer, word: number, words: number): Pointer {
    this.#reach(segment, word, words + 1)
    const [low, high] = pointerAt(segment, word)
    const dataWords = high & 0xffff
    const pointers = high >>> 16
    const count = low >>> 2
    if ((low & 3) !== 0 || count * (dataWords + pointers) > words) throw malformed('a list tag is wrong')
    return { kind: 'list', segment, word: word + 1, dataWords, pointers, elementSize: structElements, count }
  }

  #segment(index: number): Buffer {
    const segment = this.#segments[index]
    if (segment === undefined) throw malformed('a far pointer names a segment that is not there')
    return segment
  }

  /** Checks that `words` from `word` on lie in the segment, and charges them. */
  #reach(segment: Buffer, word: number, words: number): void {
    if (word < 0 || (word + words) * 8 > segment.length) throw malformed('a pointer leaves its segment')
    this.#charge(1 + words)
  }

  #charge(words: number): void {
    this.#wordsLeft -= words
    if (this.#wordsLeft < 0) throw malformed('its objects overlap')
  }

  #countValues(values: number): void {
    this.#valuesLeft -= values
    if (this.#valuesLeft < 0) throw malformed(`it has more than ${MAX_MESSAGE_VALUES} values`)
  }
}

function pointerAt(segment: Buffer, word: number): [low: number, high: number] {
  if (word < 0 || word * 8 + 8 > segment.length) throw malformed('a pointer lies outside its segment')
  return [segment.readUInt32LE(word * 8), segment.readUInt32LE(word * 8 + 4)]
}

/** A field that an older writer's struct does not reach has its default. */
function readScalar(field: Field, pointer: Pointer | undefined): unknown {
  if (pointer !== undefined && field.offset + kindBits[field.kind] <= pointer.dataWords * 64) {
    return scalarAt(field, pointer.segment, pointer.word * 64 + field.offset)
  }
  if (field.kind === 'bool') return field.inverted === true
  if (field.kind === 'uint64') return 0n
  return field.kind === 'enum' ? field.names?.[0] : 0
}

function scalarAt(field: Field, segment: Buffer, bit: number): boolean | number | bigint | string {
  const byte = Math.floor(bit / 8)
  switch (field.kind as ScalarKind) {
    case 'bool':
      return (((segment[byte] ?? 0) >> (bit % 8)) & 1) === (field.inverted === true ? 0 : 1)
    case 'uint8':
      return segment[byte] ?? 0
    case 'uint16':
      return segment.readUInt16LE(byte)
    case 'uint32':
      return segment.readUInt32LE(byte)
    case 'int32':
      return segment.readInt32LE(byte)
    case 'uint64':
      return segment.readBigUInt64LE(byte)
    case 'enum':
      break
  }
  return enumName(field, segment.readUInt16LE(byte))
}

function enumName(field: Field, number: number): string {
  const name = field.names?.[number]
  if (name !== undefined) return name
  throw new MonitorError('invalid-argument', `${field.name} has the unknown value ${number}`)
}

function malformed(what: string): MonitorError {
  return new MonitorError('invalid-argument', `malformed message: ${what}`)
}
