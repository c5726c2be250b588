// Exec and attach over WebSocket: the handshake's answer and the five channels over ws (streaming.md §3).
// Output bypasses ws's sender: its own header and the payload leave in one corked write, without a copy
// (only right while no extension is negotiated).

import type { IncomingMessage } from 'node:http'
import type { Duplex } from 'node:stream'
import type { WebSocket, WebSocketServer } from 'ws'
import { MAX_WEBSOCKET_MESSAGE_BYTES } from '../base/limits.ts'
import type { ByteSink, RemoteStdio, TerminalSize } from '../base/remote-stdio.ts'
import {
  base64Frame,
  channelFrame,
  channelHeader,
  channels,
  maxMessagePayload,
  parseChannelMessage,
} from '../wire/channel-frame.ts'
import { encodeStatus, type SessionOutcome } from '../wire/remote-status.ts'
import type { StreamProtocol } from '../wire/stream-protocol.ts'
import { TerminalSizeReader } from '../wire/terminal-size.ts'
import type { Clock } from './clock.ts'
import {
  ClientSocket,
  failedFlushMs,
  maxCopiedBytes,
  type DrainWaiter,
  type SessionLimits,
} from './client-socket.ts'
import { webSocketProtocolOf } from './http-answers.ts'
import { failureOf, type StdioSession } from './run-session.ts'
import { StdinRelay } from './stdin-relay.ts'
import type { Transport } from './transport.ts'

/** ws's own timer must not cut a slow reader; ClientSocket has the real one. */
const neverMs = 0x7fffffff
/** Fragments keep their read buffers alive until the message is whole. */
const maxFragments = 4096

/** Loads ws and makes the part of it that answers handshakes. */
export async function createHandshaker(): Promise<WebSocketServer> {
  const ws = await import('ws')
  const options = {
    noServer: true,
    clientTracking: false,
    perMessageDeflate: false,
    autoPong: false,
    maxPayload: MAX_WEBSOCKET_MESSAGE_BYTES,
    maxFragments,
    closeTimeout: neverMs,
    handleProtocols: (_offered: Set<string>, request: IncomingMessage) =>
      webSocketProtocolOf(request)?.name ?? false,
  } as const
  return new ws.WebSocketServer(options)
}

export interface WebSocketOptions {
  readonly session: StdioSession
  readonly protocol: StreamProtocol
  readonly clock: Clock
  readonly limits: SessionLimits
}

/** A client of an exec or attach session on WebSocket. */
export class WebSocketTransport implements Transport {
  readonly client: ClientSocket
  readonly stdio: RemoteStdio
  readonly #webSocket: WebSocket
  readonly #options: WebSocketOptions
  readonly #stdin: StdinRelay
  readonly #sizes = new TerminalSizeReader()
  #lastSize: TerminalSize | undefined
  #onResize: ((size: TerminalSize) => void) | undefined
  #finished = false

