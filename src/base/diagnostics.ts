// The monitor's own messages, one line each. Never container output, command lines, tokens or environments.

export type DiagnosticLevel = 'debug' | 'info' | 'warn' | 'error'

const levels: readonly DiagnosticLevel[] = ['debug', 'info', 'warn', 'error']

/** Writes lines `level: message` to one place, from a level on. */
export class Diagnostics {
  readonly #write: (line: string) => void
  readonly #from: number

  constructor(write: (line: string) => void, from: DiagnosticLevel | 'off' = 'info') {
    this.#write = write
    this.#from = from === 'off' ? levels.length : levels.indexOf(from)
  }

  debug(message: string): void {
    this.#say('debug', message)
  }

  info(message: string): void {
    this.#say('info', message)
  }

  warn(message: string): void {
    this.#say('warn', message)
  }

  error(message: string): void {
    this.#say('error', message)
  }

  #say(level: DiagnosticLevel, message: string): void {
    if (levels.indexOf(level) >= this.#from) this.#write(`${level}: ${message.replaceAll('\n', '\\n')}\n`)
  }
}
