// One output stream to any number of clients. Every client gets every byte from its first on, in order; one that is too
// slow holds the others up for a moment and is then dropped, alone and with an error.

import { MonitorError } from '../base/errors.ts'
import { MAX_ATTACH_BUFFER_BYTES, STALL_LIMIT_MS } from '../base/limits.ts'
import type { ByteSink } from '../base/remote-stdio.ts'

/** Chunks that a client may keep, whatever their size: a chunk of one byte costs a hundred. */
const MAX_KEPT_CHUNKS = 4096

interface Client {
  readonly sink: ByteSink
  readonly onDropped: (error: MonitorError) => void
  /** Chunks kept since the client was last empty. */
  kept: number
  /** Set while the client is full: what it had then, and the timer of its drop. */
  stall: { readonly buffered: number; timer: NodeJS.Timeout } | undefined
}

/**
 * A sink made of sinks. Chunks are shared, not copied. `onDrain` may be called inside `write`, before it returns false:
 * the chunk is kept, and the writer may go on at once.
 */
export class Fanout implements ByteSink {
  onDrain: (() => void) | undefined
  readonly #clients = new Set<Client>()
  #stalls = 0
  #ended = false

  get size(): number {
    return this.#clients.size
  }

  /** What the fullest client keeps. */
  get buffered(): number {
    let most = 0
    for (const { sink } of this.#clients) most = Math.max(most, sink.buffered)
    return most
  }

  /**
   * From the next chunk on `sink` gets everything. A dropped sink gets no end: `onDropped` fails the session. The
   * function returned removes it.
   */
  add(sink: ByteSink, onDropped: (error: MonitorError) => void): () => void {
    if (this.#ended) {
      sink.end()
      return () => undefined
    }
    const client: Client = { sink, onDropped, kept: 0, stall: undefined }
    sink.onDrain = () => {
      client.kept = 0
      this.#release(client)
    }
    this.#clients.add(client)
    return () => this.#remove(client)
  }

  write(chunk: Buffer): boolean {
    let kept = false
    for (const client of this.#clients) {
      if (client.sink.write(chunk)) continue
      kept = true
      client.kept++
      if (client.sink.buffered >= MAX_ATTACH_BUFFER_BYTES || client.kept >= MAX_KEPT_CHUNKS)
        this.#hold(client)
    }
    if (kept && this.#stalls === 0) this.onDrain?.()
    return !kept
  }

  /** Each client flushes on its own. */
  end(): void {
    if (this.#ended) return
    this.#ended = true
    const clients = [...this.#clients]
    for (const client of clients) this.#remove(client)
    for (const { sink } of clients) sink.end()
  }

  #hold(client: Client): void {
    if (client.stall !== undefined || !this.#clients.has(client)) return
    // A turn of the loop between timer and verdict: what a busy loop has not read yet must not count against the client.
    const timer = setTimeout(() => setImmediate(() => this.#judge(client)), STALL_LIMIT_MS)
    client.stall = { buffered: client.sink.buffered, timer }
    this.#stalls++
  }

  /** Half of it gone in time is a slow client; less is one that does not read. */
  #judge(client: Client): void {
    if (client.stall === undefined) return
    const pending = client.sink.buffered
    if (pending <= client.stall.buffered / 2) {
      client.kept = 0
      this.#release(client)
      return
    }
    this.#remove(client)
    client.onDropped(
      new MonitorError(
        'resource-exhausted',
        `drop client: it did not read its output for ${STALL_LIMIT_MS} ms while ${pending} bytes were pending`,
      ),
    )
  }

  #remove(client: Client): void {
    if (!this.#clients.delete(client)) return
    client.sink.onDrain = undefined
    this.#release(client)
  }

  #release(client: Client): void {
    if (client.stall === undefined) return
    clearTimeout(client.stall.timer)
    client.stall = undefined
    this.#stalls--
    if (this.#stalls === 0) this.onDrain?.()
  }
}
