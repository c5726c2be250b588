// One descriptor that is watched for reading, for writing, or both, and closed once. libuv allows one watch per
// descriptor, and a terminal is read and written by different owners: this is what they share.

import { closeSync } from 'node:fs'
import { poll, pollSet, unpoll } from './addon.ts'
import type { PollEvents, PollHandle } from './addon.ts'

/** Owns a descriptor. Nothing is watched until a callback is set; after `close` nothing calls back. */
export class WatchedFd {
  readonly fd: number
  #handle: PollHandle | undefined
  #events: PollEvents = 0
  #onReadable: (() => void) | undefined
  #onWritable: (() => void) | undefined
  #open = true
  readonly #onClosed: (() => void)[] = []

  constructor(fd: number) {
    this.fd = fd
  }

  /** False after `close`. */
  get open(): boolean {
    return this.#open
  }

  /** Calls back while bytes, the end or an error can be read; undefined: pauses. */
  watchReadable(callback: (() => void) | undefined): void {
    this.#onReadable = callback
    this.#apply()
  }

  /** Calls back while something can be written, or writing has an error; undefined: pauses. */
  watchWritable(callback: (() => void) | undefined): void {
    this.#onWritable = callback
    this.#apply()
  }

  /** Calls back once when the descriptor has been closed. */
  onClosed(callback: () => void): void {
    if (this.#open) this.#onClosed.push(callback)
    else callback()
  }

  /** Closes the descriptor. Only the first call does something. */
  close(): void {
    if (this.#stop()) closeSync(this.fd)
    for (const callback of this.#onClosed.splice(0)) callback()
  }

  /** Watches no more and gives the descriptor back, open. */
  release(): void {
    this.#stop()
    this.#onClosed.length = 0
  }

  #stop(): boolean {
    if (!this.#open) return false
    this.#open = false
    this.#onReadable = undefined
    this.#onWritable = undefined
    if (this.#handle !== undefined) unpoll(this.#handle)
    return true
  }

  #apply(): void {
    const wanted = ((this.#onReadable === undefined ? 0 : 1) |
      (this.#onWritable === undefined ? 0 : 2)) as PollEvents
    if (!this.#open || wanted === this.#events) return
    this.#events = wanted
    this.#handle ??= poll(this.fd, (status, events) => this.#ready(status, events))
    pollSet(this.#handle, wanted)
  }

  #ready(status: number, events: number): void {
    // An error has stopped the watch: who reads or writes now gets it. If nobody does, the watch goes on where wanted.
    const failed = status < 0
    if (failed) this.#events = 0
    if (failed || (events & 1) !== 0) this.#onReadable?.()
    if (failed || (events & 2) !== 0) this.#onWritable?.()
    if (failed) this.#apply()
  }
}
