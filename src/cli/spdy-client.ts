// The client's end of a SPDY/3.1 port-forward connection: one upgraded HTTP connection that carries any number of TCP
// connections, each as two streams, `error` and `data`. SPDY has no flow control in this field (wire/spdy-frame.ts),
// so a local socket that is not read is given room up to a limit, and then the whole connection waits for it.

import type { Socket } from 'node:net'
import { MonitorError } from '../base/errors.ts'
import { deferred } from '../base/lifetime.ts'
import { MAX_FORWARD_PENDING_BYTES, SESSION_OPEN_TIMEOUT_MS } from '../base/limits.ts'
import { spdyDictionaryId } from '../wire/spdy-dictionary.ts'
import {
  dataFrame,
  dataHeader,
  maxDataPayload,
  rstStatus,
  rstStreamFrame,
  SpdyReader,
} from '../wire/spdy-frame.ts'
import type { SpdyFrameListener } from '../wire/spdy-frame.ts'

const PROTOCOL = 'portforward.k8s.io'
const SYN_STREAM = 0x8003_0001

/** One forwarded TCP connection. */
interface Forward {
  readonly port: number
  readonly local: Socket
  readonly errorStream: number
  readonly dataStream: number
  /** What came on the error stream. */
  error: string
  /** The data stream was reset, or both its halves have ended. */
  dataOver: boolean
}

/** A connection to the pod. */
export class SpdyForwarder {
  readonly #socket: Socket
  readonly #onError: (port: number, text: string) => void
  readonly #streams = new Map<number, Forward>()
  readonly #end = deferred<string>()
  /** Resolves to the reason when the connection has ended; never rejects. */
  readonly ended = this.#end.promise
  #nextStream = 1
  #nextRequest = 0
  #startedHeaders = false

