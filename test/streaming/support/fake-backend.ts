// A backend without containers: its commands run in this process, on the sinks that a session gives them.

import { connect, type Socket } from 'node:net'
import { MonitorError } from '../../../src/base/errors.ts'
import { deferred, type Deferred } from '../../../src/base/lifetime.ts'
import type { ByteSink, ExitStatus, RemoteStdio, TerminalSize } from '../../../src/base/remote-stdio.ts'
import type {
  AttachSession,
  ExecSession,
  PortForwardSession,
  StreamingBackend,
} from '../../../src/streaming/session.ts'

/** Bytes in which a gap, a repetition or a swap shows. */
export function pattern(length: number, seed = 1): Buffer {
  const bytes = Buffer.allocUnsafeSlow(length)
  let x = (seed * 2654435761) | 1
  for (let i = 0; i < length; i++) {
    x ^= x << 13
    x ^= x >>> 17
    x ^= x << 5
    bytes[i] = x
  }
  return bytes
}

/** Collects input; slow ones keep every chunk until told to drain. */
export class CollectingSink implements ByteSink {
  onDrain: (() => void) | undefined
  readonly chunks: Buffer[] = []
  readonly ended = deferred<void>()
  stuck = false
  buffered = 0
  #bytes = 0
  #waiting: { bytes: number; reached: Deferred<void> }[] = []

  write(chunk: Buffer): boolean {
    this.chunks.push(chunk)
    this.#bytes += chunk.length
    this.#waiting = this.#waiting.filter(({ bytes, reached }) => {
      if (bytes > this.#bytes) return true
      reached.resolve()
      return false
    })
    if (this.stuck) this.buffered += chunk.length
    return !this.stuck
  }

  end(): void {
    this.ended.resolve()
  }

  get bytes(): number {
    return this.#bytes
  }

  async reach(bytes: number): Promise<void> {
    if (this.#bytes >= bytes) return
    const reached = deferred<void>()
    this.#waiting.push({ bytes, reached })
    await reached.promise
  }

  drain(): void {
    this.stuck = false
    this.buffered = 0
    this.onDrain?.()
  }
}

/** Writes with back-pressure, reusing its one buffer whenever the sink allows it. */
export async function writeAll(sink: ByteSink | undefined, bytes: Buffer, chunkBytes = 65536): Promise<void> {
  if (sink === undefined) return
  let buffer = Buffer.allocUnsafeSlow(chunkBytes)
  for (let from = 0; from < bytes.length; from += chunkBytes) {
    const length = bytes.copy(buffer, 0, from, from + chunkBytes)
    const room = new Promise<void>((resolve) => {
      sink.onDrain = resolve
    })
    if (sink.write(buffer.subarray(0, length))) buffer.fill(0xee)
    else {
      buffer = Buffer.allocUnsafeSlow(chunkBytes)
      await room
    }
  }
}

/** What one call of exec or attach got, and its stop button. */
export interface Run {
  readonly session: ExecSession | AttachSession
  readonly stdio: RemoteStdio
  readonly stdin: CollectingSink
  readonly sizes: TerminalSize[]
  readonly end: Deferred<ExitStatus>
}

export class FakeBackend implements StreamingBackend {
  readonly runs: Run[] = []
  readonly dials: number[] = []
  keepsRuns = true
  /** Replaces the dial. */
  dialer: (port: number, signal: AbortSignal) => Promise<Socket> = connectTo
  #arrived: Deferred<Run>[] = []
  #taken = 0

  async exec(session: ExecSession, stdio: RemoteStdio): Promise<ExitStatus> {
    const run = this.#start(session, stdio)
    const [word, ...args] = session.command
    const number = (i: number) => Number(args[i] ?? 0)
    switch (word) {
      case 'source':
        await writeAll(stdio.stdout, pattern(number(0)))
        return finish(stdio, number(1))
      case 'both':
        await Promise.all([
          writeAll(stdio.stdout, pattern(number(0), 1)),
          writeAll(stdio.stderr, pattern(number(0), 2)),
        ])
        return finish(stdio, number(1))
      case 'echo':
        return await echo(run, number(0))
      case 'count':
        stdio.connectStdin?.(run.stdin)
        await run.stdin.ended.promise
        await writeAll(stdio.stdout, Buffer.from(`${run.stdin.bytes}\n`))
        return finish(stdio, number(0))
      case 'discard':
        stdio.connectStdin?.({ write: () => true, end: () => {}, buffered: 0, onDrain: undefined })
        return await run.end.promise
      case 'exit':
        return finish(stdio, number(0))
      case 'kill':
        return { signal: number(0) }
      case 'fail':
        throw new MonitorError('failed-precondition', args.join(' '))
      case 'hold':
        return await run.end.promise
      case undefined:
      default:
        throw new MonitorError('invalid-argument', `start process: ${word ?? 'empty command'}: not found`)
    }
  }

  async attach(session: AttachSession, stdio: RemoteStdio): Promise<void> {
    const run = this.#start(session, stdio)
    stdio.connectStdin?.(run.stdin)
    await run.end.promise
  }

  async dial(_session: PortForwardSession, port: number, signal: AbortSignal): Promise<Socket> {
    this.dials.push(port)
    return await this.dialer(port, signal)
  }

  /** The next run that starts, or one that has started and was not asked for yet. */
  async next(): Promise<Run> {
    const run = this.runs[this.#taken]
    this.#taken++
    if (run !== undefined) return run
    const arrived = deferred<Run>()
    this.#arrived.push(arrived)
    return await arrived.promise
  }

  #start(session: ExecSession | AttachSession, stdio: RemoteStdio): Run {
    const run: Run = { session, stdio, stdin: new CollectingSink(), sizes: [], end: deferred() }
    stdio.onResize((size) => run.sizes.push(size))
    stdio.gone.addEventListener('abort', () => run.end.resolve({ signal: 1 }), { once: true })
    if (this.keepsRuns) this.runs.push(run)
    this.#arrived.shift()?.resolve(run)
    return run
  }
}

function finish(stdio: RemoteStdio, code: number): ExitStatus {
  stdio.stdout?.end()
  stdio.stderr?.end()
  return { code }
}

async function echo(run: Run, code: number): Promise<ExitStatus> {
  const { stdio } = run
  const out = stdio.stdout
  const ended = deferred<void>()
  stdio.connectStdin?.({
    buffered: 0,
    onDrain: undefined,
    write(chunk) {
      if (out === undefined || out.write(chunk)) return true
      out.onDrain = () => this.onDrain?.()
      return false
    },
    end: () => ended.resolve(),
  })
  await Promise.race([ended.promise, run.end.promise])
  return finish(stdio, code)
}

export async function connectTo(port: number, signal: AbortSignal): Promise<Socket> {
  return await new Promise((resolve, reject) => {
    const socket = connect({ port, host: '127.0.0.1', allowHalfOpen: true })
    socket.pause()
    const abort = () => socket.destroy(new Error('dial was cancelled'))
    signal.addEventListener('abort', abort, { once: true })
    socket.once('error', reject)
    socket.once('connect', () => {
      signal.removeEventListener('abort', abort)
      socket.off('error', reject)
      resolve(socket)
    })
  })
}
