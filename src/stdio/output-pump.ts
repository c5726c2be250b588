// Reads one descriptor to its end and gives every byte to one sink, at the sink's pace. Nothing is copied and nothing
// is read ahead: a sink that is full stops the reading, and so the process that writes.
// Watching and read(2) instead of a stream: libuv's streams lose the last output of a terminal at its hang-up, and
// their buffers cannot change hands.

import { MonitorError } from '../base/errors.ts'
import { deferred } from '../base/lifetime.ts'
import { READ_BYTES } from '../base/limits.ts'
import type { ByteSink } from '../base/remote-stdio.ts'
import { bytesReadable, read } from '../native/addon.ts'
import { WatchedFd } from '../native/watched-fd.ts'

/** Reads per wake-up. A terminal gives at most 4 KiB each, whatever lies in it. */
const TERMINAL_READS = 16
const PIPE_READS = 4
/** With less room than this the buffer is replaced. */
const LEAST_ROOM = 16 * 1024

/** The read buffer of the process. What a sink has kept is cut off its front, and never used again. */
let buffer: Buffer | undefined

function readBuffer(): Buffer {
  buffer ??= Buffer.allocUnsafeSlow(READ_BYTES)
  return buffer
}

function cutOff(room: Buffer, bytes: number): void {
  buffer = room.length - bytes >= LEAST_ROOM ? room.subarray(bytes) : undefined
}

/** One output stream of a process, on its way to a sink. */
export class OutputPump {
  /**
   * Resolves when no bytes will come any more, all were given to the sink, and the sink was told the end. A pipe is
   * closed then; a terminal stays open until `takeRest` or `close`.
   */
  readonly ended: Promise<void>
  readonly #source: WatchedFd
  readonly #terminal: boolean
  readonly #settled = deferred<void>()
  #sink: ByteSink | undefined
  #state: 'reading' | 'rest' | 'ended' = 'reading'
  /** The sink keeps a chunk and has not drained yet, or is just being written to. */
  #full = false
  #writing = false
  #rest: Buffer[] = []

  /** Owns the descriptor and reads at once; without a sink what comes is thrown away. */
  constructor(options: { fd: number | WatchedFd; terminal: boolean; sink: ByteSink | undefined }) {
    this.ended = this.#settled.promise
    this.#source = typeof options.fd === 'number' ? new WatchedFd(options.fd) : options.fd
    this.#terminal = options.terminal
    try {
      this.setSink(options.sink)
    } catch (error) {
      this.#source.close()
      throw MonitorError.within('read output', error)
    }
    // Somebody else who shares the descriptor (a terminal) has hung up.
    this.#source.onClosed(() => {
      if (this.#state === 'reading') this.#finish()
    })
  }

  /** What comes from now on goes there. The sink before gets no end. */
  setSink(sink: ByteSink | undefined): void {
    if (this.#sink !== undefined) this.#sink.onDrain = undefined
    this.#sink = sink
    this.#full = false
    if (this.#state === 'ended') {
      sink?.end()
      return
    }
    if (sink !== undefined) sink.onDrain = () => this.#drained(sink)
    if (!this.#writing) this.#advance()
  }

  /**
   * Takes what lies in the pipe now, at most its capacity, closes it, and delivers that however long the sink needs.
   * Who writes later gets EPIPE. For when the process is over.
   */
  takeRest(): void {
    if (this.#state === 'reading') {
      this.#state = 'rest'
      this.#rest = this.#readRest()
    }
    this.#source.close()
    if (!this.#writing) this.#advance()
  }

  /** Stops and closes now; what has not been delivered is lost. The sink is told the end. */
  close(): void {
    this.#rest = []
    this.#finish()
    this.#source.close()
  }

  #drained(sink: ByteSink): void {
    if (this.#sink !== sink) return
    this.#full = false
    if (!this.#writing) this.#advance()
  }

  /** Goes on where the sink allows it. */
  #advance(): void {
    while (this.#state === 'rest' && !this.#full) {
      const chunk = this.#rest.shift()
      if (chunk === undefined) this.#finish()
      else this.#deliver(chunk)
    }
    if (this.#state === 'reading') this.#source.watchReadable(this.#full ? undefined : this.#onReadable)
  }

  readonly #onReadable = (): void => {
    for (let i = this.#terminal ? TERMINAL_READS : PIPE_READS; i > 0 && this.#mayRead(); i--) {
      const room = readBuffer()
      const length = this.#read(room)
      if (length < 0) return
      if (length === 0) {
        this.#finish()
        return
      }
      if (this.#deliver(room.subarray(0, length))) cutOff(room, length)
      else if (length === room.length && length < READ_BYTES) buffer = undefined
      // A pipe that gave less than was asked for is empty now; the next wake-up says when it is not.
      if (!this.#terminal && length < room.length) break
    }
    this.#advance()
  }

  #mayRead(): boolean {
    return this.#state === 'reading' && !this.#full
  }

  /** True if the sink keeps the chunk. */
  #deliver(chunk: Buffer): boolean {
    const sink = this.#sink
    if (sink === undefined) return false
    // A sink may drain, be replaced, or close us from inside its write.
    this.#full = true
    this.#writing = true
    const kept = !sink.write(chunk)
    this.#writing = false
    if (!kept && this.#sink === sink) this.#full = false
    return kept
  }

  /** An error ends the output like its end: EIO of a terminal is one already, and a pipe has none of its own. */
  #read(room: Buffer): number {
    try {
      return read(this.#source.fd, room)
    } catch {
      return 0
    }
  }

  #readRest(): Buffer[] {
    if (!this.#source.open) return []
    const rest: Buffer[] = []
    // A terminal does not say how much lies in it.
    let left = this.#terminal ? READ_BYTES : bytesReadable(this.#source.fd)
    while (left > 0) {
      const room = Buffer.allocUnsafeSlow(this.#terminal ? Math.min(left, LEAST_ROOM) : left)
      const length = this.#read(room)
      if (length <= 0) break
      rest.push(room.subarray(0, length))
      left -= length
    }
    return rest
  }

  #finish(): void {
    if (this.#state === 'ended') return
    this.#state = 'ended'
    // EIO says that nobody has the terminal open, not that the program is over: many close their ends some time before
    // they exit. Closing the master then would kill them with SIGHUP and turn their success into a failure.
    if (this.#terminal) this.#source.watchReadable(undefined)
    else this.#source.close()
    if (this.#sink !== undefined) {
      this.#sink.onDrain = undefined
      this.#sink.end()
    }
    this.#settled.resolve()
  }
}
