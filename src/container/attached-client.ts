// One attached client of a container: its sinks in the fan-out, its input in the merge, and why its session ends.

import { deferred, type Deferred } from '../base/lifetime.ts'
import type { ByteSink, RemoteStdio } from '../base/remote-stdio.ts'
import type { StdinMerge } from '../stdio/stdin-merge.ts'
import type { ContainerOutput } from './container-output.ts'

/** What the end of a client's input means (streaming.md §8 rule 46). */
export type InputEnd = 'closes-stdin' | 'detaches' | 'nothing'

export interface AttachedClientOptions {
  readonly output: ContainerOutput
  /** Undefined: the container has no stdin; what the client sends is thrown away. */
  readonly stdin: StdinMerge | undefined
  /** Whether there is a second stream. */
  readonly stderr: boolean
  /** With `closes-stdin` the client's own end closes the container's stdin, too (stdinOnce). */
  readonly inputEnd: InputEnd
}

export class AttachedClient {
  readonly #remote: RemoteStdio
  readonly #options: AttachedClientOptions
  readonly #over = deferred<void>()

  constructor(remote: RemoteStdio, options: AttachedClientOptions) {
    this.#remote = remote
    this.#options = options
    // It may be dropped before anybody waits.
    this.#over.promise.catch(() => undefined)
  }

  /**
   * Until the container has exited and all its output is with the client, or the client detached or vanished; rejects
   * when the client was dropped.
   */
  async run(containerExited: Promise<unknown>): Promise<void> {
    const { stdout, gone } = this.#remote
    const { output } = this.#options
    const stderr = this.#options.stderr ? this.#remote.stderr : undefined
    const vanished = (): void => {
      if (this.#options.inputEnd === 'closes-stdin' && this.#remote.connectStdin !== undefined) {
        this.#options.stdin?.closeWhenWritten()
      }
      this.#over.resolve()
    }
    gone.addEventListener('abort', vanished, { once: true })
    if (gone.aborted) vanished()
    try {
      const ends = await Promise.all([this.#receive(0, stdout), this.#receive(1, stderr)])
      this.#connectStdin()
      const delivered = containerExited.then(() => Promise.all(ends.map((end) => end.promise)))
      await Promise.race([this.#over.promise, delivered])
    } finally {
      gone.removeEventListener('abort', vanished)
      if (stdout !== undefined) output.remove(0, stdout)
      if (stderr !== undefined) output.remove(1, stderr)
    }
  }

  /** Resolves when the stream is connected; its `promise` when the stream's last byte is in the sink. */
  async #receive(stream: 0 | 1, sink: ByteSink | undefined): Promise<Deferred<void>> {
    const end = deferred<void>()
    if (sink === undefined) end.resolve()
    else {
      await this.#options.output.add(stream, sink, {
        ended: () => end.resolve(),
        dropped: (error) => this.#over.reject(error),
      })
    }
    return end
  }

  #connectStdin(): void {
    const { connectStdin } = this.#remote
    if (connectStdin === undefined) return
    const inner = this.#options.stdin?.connect()
    connectStdin(inner === undefined ? this.#discard() : this.#watchEnd(inner))
  }

  #watchEnd(inner: ByteSink): ByteSink {
    const ended = (): void => this.#inputEnded(inner)
    return {
      write: (chunk) => inner.write(chunk),
      end: ended,
      get buffered() {
        return inner.buffered
      },
      get onDrain() {
        return inner.onDrain
      },
      set onDrain(listener) {
        inner.onDrain = listener
      },
    }
  }

  #discard(): ByteSink {
    return { write: () => true, end: () => this.#inputEnded(undefined), buffered: 0, onDrain: undefined }
  }

  #inputEnded(inner: ByteSink | undefined): void {
    switch (this.#options.inputEnd) {
      case 'closes-stdin':
        inner?.end()
        this.#options.stdin?.closeWhenWritten()
        return
      case 'detaches':
        this.#over.resolve()
        return
      case 'nothing':
        return
    }
  }
}
