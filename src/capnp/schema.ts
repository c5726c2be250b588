// What a compiled schema comes down to: where each field lies. Tables of this form are made from proto/*.capnp by
// proto/capnp-table.ts; the codec walks them.

/** What lies in the data section. */
export type ScalarKind = 'bool' | 'uint8' | 'uint16' | 'uint32' | 'int32' | 'uint64' | 'enum'
/** What is pointed to. `pointer` is an AnyPointer: read as it stands, written as `PointerInit`. */
export type PointerKind = 'text' | 'data' | 'struct' | 'list' | 'pointer'
export type Kind = ScalarKind | PointerKind

export interface Type {
  readonly kind: Kind
  /** Of an enum: the names by number. */
  readonly names?: readonly string[]
  readonly struct?: StructTable<unknown>
  /** Of a list. Lists and pointers as elements are not supported. */
  readonly element?: Type
}

export interface Field extends Type {
  readonly name: string
  /** Bits into the data section, or index of the pointer. */
  readonly offset: number
  /** A bool that is true unless set. */
  readonly inverted?: boolean
}

/** A pointer followed: the segment and word where its target begins. */
export interface Pointer {
  readonly kind: 'struct' | 'list' | 'capability'
  readonly segment: Buffer
  readonly word: number
  /** Of a struct, or of each element of a list of structs. */
  readonly dataWords: number
  readonly pointers: number
  /** Of a list: size code and number of elements. Of a capability: `count` is its index. */
  readonly elementSize: number
  readonly count: number
}

/** What an AnyPointer field is written from. */
export type PointerInit =
  | { readonly table: StructTable<unknown>; readonly value: unknown }
  | { readonly capability: number }
  /** Another message of one segment, taken over whole. */
  | { readonly message: Buffer }

/** Bits of each kind in the data section; 0: it lies behind a pointer. */
export const kindBits: Record<Kind, number> = {
  bool: 1,
  uint8: 8,
  uint16: 16,
  uint32: 32,
  int32: 32,
  uint64: 64,
  enum: 16,
  text: 0,
  data: 0,
  struct: 0,
  list: 0,
  pointer: 0,
}

declare const shape: unique symbol

/** The layout of a struct whose values look like T. */
export interface StructTable<out T> {
  readonly name: string
  readonly dataWords: number
  readonly pointers: number
  readonly fields: readonly Field[]
  /**
   * conmon-rs up to 0.8 has one pointer more, at this index. A struct with exactly that many pointers is read so:
   * every writer seen allocates whole structs.
   */
  readonly retiredPointer?: number
  readonly [shape]?: T
}

/** A value to be written: what is left out stays at its default. */
export type Init<T> = T extends Uint8Array | bigint
  ? T
  : T extends Pointer
    ? PointerInit
    : T extends readonly (infer E)[]
      ? readonly Init<E>[]
      : T extends object
        ? { readonly [K in keyof T]?: Init<T[K]> | undefined }
        : T

export interface Method<out P, out R> {
  readonly name: string
  readonly interfaceId: bigint
  readonly ordinal: number
  readonly params: StructTable<P>
  readonly results: StructTable<R>
}

/** M: an object type with one Method per method. */
export interface Interface<M> {
  readonly name: string
  readonly id: bigint
  readonly methods: M
}
