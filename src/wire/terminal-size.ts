// The resize channel: JSON objects one after the other, cut anywhere (streaming.md §2.8).
//
//   {"Width":81,"Height":25}\n{"Width":82,…

import type { TerminalSize } from '../base/remote-stdio.ts'

/** An object that is longer is no terminal size. */
const maxObjectChars = 4096
/** Nor is more than this at once: a message of megabytes would stall the loop. */
const maxChunkBytes = 64 * 1024
const brace = { open: 0x7b, close: 0x7d }
const quote = 0x22
const backslash = 0x5c

/** Reads terminal sizes. A value that is none is skipped; the first syntax error ends the reading, not the session. */
export class TerminalSizeReader {
  #pending = ''
  #broken = false

  /** The sizes that are complete with this chunk. */
  read(chunk: Buffer): TerminalSize[] {
    if (this.#broken) return []
    if (chunk.length > maxChunkBytes) return this.#breakOff([])
    // Keys and numbers are ASCII; anything else is skipped or broken whatever its encoding.
    this.#pending += chunk.toString('latin1')
    const sizes: TerminalSize[] = []
    let taken = 0
    for (let end = endOfObject(this.#pending, taken); end > 0; end = endOfObject(this.#pending, taken)) {
      const size = parseSize(this.#pending.slice(taken, end))
      if (size === 'broken') return this.#breakOff(sizes)
      if (size !== undefined) sizes.push(size)
      taken = end
    }
    this.#pending = this.#pending.slice(taken)
    if (this.#pending.length > maxObjectChars || /^\s*[^\s{]/.test(this.#pending))
      return this.#breakOff(sizes)
    return sizes
  }

  #breakOff(sizes: TerminalSize[]): TerminalSize[] {
    this.#broken = true
    this.#pending = ''
    return sizes
  }
}

/** Where the first complete object after `from` ends; 0: there is none yet. */
function endOfObject(text: string, from: number): number {
  let depth = 0
  let inString = false
  for (let i = from; i < text.length; i++) {
    const char = text.charCodeAt(i)
    if (inString) {
      if (char === backslash) i++
      else if (char === quote) inString = false
    } else if (char === quote) inString = true
    else if (char === brace.open) depth++
    else if (char === brace.close && --depth <= 0) return i + 1
  }
  return 0
}

/** Undefined: JSON, but no size that a terminal can have. */
function parseSize(text: string): TerminalSize | undefined | 'broken' {
  let value: unknown
  try {
    value = JSON.parse(text)
  } catch {
    return 'broken'
  }
  let width = 0
  let height = 0
  for (const [key, number] of Object.entries(Object(value) as object)) {
    const name = key.toLowerCase()
    if (name === 'width') width = cells(number)
    else if (name === 'height') height = cells(number)
  }
  return width > 0 && height > 0 ? { width, height } : undefined
}

/** A 16-bit number of columns or rows, else 0. */
function cells(value: unknown): number {
  return Number.isInteger(value) && (value as number) > 0 && (value as number) <= 0xffff
    ? (value as number)
    : 0
}
