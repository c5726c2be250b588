// TCP servers inside a network namespace, for tests: one process that enters it and listens as it is told.
// The program part is pod-servers-main.ts.

import { spawn, type ChildProcess } from 'node:child_process'
import { once } from 'node:events'
import { join } from 'node:path'

export interface PodListener {
  readonly port: number
  readonly host?: string
  readonly does: PodBehaviour
}

/**
 * What a server does with a connection: echo; reset it at once; answer without reading, and leave; read to the end, then
 * answer late; send 1 MiB, end its side and count what still comes; tell that count; send 4 MiB slowly; answer late
 * whatever comes; say who it is.
 */
export type PodBehaviour =
  | 'echo'
  | 'reset'
  | 'answer-unread'
  | 'answer-end'
  | 'send-first'
  | 'tell'
  | 'download'
  | 'answer-late'
  | 'greet'

export class PodServers {
  readonly #child: ChildProcess

  private constructor(child: ChildProcess) {
    this.#child = child
  }

  /** Resolves when all of them listen. */
  static async start(netnsPath: string, listeners: readonly PodListener[]): Promise<PodServers> {
    const program = join(import.meta.dirname, 'pod-servers-main.js')
    const args = [`--net=${netnsPath}`, process.execPath, program, JSON.stringify(listeners)]
    const child = spawn('nsenter', args, { stdio: ['ignore', 'pipe', 'inherit'] })
    const [first] = (await Promise.race([once(child.stdout, 'data'), once(child, 'exit')])) as [unknown]
    if (!(first instanceof Buffer)) throw new Error(`the pod's servers ended with ${String(first)}`)
    return new PodServers(child)
  }

  async close(): Promise<void> {
    const exited = once(this.#child, 'exit')
    this.#child.kill('SIGKILL')
    await exited
  }
}
