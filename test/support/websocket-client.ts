// A v5 WebSocket client of an exec or attach URL, for tests: collects what comes and how the session ends.

import { setTimeout as sleep } from 'node:timers/promises'
import { WebSocket } from 'ws'

/** How a session ended: an exit code, or why it is a failure. A session that broke has no code. */
export type SessionEnd = { readonly code: number } | { readonly failure: string }

export class WebSocketClient {
  readonly ended: Promise<SessionEnd>
  readonly opened: Promise<void>
  readonly #socket: WebSocket
  readonly #chunks: [Buffer[], Buffer[]] = [[], []]
  readonly #listeners = new Set<() => void>()
  #status = ''
  #consumer: ((chunk: Buffer) => void) | undefined

  constructor(url: string, protocol = 'v5.channel.k8s.io') {
    this.#socket = new WebSocket(url.replace(/^http/, 'ws'), [protocol], { perMessageDeflate: false })
    this.#socket.on('message', (data: Buffer) => this.#received(data))
    this.opened = new Promise((resolve, reject) => {
      this.#socket.once('open', resolve)
      this.#socket.once('error', reject)
    })
    this.opened.catch(() => undefined)
    this.ended = new Promise((resolve) => {
      this.#socket.on('error', (error) => resolve({ failure: error.message }))
      this.#socket.on('close', (code) => resolve(this.#end(code)))
    })
  }

  stdout(): Buffer {
    return Buffer.concat(this.#chunks[0])
  }

  stderr(): Buffer {
    return Buffer.concat(this.#chunks[1])
  }

  /** Waits until stdout holds text. */
  async until(text: string | RegExp, timeoutMs = 10_000): Promise<string> {
    const found = (): boolean => {
      const output = this.stdout().toString()
      return typeof text === 'string' ? output.includes(text) : text.test(output)
    }
    const deadline = Date.now() + timeoutMs
    while (!found()) {
      if (Date.now() > deadline)
        throw new Error(`waited in vain for ${text} in ${this.stdout().toString().slice(-500)}`)
      await sleep(5)
    }
    return this.stdout().toString()
  }

  send(text: string | Buffer): void {
    this.#socket.send(Buffer.concat([Buffer.from([0]), Buffer.from(text)]))
  }

  /** Bytes that the local socket has not taken yet. */
  get buffered(): number {
    return this.#socket.bufferedAmount
  }

  resize(width: number, height: number): void {
    this.#socket.send(Buffer.from(`\x04${JSON.stringify({ Width: width, Height: height })}`))
  }

  /** v5: the end of stdin. */
  closeStdin(): void {
    this.#socket.send(Buffer.from([255, 0]))
  }

  /** One message in several frames, with a ping between each two. */
  sendInFrames(pieces: readonly Buffer[]): void {
    for (const [i, piece] of pieces.entries()) {
      if (i > 0) this.#socket.ping('between')
      this.#socket.send(piece, { binary: true, fin: i === pieces.length - 1 })
    }
  }

  sendLast(bytes: string | Buffer): void {
    this.send(bytes)
    this.closeStdin()
  }

  pause(): void {
    this.#socket.pause()
  }

  resume(): void {
    this.#socket.resume()
  }

  /** Leaves without a word. */
  vanish(): void {
    this.#socket.terminate()
  }

  /** Takes stdout from now on instead of collecting it. */
  consume(consumer: (chunk: Buffer) => void): void {
    this.#consumer = consumer
  }

  onData(listener: () => void): void {
    this.#listeners.add(listener)
  }

  #received(data: Buffer): void {
    const channel = data[0]
    if (channel === 3) this.#status += data.toString('utf8', 1)
    else if (channel === 1 && this.#consumer !== undefined) this.#consumer(data.subarray(1))
    else if (channel === 1 || channel === 2) this.#chunks[channel - 1]?.push(data.subarray(1))
    for (const listener of this.#listeners) listener()
  }

  /** client-go's rules: anything but a Close of 1000 is an error, an empty status is success. */
  #end(code: number): SessionEnd {
    if (code !== 1000) return { failure: `closed with ${code}` }
    if (this.#status === '') return { code: 0 }
    const status = JSON.parse(this.#status) as {
      status: string
      message?: string
      reason?: string
      details?: { causes?: { reason?: string; message?: string }[] }
    }
    if (status.status === 'Success') return { code: 0 }
    const cause = status.details?.causes?.find((other) => other.reason === 'ExitCode')
    return status.reason === 'NonZeroExitCode'
      ? { code: Number(cause?.message) }
      : { failure: status.message ?? '' }
  }
}
