// Exit statuses by pid: the keeper reaps and keeps them, this waits for those that belong to our processes.

import { MonitorError } from '../base/errors.ts'
import { deferred, type Deferred } from '../base/lifetime.ts'
import type { KeeperClient, KeeperExit } from '../keeper/keeper-client.ts'

export class ExitTable {
  readonly #keeper: KeeperClient
  readonly #waiting = new Map<number, Deferred<KeeperExit>>()
  /** Watched statuses that came (by replay) before anybody asked. */
  readonly #early = new Map<number, KeeperExit>()

  constructor(keeper: KeeperClient) {
    this.#keeper = keeper
  }

  /** A status from the keeper. */
  exited(exit: KeeperExit): void {
    if (!exit.watched) return
    const waiter = this.#waiting.get(exit.pid)
    if (waiter === undefined) {
      this.#early.set(exit.pid, exit)
      return
    }
    this.#waiting.delete(exit.pid)
    waiter.resolve(exit)
  }

  /**
   * The status of a process the keeper parents, once it has one. Claim it with `keeper.claimed` when everything that
   * depends on it is done. Rejects when the keeper knows no such process: its status is lost, which is never success.
   */
  async wait(pid: number): Promise<KeeperExit> {
    const early = this.#early.get(pid)
    if (early !== undefined) {
      this.#early.delete(pid)
      return early
    }
    const waiter = deferred<KeeperExit>()
    this.#waiting.set(pid, waiter)
    if (!(await this.#keeper.watch(pid)) && this.#waiting.get(pid) === waiter) {
      this.#waiting.delete(pid)
      throw new MonitorError('internal', `watch process ${pid}: exit status lost`)
    }
    return waiter.promise
  }

  /** After a restore: gives up statuses that nobody asked for, of processes whose records are gone. */
  async claimStrays(): Promise<void> {
    const strays = [...this.#early.values()]
    this.#early.clear()
    await Promise.all(strays.map((exit) => this.#keeper.claimed(exit.number)))
  }
}
