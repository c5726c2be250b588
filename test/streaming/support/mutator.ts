// Mutates bytes, the same way for the same seed.

export class Mutator {
  #state: number

  constructor(seed: number) {
    this.#state = seed
  }

  /** A number below `below`. */
  number(below: number): number {
    // mulberry32
    this.#state = (this.#state + 0x6d2b79f5) | 0
    let t = Math.imul(this.#state ^ (this.#state >>> 15), 1 | this.#state)
    t = (t + Math.imul(t ^ (t >>> 7), 61 | t)) ^ t
    return ((t ^ (t >>> 14)) >>> 0) % below
  }

  pick<T>(from: readonly T[]): T {
    return from[this.number(from.length)] as T
  }

  bytes(length: number): Buffer {
    return Buffer.from(Array.from({ length }, () => this.number(256)))
  }

  /** One to four changes: bits, bytes, lengths, cuts, repetitions, insertions. */
  mutate(input: Buffer): Buffer {
    let bytes: Buffer = Buffer.from(input)
    for (let changes = 1 + this.number(4); changes > 0; changes--) bytes = this.#change(bytes)
    return bytes
  }

  #change(bytes: Buffer): Buffer {
    const at = this.number(bytes.length + 1)
    const end = Math.min(bytes.length, at + 1 + this.number(40))
    switch (this.number(7)) {
      case 0:
        if (at < bytes.length) bytes[at] = (bytes[at] ?? 0) ^ (1 << this.number(8))
        return bytes
      case 1:
        if (at < bytes.length) bytes[at] = this.pick([0, 1, 3, 0x7f, 0x80, 0xff, this.number(256)])
        return bytes
      case 2:
        return bytes.subarray(0, at)
      case 3:
        return Buffer.concat([bytes.subarray(0, at), bytes.subarray(end)])
      case 4:
        return Buffer.concat([bytes.subarray(0, end), bytes.subarray(at)])
      case 5:
        return Buffer.concat([bytes.subarray(0, at), this.bytes(1 + this.number(16)), bytes.subarray(at)])
      default:
        if (at + 4 <= bytes.length) bytes.writeUInt32BE(this.pick([0, 1, 0x7fffffff, 0xffffffff, 65_536]), at)
        return bytes
    }
  }
}
