// One attached client of a container: its sinks in the fan-out, its input in the merge, and why its session ends.

import { MonitorError } from '../base/errors.ts'
import { deferred } from '../base/lifetime.ts'
import type { ByteSink, RemoteStdio } from '../base/remote-stdio.ts'
import type { StdinMerge } from '../stdio/stdin-merge.ts'
import type { ContainerOutput } from './container-output.ts'

export interface AttachedClientOptions {
  readonly output: ContainerOutput
  /** Undefined: the container has no stdin; what the client sends is thrown away. */
  readonly stdin: StdinMerge | undefined
  /** The end of this client's input, or the client's own, closes the container's stdin (stdinOnce). */
  readonly closesStdin: boolean
  /** The end of this client's input ends its session, with success. */
  readonly detachesAtEof: boolean
}

export class AttachedClient {
  readonly #remote: RemoteStdio
  readonly #options: AttachedClientOptions
  readonly #over = deferred<void>()

  constructor(remote: RemoteStdio, options: AttachedClientOptions) {
    this.#remote = remote
    this.#options = options
  }

  /** Until the container has exited, the client detached or vanished; rejects when the client was dropped. */
  async run(containerExited: Promise<unknown>): Promise<void> {
    const { stdout, stderr, gone } = this.#remote
    const { output } = this.#options
    const vanished = (): void => {
      if (this.#options.closesStdin && this.#remote.connectStdin !== undefined) this.#options.stdin?.close()
      this.#over.resolve()
    }
    const fail = (error: MonitorError): void => this.#over.reject(error)
    gone.addEventListener('abort', vanished, { once: true })
    if (gone.aborted) vanished()
    try {
      if (stdout !== undefined) await output.add(0, stdout, fail)
      if (stderr !== undefined) await output.add(1, stderr, fail)
      this.#connectStdin()
      // The exit is reported when the streams have ended, or left-over writers were waited for long enough.
      await Promise.race([this.#over.promise, containerExited])
    } finally {
      gone.removeEventListener('abort', vanished)
      if (stdout !== undefined) output.remove(0, stdout)
      if (stderr !== undefined) output.remove(1, stderr)
    }
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
    if (this.#options.closesStdin) inner?.end()
    if (this.#options.closesStdin) this.#options.stdin?.closeWhenWritten()
    if (this.#options.detachesAtEof) this.#over.resolve()
  }
}
