// The terminal in front of which a person sits: raw mode while a session lasts, its size, and its settings back on
// every way out, signals included.

import { spawnSync } from 'node:child_process'
import type { ReadStream, WriteStream } from 'node:tty'
import type { TerminalSize } from '../base/remote-stdio.ts'

const deadly = ['SIGINT', 'SIGTERM', 'SIGHUP', 'SIGQUIT'] as const

/** A terminal in raw mode, until `restore`. */
export class LocalTerminal {
  readonly #input: ReadStream
  readonly #output: WriteStream | undefined
  readonly #onResize: (size: TerminalSize) => void
  #restored = false

  /** `output` is where the size is read; undefined where neither output is a terminal. */
  constructor(input: ReadStream, output: WriteStream | undefined, onResize: (size: TerminalSize) => void) {
    this.#input = input
    this.#output = output
    this.#onResize = onResize
    this.#makeRaw()
    process.on('exit', this.#restore)
    process.on('SIGWINCH', this.#resized)
    process.on('SIGCONT', this.#continued)
    for (const signal of deadly) process.on(signal, this.#die)
  }

  get size(): TerminalSize | undefined {
    // getWindowSize() throws when the terminal is gone; the properties are kept up to date by Node.
    const { columns = 0, rows = 0 } = this.#output ?? {}
    return columns > 0 && rows > 0 ? { width: columns, height: rows } : undefined
  }

  /** Gives the terminal back as it was. */
  restore(): void {
    this.#restore()
  }

  #makeRaw(): void {
    this.#input.setRawMode(true)
    // Node's raw mode makes CR LF of every LF; programs that paint the screen mean LF alone. Without stty it stays so.
    spawnSync('stty', ['-opost'], { stdio: [this.#input, 'ignore', 'ignore'] })
  }

  readonly #restore = (): void => {
    if (this.#restored) return
    this.#restored = true
    process.off('exit', this.#restore)
    process.off('SIGWINCH', this.#resized)
    process.off('SIGCONT', this.#continued)
    for (const signal of deadly) process.off(signal, this.#die)
    this.#input.setRawMode(false)
  }

  /** Ends as the signal would have ended us, the terminal restored. */
  readonly #die = (signal: NodeJS.Signals): void => {
    this.#restore()
    process.kill(process.pid, signal)
  }

  /** Another program may have changed the settings while we were stopped; off and on sets ours again. */
  readonly #continued = (): void => {
    this.#input.setRawMode(false)
    this.#makeRaw()
    this.#resized()
  }

  readonly #resized = (): void => {
    // Node updates columns in its own listener of the same signal, which may come after this one.
    setImmediate(() => {
      if (!this.#restored && this.size !== undefined) this.#onResize(this.size)
    })
  }
}