  constructor(webSocket: WebSocket, socket: Duplex, options: WebSocketOptions) {
    this.#webSocket = webSocket
    this.#options = options
    const { session, protocol, clock, limits } = options
    const flow = {
      pause: () => webSocket.pause(),
      resume: () => webSocket.resume(),
      probe: () => webSocket.ping(),
      idle: () => this.stop(`session closed: no data for ${limits.idleMs / 1000} s`),
    }
    this.client = new ClientSocket(socket, { clock, limits, flow })
    this.#stdin = new StdinRelay((held) => (held ? this.client.hold('stdin') : this.client.release('stdin')))
    const sink = (channel: number) => new ChannelSink(this.client, channel, protocol.base64)
    this.stdio = {
      stdout: session.stdout ? sink(channels.stdout) : undefined,
      stderr: session.stderr && !session.tty ? sink(channels.stderr) : undefined,
      connectStdin: session.stdin ? (to) => this.#stdin.connect(to) : undefined,
      onResize: (listener) => this.#listenResize(listener),
      gone: this.client.gone,
    }
    webSocket.on('message', (message: Buffer) => this.#receive(message))
    webSocket.on('ping', (payload) => this.#pong(payload))
    // ws has answered a broken frame with its close code; the connection is of no further use.
    webSocket.on('error', () => this.client.abandon())
    // ws has read a Close frame and answers it behind all output that waits: too late to be the sign.
    socket.on('data', () => {
      if (webSocket.readyState === webSocket.CLOSING && !this.#finished) this.client.abandon()
    })
    this.#sendReady()
  }

  finish(outcome: SessionOutcome): void {
    this.#close(outcome, 1000)
  }

  stop(message: string, code = 1000): void {
    this.#close(failureOf(this.#options.session, message), code)
    this.client.abandon()
  }

  #close(outcome: SessionOutcome, code: number): void {
    if (this.#finished) return
    this.#finished = true
    this.#stdin.discard()
    this.#onResize = undefined
    if (this.client.dead) return
    const { protocol } = this.#options
    const status = encodeStatus(outcome, protocol.statusAsJson)
    if (status.length > 0) this.#send(channels.error, status)
    this.#webSocket.close(code)
    this.client.linger(outcome.kind === 'failed' ? failedFlushMs : Infinity)
  }

  #receive(message: Buffer): void {
    if (this.#finished) return
    this.client.touch()
    const { session, protocol } = this.#options
    const frame = parseChannelMessage(message, protocol.base64)
    if (frame === undefined) return
    const { channel, payload } = frame
    if (channel === channels.stdin && session.stdin) this.#stdin.push(payload)
    else if (channel === channels.resize && session.tty) this.#resize(payload)
    else if (channel === channels.close && protocol.closeSignal) this.#closeSignal(payload)
  }

  #closeSignal(payload: Buffer): void {
    const channel = payload[0] ?? 0xff
    if (payload.length !== 1 || channel > channels.resize) {
      this.stop('malformed close signal', 1002)
    } else if (channel === channels.stdin) this.#stdin.end()
  }

  #resize(payload: Buffer): void {
    for (const size of this.#sizes.read(payload)) {
      this.#lastSize = size
      this.#onResize?.(size)
    }
  }

  #listenResize(listener: (size: TerminalSize) => void): void {
    if (this.#finished) return
    this.#onResize = listener
    if (this.#lastSize !== undefined) listener(this.#lastSize)
  }

  /** An empty message on the lowest channel out says that the session is there. */
  #sendReady(): void {
    const { stdout, stderr } = this.stdio
    const channel = stdout ? channels.stdout : stderr ? channels.stderr : channels.error
    this.#send(channel, Buffer.alloc(0))
  }

  #send(channel: number, payload: Buffer): void {
    const frame = this.#options.protocol.base64
      ? base64Frame(channel, payload)
      : channelFrame(channel, payload)
    this.client.socket.write(frame)
  }

  #pong(payload: Buffer): void {
    if (this.#webSocket.readyState !== this.#webSocket.OPEN) return
    this.#webSocket.pong(payload)
    this.client.boundAnswers()
  }
}

/** stdout or stderr as messages of one channel. The end has no message: the status says it. */
class ChannelSink implements ByteSink, DrainWaiter {
  onDrain: (() => void) | undefined
  readonly #client: ClientSocket
  readonly #channel: number
  readonly #base64: boolean
  #ended = false

  constructor(client: ClientSocket, channel: number, base64: boolean) {
    this.#client = client
    this.#channel = channel
    this.#base64 = base64
  }

  get buffered(): number {
    return this.#client.buffered
  }

  write(chunk: Buffer): boolean {
    const client = this.#client
    if (this.#ended || client.dead || client.ending || chunk.length === 0) return true
    client.touch()
    if (this.#base64) return this.#writeBase64(chunk)
    const { socket } = client
    if (chunk.length <= maxCopiedBytes) {
      socket.write(channelFrame(this.#channel, chunk))
      return client.settle(this, true)
    }
    socket.cork()
    for (let from = 0; from < chunk.length; from += maxMessagePayload) {
      const payload =
        chunk.length <= maxMessagePayload ? chunk : chunk.subarray(from, from + maxMessagePayload)
      socket.write(channelHeader(this.#channel, payload.length))
      socket.write(payload)
    }
    socket.uncork()
    return client.settle(this, false)
  }

  end(): void {
    this.#ended = true
  }

  drained(): void {
    this.onDrain?.()
  }

  #writeBase64(chunk: Buffer): boolean {
    const { socket } = this.#client
    socket.cork()
    for (let from = 0; from < chunk.length; from += maxMessagePayload) {
      socket.write(base64Frame(this.#channel, chunk.subarray(from, from + maxMessagePayload)))
    }
    socket.uncork()
    return this.#client.settle(this, true)
  }
}
