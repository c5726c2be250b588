// A keeper that does nothing and answers at once, for tests of what the server asks of it.

import type { KeeperClient } from '../../src/keeper/keeper-client.ts'

export class StubKeeper {
  /** `drop container/c1`, in order. */
  readonly asked: string[] = []
  /** Answers `copy` with a socket; undefined: the copy is to end. */
  onCopy: (stream: 0 | 1, fd: number | undefined) => void = () => undefined
  /** Requests that are refused, by their beginning. */
  readonly refused = new Map<string, Error>()

  get client(): KeeperClient {
    return this as unknown as KeeperClient
  }

  hold = (name: string): Promise<void> => this.#answer(`hold ${name}`)
  record = (name: string): Promise<void> => this.#answer(`record ${name}`)
  drop = (name: string): Promise<void> => this.#answer(`drop ${name}`)
  relog = (name: string): Promise<void> => this.#answer(`relog ${name}`)
  claimed = (number: number): Promise<void> => this.#answer(`claimed ${number}`)

  watch = async (pid: number): Promise<boolean> => {
    await this.#answer(`watch ${pid}`)
    return false
  }

  kill = async (pid: number): Promise<boolean> => {
    await this.#answer(`kill ${pid}`)
    return false
  }

  copy = async (name: string, stream: 0 | 1, options: { fd: number } | undefined): Promise<void> => {
    await this.#answer(`${options === undefined ? 'end copy' : 'copy'} ${name} ${stream}`)
    this.onCopy(stream, options?.fd)
  }

  #answer(request: string): Promise<void> {
    this.asked.push(request)
    for (const [beginning, error] of this.refused) {
      if (request.startsWith(beginning)) return Promise.reject(error)
    }
    return Promise.resolve()
  }
}
