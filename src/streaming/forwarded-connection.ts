// One forwarded TCP connection: the client's data and error streams on one side, a socket into the pod on the other,
// and every way in which the two can end (streaming.md §5.1).

import type { Socket } from 'node:net'
import { messageOf } from '../base/errors.ts'
import { DIAL_TIMEOUT_MS, HALF_CLOSED_QUIET_MS, SOCKET_HIGH_WATER_BYTES } from '../base/limits.ts'
import { ChunkQueue } from './chunk-queue.ts'
import type { Clock, Timer } from './clock.ts'
import type { SpdyStream } from './spdy-connection.ts'

/** What the connection needs of its port-forward. */
export interface ForwardOwner {
  readonly clock: Clock
  /** For messages. */
  readonly podSandboxId: string
  dial(port: number, signal: AbortSignal): Promise<Socket>
  /** What is written in `write` leaves in one system call. */
  corked(write: () => void): void
  /** The pod has not taken this many bytes yet. */
  account(forward: ForwardedConnection, bytes: number): void
  /** The client has room again: `resume` is called when it is this connection's turn. */
  takeTurn(forward: ForwardedConnection): void
  /** It is over; its streams are forgotten. */
  remove(forward: ForwardedConnection): void
}

type StreamKind = 'data' | 'error'

export class ForwardedConnection {
  readonly requestId: string
  /** Bytes that account() has been told last. */
  accounted = 0
  readonly #owner: ForwardOwner
  readonly #dialing = new AbortController()
  readonly #queue = new ChunkQueue()
  #errorStream: SpdyStream | undefined
  #dataStream: SpdyStream | undefined
  #port = 0
  #socket: Socket | undefined
  #timer: Timer | undefined
  #clientEnded = false
  #paused = false
  #lastPodData = 0
  #over = false
  readonly #onWritten = (): void => this.#written()

