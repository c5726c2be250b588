// Starts child-server.ts and talks to it.

import { fork, type ChildProcess, type StdioOptions } from 'node:child_process'
import { once } from 'node:events'
import { join } from 'node:path'
import type { Session } from '../../../src/streaming/session.ts'
import type { Measure, Order } from './child-server.ts'

export class ChildServer {
  readonly process: ChildProcess
  #last: Promise<unknown> = Promise.resolve()

  constructor(context: { after(close: () => Promise<void>): void }, fds: readonly number[] = []) {
    const stdio: StdioOptions = ['ignore', 'inherit', 'inherit', 'ipc', ...fds]
    const script = join(import.meta.dirname, 'child-server.js')
    this.process = fork(script, { stdio, execArgv: ['--expose-gc'] })
    const exited = once(this.process, 'exit')
    context.after(async () => {
      if (this.process.connected) this.process.disconnect()
      await exited
    })
  }

  async adopt(fd: number): Promise<void> {
    await this.#order({ do: 'adopt', fd })
  }

  async issue(sessions: readonly Session[]): Promise<string[]> {
    return (await this.#order({ do: 'issue', sessions })) as string[]
  }

  async measure(): Promise<Measure> {
    return (await this.#order({ do: 'measure' })) as Measure
  }

  /** One order at a time. */
  async #order(order: Order): Promise<unknown> {
    const answered = this.#last.then(async () => {
      this.process.send(order)
      const [answer] = (await once(this.process, 'message')) as [unknown]
      return answer
    })
    this.#last = answered.catch(() => {})
    return await answered
  }
}
