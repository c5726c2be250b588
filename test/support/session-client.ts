// One interface to an exec or attach session over either transport, for tests: send, collect, and how it ended by the
// rules of Kubernetes clients (a session that broke has no exit code).

import { connect, type Socket } from 'node:net'
import { constants, createDeflate, type Deflate } from 'node:zlib'
import { spdyDictionary } from '../../src/wire/spdy-dictionary.ts'
import { WebSocketClient, type SessionEnd } from './websocket-client.ts'

export type { SessionEnd } from './websocket-client.ts'
export const transports = ['spdy', 'websocket'] as const
export type TransportName = (typeof transports)[number]

export interface SessionStreams {
  readonly stdin: boolean
  readonly stdout: boolean
  readonly stderr: boolean
  readonly tty: boolean
}

export interface SessionClient {
  readonly ended: Promise<SessionEnd>
  stdout(): Buffer
  stderr(): Buffer
  send(bytes: string | Buffer): void
  readonly buffered: number
  resize(width: number, height: number): void
  closeStdin(): void
  /** Sends and ends stdin; on SPDY in one frame. */
  sendLast(bytes: string | Buffer): void
  pause(): void
  resume(): void
  vanish(): void
  /** Takes stdout from now on instead of collecting it. */
  consume(consumer: (chunk: Buffer) => void): void
  onData(listener: () => void): void
  until(text: string | RegExp, timeoutMs?: number): Promise<string>
}

/** Resolves when the session is set up. */
export async function openSession(
  transport: TransportName,
  url: string,
  streams: SessionStreams,
): Promise<SessionClient> {
  if (transport === 'spdy') return SpdySession.open(url, streams)
  const client = new WebSocketClient(url)
  await client.opened
  return client
}

/** One connection through a port-forward session; `send` and `stdout` are its two directions. */
export function openForward(url: string, port: number): Promise<SessionClient> {
  return SpdySession.openForward(url, port)
}

/** Frames of SPDY/3.1: 8 bytes, the first bit tells control from data. */
class SpdySession implements SessionClient {
  readonly ended: Promise<SessionEnd>
  readonly #socket: Socket
  readonly #deflate: Deflate = createDeflate({ dictionary: spdyDictionary, level: 9 })
  readonly #ids = new Map<string, number>()
  readonly #chunks = new Map<number, Buffer[]>()
  readonly #listeners = new Set<() => void>()
  readonly #replies = new Set<number>()
  #head = ''
  #rest: Buffer = Buffer.alloc(0)
  #end: ((end: SessionEnd) => void) | undefined
  #vanished = false
  #forwards = false
  #consumer: ((chunk: Buffer) => void) | undefined

