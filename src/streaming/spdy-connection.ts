// One SPDY/3.1 connection of the server: streams that the client opens, replies, pings, goaway, the end.
// It knows no session; flow control is TCP's, so the whole connection is held back at once (streaming.md §2.5).

import type { Duplex } from 'node:stream'
import { MonitorError } from '../base/errors.ts'
import type { ByteSink } from '../base/remote-stdio.ts'
import {
  dataFrame,
  dataHeader,
  goAwayFrame,
  goAwayStatus,
  maxDataPayload,
  pingFrame,
  rstStatus,
  rstStreamFrame,
  spdyFlags,
  SpdyReader,
  synReplyFrame,
  type SpdyFrameListener,
} from '../wire/spdy-frame.ts'
import { emptyHeaderBlock, HeaderInflater, parseHeaders } from '../wire/spdy-headers.ts'
import { ClientSocket, maxCopiedBytes, type DrainWaiter, type SessionLimits } from './client-socket.ts'
import type { Clock } from './clock.ts'

/** Whoever uses a connection. */
export interface SpdyOwner {
  /** A stream that the client wants: reply to it or reset it. */
  opened(stream: SpdyStream, headers: ReadonlyMap<string, string>): void
  /** The client opens no further streams. */
  goneAway(): void
  /** No data and no new stream for the idle limit. */
  idle(): void
}

/** What the client does on one stream. */
export interface SpdyStreamListener {
  data(piece: Buffer): void
  end(): void
  /** Both directions are dead. Not called when the connection ends. */
  reset(): void
}

export interface SpdyConnectionOptions {
  readonly owner: SpdyOwner
  readonly clock: Clock
  readonly limits: SessionLimits
  /** Streams that are open at once; more are refused. */
  readonly maxStreams: number
}

/** What one turn of the loop may cost: a chunk of tiny frames is read in several turns. */
const maxFramesPerTurn = 256
/** Header bytes that they may inflate to: real ones are a few dozen per stream, more is meant to stall us. */
const maxInflatedPerTurn = 1024 * 1024

/** Our pings are even; their answers mean nothing. */
const probePingId = 2

export class SpdyConnection implements SpdyFrameListener {
  readonly client: ClientSocket
  readonly #owner: SpdyOwner
  readonly #maxStreams: number
  readonly #reader = new SpdyReader(this)
  readonly #inflater = new HeaderInflater()
  readonly #streams = new Map<number, SpdyStream>()
  #inflatedLimit = 0
  #lastStreamId = 0
  #replied = false
  #goneAway = false
  #closed = false

  constructor(socket: Duplex, options: SpdyConnectionOptions) {
    this.#owner = options.owner
    this.#maxStreams = options.maxStreams
    const { clock, limits, owner } = options
    const flow = {
      pause: () => void socket.pause(),
      resume: () => void socket.resume(),
      probe: () => void socket.write(pingFrame(probePingId)),
      idle: () => owner.idle(),
    }
    this.client = new ClientSocket(socket, { clock, limits, flow })
  }

