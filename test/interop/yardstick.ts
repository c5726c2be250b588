// The rival: a streaming server on the Go library that containerd and CRI-O serve with.

import { Program, referee } from './programs.ts'
import type { UrlRequest } from './control.ts'

/** A running yardstick, whose containers are those of an OCI runtime's state directory. */
export class Yardstick {
  readonly #program: Program
  /** For the driver's table. */
  readonly control: string

  private constructor(program: Program, control: string) {
    this.#program = program
    this.control = control
  }

  static async start(runtimePath: string, runtimeRoot: string): Promise<Yardstick> {
    const program = new Program(referee('yardstick'), ['--runtime', runtimePath, '--root', runtimeRoot])
    const [line] = await program.until(/\{.*\}\n/)
    return new Yardstick(program, (JSON.parse(line) as { control: string }).control)
  }

  get pid(): number {
    return this.#program.pid
  }

  async url(request: Partial<UrlRequest>): Promise<string> {
    const response = await fetch(`${this.control}/url`, { method: 'POST', body: JSON.stringify(request) })
    const text = (await response.text()).trim()
    if (!response.ok) throw new Error(`yardstick: ${text}`)
    return text
  }

  async stop(): Promise<void> {
    await this.#program.stop()
  }
}
