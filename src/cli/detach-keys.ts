// Finds the detach sequence in what a person types (cases B34). A key that may begin the sequence is held back for
// 50 ms at most, or until the next key, and always delivered in order; after that the sequence still counts.

import { DETACH_HOLD_MS } from '../base/limits.ts'
import { UsageError } from './command-line.ts'

/** `ctrl-p,ctrl-q` or single characters, as docker and kubectl spell it; empty: no detaching. */
export function parseDetachKeys(text: string): Buffer {
  if (text === '') return Buffer.alloc(0)
  const bytes = text.split(',').map((key) => {
    const control = /^ctrl-([a-z@[\\\]^_])$/i.exec(key)?.[1]
    if (control !== undefined) return control.toUpperCase().charCodeAt(0) & 0x1f
    if (/^[\x20-\x7e]$/.test(key)) return key.charCodeAt(0)
    throw new UsageError(
      `--detach-keys: ${JSON.stringify(key)} is no key: ctrl-a to ctrl-z, or one character`,
    )
  })
  return Buffer.from(bytes)
}

/** Passes keys on until the sequence was typed; then calls `onDetach` once and swallows the rest. */
export class DetachKeys {
  readonly #keys: Buffer
  readonly #deliver: (bytes: Buffer) => void
  readonly #onDetach: () => void
  /** Keys of the sequence seen so far, and how many of them have been delivered already. */
  #seen = 0
  #delivered = 0
  #timer: NodeJS.Timeout | undefined
  #detached = false

  constructor(keys: Buffer, deliver: (bytes: Buffer) => void, onDetach: () => void) {
    this.#keys = keys
    this.#deliver = deliver
    this.#onDetach = onDetach
  }

  /** What was typed. */
  write(typed: Buffer): void {
    if (this.#detached) return
    if (this.#keys.length === 0) {
      this.#deliver(typed)
      return
    }
    this.#stopTimer()
    const out: Buffer[] = []
    let from = 0
    for (let at = 0; at < typed.length; at++) {
      if (this.#seen > 0 && typed[at] !== this.#keys[this.#seen]) {
        // What was held back turns out to be ordinary input; this key may begin the sequence anew.
        out.push(this.#held())
        this.#seen = 0
        this.#delivered = 0
      }
      if (typed[at] !== this.#keys[this.#seen]) continue
      if (this.#seen === 0) out.push(typed.subarray(from, at))
      this.#seen++
      from = at + 1
      if (this.#seen === this.#keys.length) {
        this.#detached = true
        this.#pass(out)
        this.#onDetach()
        return
      }
    }
    out.push(typed.subarray(from))
    this.#pass(out)
    if (this.#seen > this.#delivered) this.#timer = setTimeout(() => this.flush(), DETACH_HOLD_MS)
  }

  /** Delivers what is held back; the sequence may still be completed. */
  flush(): void {
    this.#stopTimer()
    const held = this.#held()
    this.#delivered = this.#seen
    if (!this.#detached) this.#pass([held])
  }

  #held(): Buffer {
    return this.#keys.subarray(this.#delivered, this.#seen)
  }

  #pass(parts: readonly Buffer[]): void {
    const bytes = Buffer.concat(parts)
    if (bytes.length > 0) this.#deliver(bytes)
  }

  #stopTimer(): void {
    clearTimeout(this.#timer)
    this.#timer = undefined
  }
}
