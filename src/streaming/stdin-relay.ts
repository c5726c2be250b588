// One client's input on its way to a process: kept until somebody takes it, bounded by holding the client back.

import { MAX_PENDING_STDIN_BYTES } from '../base/limits.ts'
import type { ByteSink } from '../base/remote-stdio.ts'
import { ChunkQueue } from './chunk-queue.ts'

/** Input comes in by push() and end(), and leaves to the sink that connect() is given. */
export class StdinRelay {
  readonly #hold: (held: boolean) => void
  readonly #queue = new ChunkQueue()
  #sink: ByteSink | undefined
  #waiting = false
  #held = false
  #ended = false
  #discarding = false

  /** `hold` is called with true when the client must stop sending, with false when it may go on. */
  constructor(hold: (held: boolean) => void) {
    this.#hold = hold
  }

  /** Takes a chunk; its memory is never reused by the caller. */
  push(chunk: Buffer): void {
    if (this.#ended || this.#discarding) return
    if (this.#sink !== undefined && !this.#waiting) {
      this.#waiting = !this.#sink.write(chunk)
      return
    }
    this.#queue.push(chunk)
    if (this.#queue.bytes > MAX_PENDING_STDIN_BYTES) this.#setHeld(true)
  }

  /** The client's end of input. What comes later is ignored. */
  end(): void {
    if (this.#ended) return
    this.#ended = true
    if (this.#queue.bytes === 0) this.#endSink()
  }

  /** Gives the input to a process. */
  connect(sink: ByteSink): void {
    if (this.#discarding) return
    this.#sink = sink
    sink.onDrain = () => this.#flush()
    this.#flush()
  }

  /** The session is over: input is thrown away, and the client is never held back again. */
  discard(): void {
    this.#discarding = true
    this.#queue.takeAll()
    if (this.#sink !== undefined) this.#sink.onDrain = undefined
    this.#sink = undefined
    this.#setHeld(false)
  }

  #flush(): void {
    const sink = this.#sink
    if (sink === undefined) return
    this.#waiting = false
    for (const chunk of this.#queue.takeAll()) if (!sink.write(chunk)) this.#waiting = true
    this.#setHeld(false)
    if (this.#ended) this.#endSink()
  }

  /** The sink itself delivers what it has kept before its end. */
  #endSink(): void {
    if (this.#sink !== undefined) this.#sink.onDrain = undefined
    this.#sink?.end()
    this.#sink = undefined
  }

  #setHeld(held: boolean): void {
    if (this.#held === held) return
    this.#held = held
    this.#hold(held)
  }
}