  /** Starts reading; `head` came with the request. */
  start(head: Buffer): void {
    if (head.length > 0) this.#read(head)
    this.client.socket.on('data', this.#read)
  }

  /** The client opens no further streams. */
  get goneAway(): boolean {
    return this.#goneAway
  }

  /** What is written in `write` leaves in one system call. */
  corked(write: () => void): void {
    this.client.socket.cork()
    write()
    this.client.socket.uncork()
  }

  /**
   * Ends the connection after what was written: open streams are reset, then goaway, then the end of the socket.
   * A client that does not read gets `flushMs` for it.
   */
  close(status: number = goAwayStatus.ok, flushMs = Infinity): void {
    if (this.#closed) return
    this.#closed = true
    this.#reader.stop()
    if (this.client.dead) return
    this.corked(() => {
      for (const stream of this.#streams.values()) stream.reset()
      this.client.socket.write(goAwayFrame(this.#lastStreamId, status))
    })
    this.client.socket.end()
    this.client.linger(flushMs)
  }

  onData(streamId: number, piece: Buffer): void {
    this.client.touch()
    const stream = this.#streams.get(streamId)
    if (stream !== undefined && !stream.remoteClosed) stream.listener?.data(piece)
  }

  onFin(streamId: number): void {
    const stream = this.#streams.get(streamId)
    if (stream === undefined || stream.remoteClosed) return
    stream.remoteClosed = true
    stream.listener?.end()
    this.forgetIfClosed(stream)
  }

  onSynStream(streamId: number, flags: number, block: Buffer): void {
    const headers = parseHeaders(this.#inflate(block))
    if (this.#goneAway) return
    if (streamId % 2 === 0 || streamId <= this.#lastStreamId) {
      return this.#answer(rstStreamFrame(streamId, rstStatus.protocolError))
    }
    this.#lastStreamId = streamId
    if (this.#streams.size >= this.#maxStreams) {
      return this.#answer(rstStreamFrame(streamId, rstStatus.refusedStream))
    }
    this.client.touch()
    const stream = new SpdyStream(this, streamId)
    stream.localClosed = (flags & spdyFlags.unidirectional) !== 0
    this.#streams.set(streamId, stream)
    this.#owner.opened(stream, headers)
    if ((flags & spdyFlags.fin) !== 0) this.onFin(streamId)
    return undefined
  }

  onOtherBlock(block: Buffer): void {
    this.#inflate(block)
  }

  onReset(streamId: number): void {
    const stream = this.#streams.get(streamId)
    if (stream === undefined) return
    this.#streams.delete(streamId)
    stream.kill()
    this.#endIfDone()
  }

  onPing(id: number): void {
    if (id % 2 === 1) this.#answer(pingFrame(id))
  }

  onGoAway(): void {
    if (this.#goneAway) return
    this.#goneAway = true
    this.#owner.goneAway()
    this.#endIfDone()
  }

  /** For SpdyStream: the frame that accepts a stream. Until it has left, a client drops what comes on the stream. */
  replyFrame(streamId: number): Buffer {
    const block = this.#replied ? emptyHeaderBlock.later : emptyHeaderBlock.first
    this.#replied = true
    return synReplyFrame(streamId, block)
  }

  /** Writes a frame that the client provoked. */
  #answer(frame: Buffer): void {
    this.client.socket.write(frame)
    this.client.boundAnswers()
  }

  /** For SpdyStream: nothing more is said about a stream whose both directions have ended. */
  forgetIfClosed(stream: SpdyStream): void {
    if (stream.localClosed && stream.remoteClosed) this.forget(stream)
  }

  /** For SpdyStream: what the client still sends on it is ignored. */
  forget(stream: SpdyStream): void {
    this.#streams.delete(stream.id)
    this.#endIfDone()
  }

  /** After the client's goaway the last stream ends the connection. */
  #endIfDone(): void {
    if (this.#goneAway && this.#streams.size === 0) this.close()
  }

  /** Reads a chunk in as many turns of the loop as it needs; meanwhile no other comes. */
  readonly #read = (chunk: Buffer): void => {
    const taken = this.#readTurn(chunk)
    if (taken === chunk.length) return this.client.release('turn')
    this.client.hold('turn')
    setImmediate(() => {
      if (!this.client.dead) this.#read(chunk.subarray(taken))
    })
    return undefined
  }

  #inflate(block: Buffer): Buffer {
    const plain = this.#inflater.inflate(block)
    if (this.#inflater.inflatedBytes > this.#inflatedLimit) {
      throw new MonitorError('resource-exhausted', 'read SPDY frame: too many headers')
    }
    return plain
  }

  /** Returns the bytes taken. */
  #readTurn(chunk: Buffer): number {
    this.#inflatedLimit = this.#inflater.inflatedBytes + maxInflatedPerTurn
    const { socket } = this.client
    // The answers to many frames in one chunk leave together.
    socket.cork()
    try {
      return this.#reader.read(chunk, maxFramesPerTurn)
    } catch {
      // A client that speaks something else gets a goaway; its session ends as if it had gone.
      this.close(goAwayStatus.protocolError)
      this.client.abandon()
      return chunk.length
    } finally {
      socket.uncork()
    }
  }
}

/** One stream; to a process it is where output goes. */
export class SpdyStream implements ByteSink, DrainWaiter {
  onDrain: (() => void) | undefined
  listener: SpdyStreamListener | undefined
  readonly id: number
  /** We, or the client, have sent the last byte of this direction. */
  localClosed = false
  remoteClosed = false
  readonly #connection: SpdyConnection

  constructor(connection: SpdyConnection, id: number) {
    this.#connection = connection
    this.id = id
  }

  get buffered(): number {
    return this.#connection.client.buffered
  }

  /** Accepts the stream. */
  reply(): void {
    const { client } = this.#connection
    if (client.dead || client.ending) return
    client.socket.write(this.#connection.replyFrame(this.id))
    client.boundAnswers()
  }

  write(chunk: Buffer): boolean {
    const { client } = this.#connection
    if (this.localClosed || client.dead || client.ending || chunk.length === 0) return true
    client.touch()
    const { socket } = client
    if (chunk.length <= maxCopiedBytes) {
      socket.write(dataFrame(this.id, chunk))
      return client.settle(this, true)
    }
    socket.cork()
    for (let from = 0; from < chunk.length; from += maxDataPayload) {
      const payload = chunk.length <= maxDataPayload ? chunk : chunk.subarray(from, from + maxDataPayload)
      socket.write(dataHeader(this.id, payload.length))
      socket.write(payload)
    }
    socket.uncork()
    return client.settle(this, false)
  }

  /** The last bytes of our direction, and its end. */
  end(last?: Buffer): void {
    const { client } = this.#connection
    if (this.localClosed) return
    this.localClosed = true
    if (!client.dead && !client.ending) client.socket.write(dataFrame(this.id, last ?? nothing, true))
    this.#connection.forgetIfClosed(this)
  }

  /** Ends both directions, unless ours has ended: then there is nothing left to reset. */
  reset(status: number = rstStatus.cancel): void {
    const { client } = this.#connection
    if (!this.localClosed && !client.dead && !client.ending) {
      client.socket.write(rstStreamFrame(this.id, status))
    }
    this.localClosed = true
    this.remoteClosed = true
    this.#connection.forgetIfClosed(this)
  }

  /** Nobody is interested in the stream any more, whatever the client still does with it. */
  forget(): void {
    this.localClosed = true
    this.remoteClosed = true
    this.#connection.forget(this)
  }

  /** The client has reset the stream. */
  kill(): void {
    this.localClosed = true
    this.remoteClosed = true
    this.listener?.reset()
    this.onDrain?.()
  }

  drained(): void {
    this.onDrain?.()
  }
}

const nothing = Buffer.alloc(0)