  constructor(requestId: string, owner: ForwardOwner, creationMs: number) {
    this.requestId = requestId
    this.#owner = owner
    this.#timer = owner.clock.after(creationMs, () =>
      this.fail(`(request=${requestId}) timed out waiting for streams`),
    )
  }

  /** Takes one of the two streams; false: there is one of that kind already. The second one starts the dial. */
  add(kind: StreamKind, stream: SpdyStream, port: number): boolean {
    if (kind === 'error') {
      if (this.#errorStream !== undefined) return false
      this.#errorStream = stream
    } else {
      if (this.#dataStream !== undefined) return false
      this.#dataStream = stream
      stream.listener = {
        data: (piece) => this.#fromClient(piece),
        end: () => this.#clientEnd(),
        reset: () => this.#end(),
      }
      stream.onDrain = () => {
        if (this.#paused) this.#owner.takeTurn(this)
      }
    }
    if (kind === 'data' || this.#port === 0) this.#port = port
    if (this.#errorStream !== undefined && this.#dataStream !== undefined) void this.#connect()
    return true
  }

  /** Text on the error stream, which makes clients close the whole connection, and the end. */
  fail(text: string): void {
    if (this.#over) return
    this.say(text)
    this.#dataStream?.reset()
    this.#errorStream?.reset()
    this.#finish()
  }

  /** Ends with the words of k8s.io/cri-streaming. */
  failForwarding(reason: string): void {
    this.fail(`error forwarding port ${this.#port} to pod ${this.#owner.podSandboxId}, uid : ${reason}`)
  }

  say(text: string): void {
    this.#errorStream?.write(Buffer.from(text))
  }

  /** The client has room, and it is this connection's turn. */
  resume(): void {
    this.#paused = false
    if (!this.#over) this.#socket?.resume()
  }

  /** The client is gone. */
  destroy(): void {
    if (!this.#over) this.#finish()
  }

  async #connect(): Promise<void> {
    this.#timer?.cancel()
    // The backend has its own limit; this one is for a backend that has none.
    this.#timer = this.#owner.clock.after(2 * DIAL_TIMEOUT_MS, () => {
      this.failForwarding(`dial port ${this.#port}: timed out`)
    })
    let socket: Socket
    try {
      socket = await this.#owner.dial(this.#port, this.#dialing.signal)
    } catch (error) {
      this.failForwarding(messageOf(error))
      return
    }
    this.#timer.cancel()
    this.#join(socket)
  }

  #join(socket: Socket): void {
    this.#socket = socket
    // A reset after the dial is one of the ways in which connections end: no text, only this stream is reset.
    socket.on('error', () => this.#break())
    socket.on('close', () => this.#break())
    if (this.#over || socket.destroyed) {
      socket.destroy()
      return this.#break()
    }
    socket.setNoDelay(true)
    socket.on('data', (chunk: Buffer) => this.#fromPod(chunk))
    socket.on('end', () => this.#podEnd())
    this.#flush()
    if (this.#clientEnded) this.#armQuiet(HALF_CLOSED_QUIET_MS)
    socket.resume()
    return undefined
  }

  #fromClient(piece: Buffer): void {
    const socket = this.#socket
    if (socket !== undefined && socket.writableLength === 0 && this.#queue.bytes === 0) {
      socket.write(piece, this.#onWritten)
    } else this.#queue.push(piece)
    this.#account()
  }

  #written(): void {
    if (this.#over || this.#socket?.writableLength !== 0) return
    this.#flush()
    this.#account()
  }

  #flush(): void {
    const socket = this.#socket
    if (socket === undefined) return
    if (this.#queue.bytes > 0) {
      socket.cork()
      for (const chunk of this.#queue.takeAll()) socket.write(chunk, this.#onWritten)
      socket.uncork()
    }
    if (this.#clientEnded) socket.end()
  }

  #account(): void {
    this.#owner.account(this, this.#queue.bytes + (this.#socket?.writableLength ?? 0))
  }

  #clientEnd(): void {
    this.#clientEnded = true
    if (this.#socket === undefined) return
    if (this.#queue.bytes === 0) this.#socket.end()
    this.#armQuiet(HALF_CLOSED_QUIET_MS)
  }

  #fromPod(chunk: Buffer): void {
    this.#lastPodData = this.#owner.clock.now()
    const stream = this.#dataStream
    // The chunk is nobody else's, so the stream may keep it; only the amount matters.
    if (stream === undefined || stream.write(chunk) || stream.buffered <= SOCKET_HIGH_WATER_BYTES) return
    this.#paused = true
    this.#socket?.pause()
  }

  /**
   * The error stream ends with the pod's side: older clients keep their local connection until it does. The client
   * may go on sending; when both sides have ended the socket closes by itself.
   */
  #podEnd(): void {
    this.#owner.corked(() => {
      this.#dataStream?.end()
      this.#errorStream?.end()
    })
  }

  #break(): void {
    if (this.#over) return
    this.#dataStream?.reset()
    this.#end()
  }

  /** A client whose local peer is gone also sends only FIN: the pod may answer, but not be silent for ever. */
  #armQuiet(milliseconds: number): void {
    this.#timer?.cancel()
    this.#timer = this.#owner.clock.after(milliseconds, () => {
      const quietUntil = this.#lastPodData + HALF_CLOSED_QUIET_MS
      const left = this.#paused ? HALF_CLOSED_QUIET_MS : quietUntil - this.#owner.clock.now()
      if (left > 0) this.#armQuiet(left)
      else this.#end()
    })
  }

  /** An end without an error. Both streams are ended, so that no client waits. */
  #end(): void {
    if (this.#over) return
    this.#dataStream?.end()
    this.#errorStream?.end()
    this.#finish()
  }

  #finish(): void {
    this.#over = true
    this.#timer?.cancel()
    if (this.#socket === undefined) this.#dialing.abort()
    else this.#socket.destroy()
    this.#queue.takeAll()
    this.#owner.account(this, 0)
    if (this.#dataStream !== undefined) this.#dataStream.onDrain = undefined
    this.#dataStream?.forget()
    this.#errorStream?.forget()
    this.#owner.remove(this)
  }
}