  private constructor(socket: Socket, head: Buffer, onError: (port: number, text: string) => void) {
    this.#socket = socket
    this.#onError = onError
    const reader = new SpdyReader(this.#listener())
    const read = (chunk: Buffer): void => {
      try {
        reader.read(chunk)
      } catch (error) {
        socket.destroy(error instanceof Error ? error : undefined)
      }
    }
    socket.setNoDelay(true)
    socket.on('data', read)
    socket.on('drain', () => {
      for (const { local } of this.#streams.values()) local.resume()
    })
    socket.on('end', () => socket.end())
    socket.on('error', (error) => this.#over(error.message))
    socket.on('close', () => this.#over('the server closed the connection'))
    if (head.length > 0) read(head)
  }

  /** Connects to the URL that servePortForward gave. `onError` hears of connections that failed alone. */
  static async open(url: string, onError: (port: number, text: string) => void): Promise<SpdyForwarder> {
    const { request } = await import('node:http')
    const headers = { Connection: 'Upgrade', Upgrade: 'SPDY/3.1', 'X-Stream-Protocol-Version': PROTOCOL }
    return new Promise((resolve, reject) => {
      const refuse = (text: string): void =>
        reject(new MonitorError('unavailable', `open port-forward: ${text}`))
      const call = request(url, { method: 'POST', headers, agent: false, timeout: SESSION_OPEN_TIMEOUT_MS })
      call.on('upgrade', (_, socket: Socket, head) => {
        socket.setTimeout(0)
        resolve(new SpdyForwarder(socket, head, onError))
      })
      call.on('response', (response) => {
        response.resume()
        refuse(`the server answered ${response.statusCode} ${response.statusMessage}`)
      })
      call.on('timeout', () => call.destroy(new Error('no answer')))
      call.on('error', (error) => refuse(error.message))
      call.end()
    })
  }

  /** Forwards an accepted connection to a port of the pod. */
  forward(local: Socket, port: number): void {
    const errorStream = this.#nextStream
    const dataStream = errorStream + 2
    this.#nextStream += 4
    const forward: Forward = { port, local, errorStream, dataStream, error: '', dataOver: false }
    this.#streams.set(errorStream, forward).set(dataStream, forward)
    const common = { port: String(port), requestid: String(this.#nextRequest++) }
    this.#socket.cork()
    this.#socket.write(this.#synStream(errorStream, { streamtype: 'error', ...common }))
    // The error stream speaks one way only.
    this.#socket.write(dataHeader(errorStream, 0, true))
    this.#socket.write(this.#synStream(dataStream, { streamtype: 'data', ...common }))
    this.#socket.uncork()
    local.on('data', (chunk: Buffer) => {
      if (!this.#send(dataStream, chunk)) local.pause()
    })
    local.on('end', () => {
      if (!forward.dataOver) this.#socket.write(dataHeader(dataStream, 0, true))
    })
    // An error comes before the close, which does the rest.
    local.on('error', () => {})
    local.on('drain', () => this.#drained())
    local.on('close', (hadError) => {
      if (hadError || !local.writableFinished || !local.readableEnded) this.#reset(forward)
      this.#streams.delete(dataStream)
      this.#drained()
    })
  }

  /** Ends every forwarded connection. */
  close(): void {
    this.#socket.destroy()
  }

  #listener(): SpdyFrameListener {
    return {
      onData: (id, piece) => this.#receive(id, piece),
      onFin: (id) => {
        const forward = this.#streams.get(id)
        if (forward === undefined) return
        if (id === forward.dataStream) forward.local.end()
        else this.#endError(forward)
      },
      onReset: (id) => {
        const forward = this.#streams.get(id)
        if (forward === undefined) return
        if (id === forward.errorStream) {
          this.#endError(forward)
          return
        }
        forward.dataOver = true
        forward.local.destroy()
      },
      // The server opens no streams; its replies carry no headers, and a refusal comes as a reset.
      onSynStream: () => {},
      onOtherBlock: () => {},
      onPing: () => {},
      onGoAway: () => this.#socket.end(),
    }
  }

  #receive(id: number, piece: Buffer): void {
    const forward = this.#streams.get(id)
    if (forward === undefined) return
    if (id === forward.errorStream) {
      if (forward.error.length < 4096) forward.error += piece.toString()
    } else if (forward.local.writable) {
      forward.local.write(piece)
      if (forward.local.writableLength > MAX_FORWARD_PENDING_BYTES) this.#socket.pause()
    }
  }

  #drained(): void {
    for (const { local } of this.#streams.values())
      if (local.writableLength > MAX_FORWARD_PENDING_BYTES / 2) return
    this.#socket.resume()
  }

  #endError(forward: Forward): void {
    this.#streams.delete(forward.errorStream)
    if (forward.error === '') return
    this.#onError(forward.port, forward.error)
    forward.local.destroy()
  }

  #reset(forward: Forward): void {
    if (forward.dataOver || !this.#socket.writable) return
    forward.dataOver = true
    this.#socket.write(rstStreamFrame(forward.dataStream, rstStatus.cancel))
  }

  #send(stream: number, chunk: Buffer): boolean {
    let more = true
    for (let at = 0; at < chunk.length; at += maxDataPayload)
      more = this.#socket.write(dataFrame(stream, chunk.subarray(at, at + maxDataPayload)))
    return more
  }

  /** SYN_STREAM; the header block in stored blocks of the one zlib stream of this direction. */
  #synStream(stream: number, headers: Record<string, string>): Buffer {
    const texts = Object.entries(headers).flat()
    const plain = Buffer.alloc(4 + texts.reduce((sum, text) => sum + 4 + Buffer.byteLength(text), 0))
    let at = plain.writeUInt32BE(texts.length / 2)
    for (const text of texts) {
      at = plain.writeUInt32BE(Buffer.byteLength(text), at)
      at += plain.write(text, at)
    }
    const start = this.#startedHeaders ? 0 : 6
    this.#startedHeaders = true
    const frame = Buffer.alloc(18 + start + 5 + plain.length + 5)
    frame.writeUInt32BE(SYN_STREAM, 0)
    frame.writeUInt32BE(frame.length - 8, 4)
    frame.writeUInt32BE(stream, 8)
    if (start > 0) {
      // zlib header with a preset dictionary, and which.
      frame.writeUInt16BE(0x7820, 18)
      frame.writeUInt32BE(spdyDictionaryId, 20)
    }
    at = 18 + start
    frame.writeUInt16LE(plain.length, at + 1)
    frame.writeUInt16LE(~plain.length & 0xffff, at + 3)
    plain.copy(frame, at + 5)
    // The sync flush that ends every block.
    frame.writeUInt32BE(0x0000_ffff, frame.length - 4)
    return frame
  }

  #over(reason: string): void {
    this.#end.resolve(reason)
    for (const { local } of this.#streams.values()) local.destroy()
    this.#streams.clear()
  }
}
