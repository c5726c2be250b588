// A RemoteStdio for tests: the other end of an exec or attach, by hand.

import type { ByteSink, RemoteStdio, TerminalSize } from '../../src/base/remote-stdio.ts'
import { TestSink } from './test-sinks.ts'

/** Records output, sends input as fast as it is taken. */
export class TestClient implements RemoteStdio {
  readonly stdout: TestSink
  readonly stderr: TestSink
  readonly connectStdin: ((sink: ByteSink) => void) | undefined
  stdin: ByteSink | undefined
  /** The most input that waited at once. */
  mostPending = 0
  readonly #gone = new AbortController()
  #resized: ((size: TerminalSize) => void) | undefined

  constructor(options: { stdin?: boolean; stdout?: TestSink } = {}) {
    this.stdout = options.stdout ?? new TestSink()
    this.stderr = new TestSink()
    this.connectStdin = options.stdin === false ? undefined : (sink) => (this.stdin = sink)
  }

  get gone(): AbortSignal {
    return this.#gone.signal
  }

  onResize(listener: (size: TerminalSize) => void): void {
    this.#resized = listener
  }

  resize(width: number, height: number): void {
    this.#resized?.({ width, height })
  }

  vanish(): void {
    this.stdout.gone = true
    this.stderr.gone = true
    this.#gone.abort()
  }

  /** Sends all of it in pieces, each when the one before was taken; then, unless told otherwise, the end. */
  async send(input: Buffer | string, options: { end?: boolean; piece?: number } = {}): Promise<void> {
    const bytes = Buffer.from(input as Buffer)
    const sink = this.stdin
    if (sink === undefined) throw new Error('stdin is not connected')
    const piece = options.piece ?? 65_536
    for (let at = 0; at < bytes.length; at += piece) {
      // A copy of its own, as from a socket: a sink that passes it on at once leaves the memory free to change.
      const chunk = Buffer.from(bytes.subarray(at, at + piece))
      const drained = new Promise<void>((resolve) => (sink.onDrain = resolve))
      if (sink.write(chunk)) chunk.fill(0)
      else {
        this.mostPending = Math.max(this.mostPending, sink.buffered)
        await drained
      }
    }
    if (options.end !== false) sink.end()
  }
}