  private constructor(url: string, protocol: string) {
    const { hostname, port, pathname } = new URL(url)
    this.#socket = connect({ port: Number(port), host: hostname })
    this.#socket.write(
      `POST ${pathname} HTTP/1.1\r\nHost: node\r\nContent-Length: 0\r\nConnection: Upgrade\r\nUpgrade: SPDY/3.1\r\n` +
        `X-Stream-Protocol-Version: ${protocol}\r\n\r\n`,
    )
    this.ended = new Promise((resolve) => {
      this.#end = resolve
    })
    this.#socket.on('data', (chunk: Buffer) => this.#received(chunk))
    this.#socket.on('error', () => undefined)
    this.#socket.on('end', () => this.#socket.end())
    this.#socket.on('close', () => {
      this.#deflate.close()
      this.#end?.(this.#vanished ? { failure: 'vanished' } : this.#status())
      for (const listener of this.#listeners) listener()
    })
  }

  static async open(url: string, streams: SessionStreams): Promise<SpdySession> {
    const session = new SpdySession(url, 'v4.channel.k8s.io')
    await session.#upgraded()
    const wanted = [
      ['error', true],
      ['stdin', streams.stdin],
      ['stdout', streams.stdout],
      ['stderr', streams.stderr && !streams.tty],
      ['resize', streams.tty],
    ] as const
    for (const [type, wants] of wanted) if (wants) await session.#openStream(type, { streamtype: type })
    return session
  }

  static async openForward(url: string, port: number): Promise<SpdySession> {
    const session = new SpdySession(url, 'portforward.k8s.io')
    session.#forwards = true
    await session.#upgraded()
    await session.#openStream('error', { streamtype: 'error', port: String(port), requestid: '0' })
    session.#data('error', Buffer.alloc(0), true)
    await session.#openStream('stdout', { streamtype: 'data', port: String(port), requestid: '0' })
    session.#ids.set('stdin', 3)
    return session
  }

  stdout(): Buffer {
    return this.#bytesOf('stdout')
  }

  stderr(): Buffer {
    return this.#bytesOf('stderr')
  }

  get buffered(): number {
    return this.#socket.writableLength
  }

  send(bytes: string | Buffer): void {
    this.#data('stdin', Buffer.from(bytes), false)
  }

  resize(width: number, height: number): void {
    this.#data('resize', Buffer.from(`${JSON.stringify({ Width: width, Height: height })}\n`), false)
  }

  closeStdin(): void {
    this.#data('stdin', Buffer.alloc(0), true)
  }

  sendLast(bytes: string | Buffer): void {
    this.#data('stdin', Buffer.from(bytes), true)
  }

  pause(): void {
    this.#socket.pause()
  }

  resume(): void {
    this.#socket.resume()
  }

  vanish(): void {
    this.#vanished = true
    this.#socket.resetAndDestroy()
  }

  consume(consumer: (chunk: Buffer) => void): void {
    this.#consumer = consumer
  }

  onData(listener: () => void): void {
    this.#listeners.add(listener)
  }

  async until(text: string | RegExp, timeoutMs = 10_000): Promise<string> {
    const found = (): boolean => {
      const output = this.stdout().toString()
      return typeof text === 'string' ? output.includes(text) : text.test(output)
    }
    await this.#wait(found, timeoutMs)
    return this.stdout().toString()
  }

  #wait(holds: () => boolean, timeoutMs = 30_000): Promise<void> {
    return new Promise((resolve, reject) => {
      const check = (): void => {
        if (!holds() && !this.#socket.destroyed) return
        this.#listeners.delete(check)
        clearTimeout(timer)
        if (holds()) resolve()
        else reject(new Error(`the connection ended: ${JSON.stringify(this.#status())}`))
      }
      const timer = setTimeout(() => {
        this.#listeners.delete(check)
        reject(new Error(`waited in vain; stdout ends with ${this.stdout().toString().slice(-200)}`))
      }, timeoutMs)
      this.#listeners.add(check)
      check()
    })
  }

  async #upgraded(): Promise<void> {
    await this.#wait(() => this.#head.includes('\r\n\r\n'))
    if (this.#head.startsWith('HTTP/1.1 101')) return
    this.#socket.destroy()
    throw new Error(`unexpected server response: ${this.#head.split('\r\n', 1)[0]}`)
  }

  async #openStream(type: string, headers: Record<string, string>): Promise<void> {
    const id = 2 * this.#ids.size + 1
    this.#ids.set(type, id)
    this.#chunks.set(id, [])
    const texts = Object.entries(headers).flat()
    const pairs = texts.flatMap((text) => [u32(text.length), Buffer.from(text)])
    const block = Buffer.concat([u32(texts.length / 2), ...pairs])
    const compressed: Buffer[] = []
    const collect = (chunk: Buffer): void => {
      compressed.push(chunk)
    }
    this.#deflate.on('data', collect)
    this.#deflate.write(block)
    await new Promise<void>((resolve) => this.#deflate.flush(constants.Z_SYNC_FLUSH, resolve))
    this.#deflate.off('data', collect)
    const payload = Buffer.concat([u32(id), u32(0), Buffer.alloc(2), ...compressed])
    this.#socket.write(Buffer.concat([u32(0x80030001), u32(payload.length), payload]))
    await this.#wait(() => this.#replies.has(id))
  }

  #data(type: string, payload: Buffer, fin: boolean): void {
    const id = this.#ids.get(type)
    if (id === undefined) throw new Error(`this session has no ${type} stream`)
    this.#socket.write(Buffer.concat([u32(id), u32((fin ? 0x01000000 : 0) + payload.length), payload]))
  }

  #bytesOf(type: string): Buffer {
    return Buffer.concat(this.#chunks.get(this.#ids.get(type) ?? 0) ?? [])
  }

  #received(chunk: Buffer): void {
    let rest: Buffer = chunk
    if (!this.#head.includes('\r\n\r\n')) {
      const text = this.#head + chunk.toString('latin1')
      const end = text.indexOf('\r\n\r\n')
      rest = end < 0 ? Buffer.alloc(0) : Buffer.from(text.slice(end + 4), 'latin1')
      this.#head = end < 0 ? text : text.slice(0, end + 4)
    }
    this.#rest = this.#rest.length === 0 ? rest : Buffer.concat([this.#rest, rest])
    while (this.#rest.length >= 8) {
      const length = 8 + (this.#rest.readUInt32BE(4) & 0xffffff)
      if (this.#rest.length < length) break
      this.#frame(this.#rest.subarray(0, length))
      this.#rest = this.#rest.subarray(length)
    }
    for (const listener of this.#listeners) listener()
  }

  #frame(frame: Buffer): void {
    const first = frame.readUInt32BE(0)
    // A connection that could not be made is told on the error stream; the session itself stays.
    if (this.#forwards && first === this.#ids.get('error') && frame.length > 8) this.#socket.destroySoon()
    if (first >>> 31 === 0 && first === this.#ids.get('stdout') && this.#consumer !== undefined) {
      this.#consumer(frame.subarray(8))
    } else if (first >>> 31 === 0) this.#chunks.get(first)?.push(frame.subarray(8))
    else if ((first & 0xffff) === 2) this.#replies.add(frame.readUInt32BE(8))
  }

  /** client-go's rules: an empty error stream is success, whatever else happened; so it must be armed. */
  #status(): SessionEnd {
    const text = this.#bytesOf('error').toString()
    if (text === '') return { code: 0 }
    try {
      const status = JSON.parse(text) as {
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
    } catch {
      return { failure: `error stream protocol error: ${JSON.stringify(text)}` }
    }
  }
}

function u32(value: number): Buffer {
  const bytes = Buffer.alloc(4)
  bytes.writeUInt32BE(value >>> 0)
  return bytes
}
