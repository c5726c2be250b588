// Input of any number of writers into one pipe or terminal: whole chunks in the order they came, each writer held back
// while its own chunks wait. A process that does not read costs nothing but what its writers may have pending.

import type { ByteSink } from '../base/remote-stdio.ts'
import { isHungUp, setNonblock, write } from '../native/addon.ts'
import { WatchedFd } from '../native/watched-fd.ts'

/** Chunks written per wake-up, so that others have their turn. */
const TURN = 16

interface Pending {
  readonly writer: Writer
  readonly chunk: Buffer
  offset: number
}

export interface StdinMergeOptions {
  /** A WatchedFd is shared with the output of a terminal. */
  readonly fd: number | WatchedFd
  /** A terminal's descriptor stays open, for its output and its size; that of a pipe is closed with the merge. */
  readonly terminal: boolean
  /**
   * Called once, however it came to that: who holds a copy of the descriptor must drop it then, or the process never
   * sees the end of its input.
   */
  readonly onClosed?: () => void
}

/** The one end of a process's input. */
export class StdinMerge {
  readonly #target: WatchedFd
  readonly #options: StdinMergeOptions
  /** From #head on. */
  #queue: Pending[] = []
  #head = 0
  #ending = false
  #closed = false

  constructor(options: StdinMergeOptions) {
    this.#options = options
    this.#target = typeof options.fd === 'number' ? new WatchedFd(options.fd) : options.fd
    setNonblock(this.#target.fd)
    this.#target.onClosed(() => this.close())
  }

  get closed(): boolean {
    return this.#closed
  }

  /** A sink for one writer. `onEnded` is called when the writer has ended and its last byte is written (or thrown away). */
  connect(onEnded?: () => void): ByteSink {
    return new Writer((writer, chunk) => this.#write(writer, chunk), onEnded)
  }

  /** Takes no more; closes when everything taken so far is written. */
  closeWhenWritten(): void {
    this.#ending = true
    if (this.#head === this.#queue.length) this.close()
  }

  /** Closes now. What has not been written is lost; writers may go on and are not told. */
  close(): void {
    if (this.#closed) return
    this.#closed = true
    this.#letGo()
    this.#options.onClosed?.()
    this.#discard()
  }

  /** What waits is lost, and its writers have room again. */
  #discard(): void {
    const waiting = new Set(this.#queue.slice(this.#head).map(({ writer }) => writer))
    this.#queue = []
    this.#head = 0
    for (const writer of waiting) writer.written(writer.buffered)
  }

  #letGo(): void {
    if (!this.#options.terminal) this.#target.close()
    else if (typeof this.#options.fd === 'number') this.#target.release()
    else this.#target.watchWritable(undefined)
  }

  /** False: the chunk is kept. */
  #write(writer: Writer, chunk: Buffer): boolean {
    if (this.#closed || this.#ending || chunk.length === 0) return true
    const idle = this.#head === this.#queue.length
    const offset = idle ? this.#writeNow(chunk, 0) : 0
    if (offset === chunk.length || this.#closed) return true
    writer.buffered += chunk.length - offset
    this.#queue.push({ writer, chunk, offset })
    if (idle) this.#target.watchWritable(this.#flush)
    return false
  }

  readonly #flush = (): void => {
    for (let i = 0; i < TURN; i++) {
      const pending = this.#queue[this.#head]
      if (pending === undefined) break
      const written = this.#writeNow(pending.chunk, pending.offset)
      if (this.#closed) return
      // A terminal that nobody has open takes some input and then no more, but is reported ready for ever.
      if (written === 0 && isHungUp(this.#target.fd)) {
        this.#discard()
        break
      }
      pending.offset += written
      const done = pending.offset === pending.chunk.length
      if (done) this.#shift()
      // May end, close, or write again.
      pending.writer.written(written)
      if (!done || this.#closed) break
    }
    if (this.#closed || this.#head < this.#queue.length) return
    if (this.#ending) this.close()
    else this.#target.watchWritable(undefined)
  }

  /** Bytes written, 0 if there is no room. A reader that is gone is the quiet end of input. */
  #writeNow(chunk: Buffer, offset: number): number {
    try {
      return Math.max(0, write(this.#target.fd, chunk, offset))
    } catch {
      // A terminal (EIO) may be opened again by its processes: only this input is lost.
      if (this.#options.terminal) return chunk.length - offset
      this.close()
      return 0
    }
  }

  #shift(): void {
    this.#head++
    if (this.#head === this.#queue.length || this.#head > 1024) {
      this.#queue = this.#queue.slice(this.#head)
      this.#head = 0
    }
  }
}

class Writer implements ByteSink {
  buffered = 0
  onDrain: (() => void) | undefined
  readonly #write: (writer: Writer, chunk: Buffer) => boolean
  readonly #onEnded: (() => void) | undefined
  #ended = false

  constructor(write: (writer: Writer, chunk: Buffer) => boolean, onEnded: (() => void) | undefined) {
    this.#write = write
    this.#onEnded = onEnded
  }

  /** After its end a writer has nothing to say. */
  write(chunk: Buffer): boolean {
    return this.#ended || this.#write(this, chunk)
  }

  end(): void {
    if (this.#ended) return
    this.#ended = true
    if (this.buffered === 0) this.#onEnded?.()
  }

  /** Some of the bytes that were kept are on their way, or lost. */
  written(bytes: number): void {
    this.buffered -= bytes
    if (bytes === 0 || this.buffered > 0) return
    if (this.#ended) this.#onEnded?.()
    else this.onDrain?.()
  }
}
