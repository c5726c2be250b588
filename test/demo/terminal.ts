// A person at a terminal: a command inside a real pseudo-terminal, typed into and read. The terminal is made by
// util-linux's `script`, which every Debian has, so the demo needs no package for it.

import { spawn, type ChildProcess } from 'node:child_process'
import { once } from 'node:events'

/** One command in its own terminal. */
export class Terminal {
  readonly #child: ChildProcess
  readonly #exit: Promise<unknown>
  #screen = ''
  #looked = 0
  #waiting: (() => void) | undefined

  constructor(command: readonly string[], env: NodeJS.ProcessEnv) {
    const line = `stty rows 24 cols 80; exec ${command.map(quote).join(' ')}`
    const args = ['--quiet', '--flush', '--return', '--command', line, '/dev/null']
    this.#child = spawn('script', args, { env, stdio: ['pipe', 'pipe', 'ignore'] })
    this.#child.stdout?.setEncoding('utf8').on('data', (text: string) => {
      this.#screen += text
      this.#waiting?.()
    })
    // Typing into a terminal that has just gone is no error of the demo.
    this.#child.stdin?.on('error', () => {})
    this.#exit = once(this.#child, 'close').finally(() => this.#waiting?.())
    this.#exit.catch(() => {})
  }

  get pid(): number {
    return this.#child.pid ?? 0
  }

  type(text: string): void {
    this.#child.stdin?.write(text)
  }

  /** Waits until what has not been looked at yet matches; resolves to the match. */
  async expect(pattern: RegExp, milliseconds = 10_000): Promise<RegExpExecArray> {
    const deadline = Date.now() + milliseconds
    for (;;) {
      const match = pattern.exec(this.#screen.slice(this.#looked))
      if (match !== null) {
        this.#looked += match.index + match[0].length
        return match
      }
      if (this.#child.exitCode !== null || this.#child.signalCode !== null || Date.now() >= deadline)
        throw new Error(
          `the terminal does not show ${pattern}; its last words: ${JSON.stringify(this.#screen.slice(-300))}`,
        )
      await new Promise<void>((resolve) => {
        const timer = setTimeout(resolve, deadline - Date.now())
        this.#waiting = () => {
          clearTimeout(timer)
          resolve()
        }
      })
    }
  }

  /** The exit code of the command, once it has ended. */
  async exitCode(milliseconds = 10_000): Promise<number> {
    const timer = setTimeout(() => this.kill(), milliseconds)
    await this.#exit
    clearTimeout(timer)
    return this.#child.exitCode ?? -1
  }

  kill(): void {
    this.#child.stdin?.destroy()
    this.#child.kill('SIGTERM')
  }
}

function quote(word: string): string {
  return `'${word.replaceAll("'", `'\\''`)}'`
}
