// The client's end of an exec or attach session: WebSocket, v5.channel.k8s.io. Bytes to and from the channels with
// back-pressure both ways; knows nothing of terminals. `ws` is loaded when the first session is opened.
//
//   message = channel byte, payload     0 stdin  1 stdout  2 stderr  3 status  4 resize     ff 00 = end of stdin

import type { IncomingMessage } from 'node:http'
import type { Writable } from 'node:stream'
import type { WebSocket } from 'ws'
import { MonitorError } from '../base/errors.ts'
import type { TerminalSize } from '../base/remote-stdio.ts'
import { deferred } from '../base/lifetime.ts'
import { CLOSE_TIMEOUT_MS, MAX_SESSION_INPUT_BYTES, SESSION_OPEN_TIMEOUT_MS } from '../base/limits.ts'
import { channels, parseChannelMessage } from '../wire/channel-frame.ts'
import { decodeStatus } from '../wire/remote-status.ts'
import type { SessionEnd } from './session-end.ts'

const PROTOCOL = 'v5.channel.k8s.io'
const END_OF_STDIN = Buffer.from([channels.close, channels.stdin])

/** Where a session's output goes. */
export interface SessionOutput {
  readonly stdout: Writable
  readonly stderr: Writable
}

/** One open session. */
export class WebSocketSession {
  readonly #socket: WebSocket
  readonly #end = deferred<SessionEnd>()
  /** Resolves when the session is over and all its output was handed on; never rejects. */
  readonly ended = this.#end.promise
  /** Called when `sendInput` returned false and there is room again. */
  onDrain: (() => void) | undefined
  #waiting = false
  #stopped = new Set<Writable>()

  private constructor(socket: WebSocket, output: SessionOutput) {
    this.#socket = socket
    socket.on('message', (data: Buffer) => this.#receive(data, output))
    let trouble = ''
    socket.on('error', (error) => {
      trouble = error.message
    })
    socket.on('close', (code, reason) => {
      const said = trouble || reason.toString() || `connection closed, code ${code}`
      this.#end.resolve({ kind: 'broken', message: said })
      this.onDrain = undefined
    })
  }

  /** Connects to the URL that serveExec or serveAttach gave. Rejects when the server refuses: then nothing ran. */
  static async open(url: string, output: SessionOutput): Promise<WebSocketSession> {
    const { WebSocket } = await import('ws')
    const socket = new WebSocket(url, [PROTOCOL], {
      perMessageDeflate: false,
      handshakeTimeout: SESSION_OPEN_TIMEOUT_MS,
    })
    // Before the handshake ends: the first messages come with it.
    const session = new WebSocketSession(socket, output)
    await new Promise<void>((resolve, reject) => {
      socket.once('open', resolve)
      socket.once('error', (error) =>
        reject(new MonitorError('unavailable', `open session: ${error.message}`)),
      )
      socket.once('unexpected-response', (_, response: IncomingMessage) => {
        const said = `the server answered ${response.statusCode} ${response.statusMessage}`
        response.destroy()
        reject(new MonitorError('unavailable', `open session: ${said}`))
      })
    })
    return session
  }

  /** Sends input. False: more than enough is on its way, wait for `onDrain`. */
  sendInput(bytes: Buffer): boolean {
    if (this.#socket.readyState !== this.#socket.OPEN) return true
    const message = Buffer.allocUnsafe(bytes.length + 1)
    message[0] = channels.stdin
    bytes.copy(message, 1)
    this.#socket.send(message, () => {
      if (!this.#waiting || this.#socket.bufferedAmount > MAX_SESSION_INPUT_BYTES / 2) return
      this.#waiting = false
      this.onDrain?.()
    })
    this.#waiting = this.#socket.bufferedAmount > MAX_SESSION_INPUT_BYTES
    return !this.#waiting
  }

  /** The end of input; output goes on. */
  endInput(): void {
    this.#send(END_OF_STDIN)
  }

  resize(size: TerminalSize): void {
    const json = JSON.stringify({ Width: size.width, Height: size.height })
    this.#send(Buffer.concat([Buffer.from([channels.resize]), Buffer.from(json)]))
  }

  /** Leaves without waiting for the server's word. */
  hangUp(): void {
    this.#socket.terminate()
  }

  #send(message: Buffer): void {
    if (this.#socket.readyState === this.#socket.OPEN) this.#socket.send(message)
  }

  #receive(data: Buffer, output: SessionOutput): void {
    const message = parseChannelMessage(data, false)
    // An empty one only says that the server is ready.
    if (message === undefined || message.payload.length === 0) return
    const { channel, payload } = message
    if (channel === channels.stdout) this.#pass(payload, output.stdout)
    else if (channel === channels.stderr) this.#pass(payload, output.stderr)
    else if (channel === channels.error) this.#finish(payload)
  }

  #finish(status: Buffer): void {
    // The status follows the last byte of output, so nothing more is worth waiting for.
    this.#end.resolve(decodeStatus(status))
    const timer = setTimeout(() => this.#socket.terminate(), CLOSE_TIMEOUT_MS)
    this.#socket.once('close', () => clearTimeout(timer))
    this.#socket.resume()
    this.#socket.close(1000)
  }

  #pass(payload: Buffer, to: Writable): void {
    if (to.write(payload) || this.#stopped.has(to)) return
    this.#stopped.add(to)
    this.#socket.pause()
    to.once('drain', () => {
      this.#stopped.delete(to)
      if (this.#stopped.size === 0) this.#socket.resume()
    })
  }
}
