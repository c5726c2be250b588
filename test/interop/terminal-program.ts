// A program on a terminal of its own, as a person has it: crictl and kubectl with -t want one.

import type { TestContext } from 'node:test'
import { spawn } from 'node-pty'
import type { IPty } from 'node-pty'

/** Runs beside a test and is killed at its end, should it still run; what it prints is kept. */
export class TerminalProgram {
  readonly #pty: IPty
  readonly #name: string
  #shown = ''
  #running = true
  #watcher: (() => void) | undefined
  /** Its exit code. */
  readonly exited: Promise<number>

  constructor(
    test: TestContext,
    command: string,
    args: readonly string[],
    env: Readonly<Record<string, string>>,
  ) {
    this.#name = [command, ...args].join(' ')
    this.#pty = spawn(command, [...args], {
      name: 'xterm',
      cols: 80,
      rows: 24,
      env: { ...process.env, ...env },
    })
    this.#pty.onData((text) => {
      this.#shown += text
      this.#watcher?.()
    })
    this.exited = new Promise((resolve) => {
      this.#pty.onExit(({ exitCode }) => {
        this.#running = false
        resolve(exitCode)
      })
    })
    test.after(async () => {
      if (this.#running) this.#pty.kill('SIGKILL')
      await this.exited
    })
  }

  get shown(): string {
    return this.#shown
  }

  type(text: string): void {
    this.#pty.write(text)
  }

  resize(columns: number, rows: number): void {
    this.#pty.resize(columns, rows)
  }

  /** Waits until what it printed matches. One wait at a time. */
  async until(pattern: RegExp, timeoutMs = 15_000): Promise<void> {
    await new Promise<void>((resolve, reject) => {
      const timer = setTimeout(() => {
        this.#watcher = undefined
        reject(new Error(`${this.#name}: no ${String(pattern)} in ${JSON.stringify(this.#shown)}`))
      }, timeoutMs)
      this.#watcher = () => {
        if (!pattern.test(this.#shown)) return
        clearTimeout(timer)
        this.#watcher = undefined
        resolve()
      }
      this.#watcher()
    })
  }
}
