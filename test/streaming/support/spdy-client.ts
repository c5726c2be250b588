// A lean SPDY/3.1 client with its own framing: what it sends and what it got are plain frames.

import { connect, type Socket } from 'node:net'
import { constants, createDeflate, createInflate, type Deflate } from 'node:zlib'
import { spdyDictionary } from '../../../src/wire/spdy-dictionary.ts'

export interface Frame {
  /** DATA is type 0. */
  readonly type: number
  readonly flags: number
  /** Stream id, ping id, or last stream of a goaway. */
  readonly id: number
  readonly payload: Buffer
}

export const types = {
  data: 0,
  synStream: 1,
  synReply: 2,
  rst: 3,
  settings: 4,
  ping: 6,
  goAway: 7,
  headers: 8,
}

export function u32(...numbers: number[]): Buffer {
  const buffer = Buffer.alloc(4 * numbers.length)
  numbers.forEach((number, i) => buffer.writeUInt32BE(number >>> 0, 4 * i))
  return buffer
}

export function control(type: number, flags: number, payload: Buffer): Buffer {
  return Buffer.concat([u32(0x80030000 + type, flags * 0x1000000 + payload.length), payload])
}

export function data(id: number, payload: Buffer | string, fin = false): Buffer {
  const bytes = Buffer.from(payload)
  return Buffer.concat([u32(id, (fin ? 0x01000000 : 0) + bytes.length), bytes])
}

export function headerBlock(headers: Record<string, string>): Buffer {
  const text = (value: string) => Buffer.concat([u32(Buffer.byteLength(value)), Buffer.from(value)])
  const pairs = Object.entries(headers)
  return Buffer.concat([u32(pairs.length), ...pairs.flatMap(([name, value]) => [text(name), text(value)])])
}

/** Real zlib, one stream for the connection, flushed after each block as Go does it. */
export class HeaderDeflater {
  readonly #deflate: Deflate = createDeflate({ dictionary: spdyDictionary, level: 9 })

  async deflate(block: Buffer): Promise<Buffer> {
    const chunks: Buffer[] = []
    const collect = (chunk: Buffer) => chunks.push(chunk)
    this.#deflate.on('data', collect)
    this.#deflate.write(block)
    await new Promise<void>((resolve) => this.#deflate.flush(constants.Z_SYNC_FLUSH, () => resolve()))
    this.#deflate.off('data', collect)
    return Buffer.concat(chunks)
  }

  close(): void {
    this.#deflate.close()
  }
}

export interface ConnectOptions {
  readonly protocols?: readonly string[]
  readonly method?: string
}

export class SpdyClient {
  readonly socket: Socket
  readonly frames: Frame[] = []
  /** What each read of the socket brought, after the 101. */
  readonly reads: Buffer[] = []
  status = ''
  ended = false
  readonly #deflater = new HeaderDeflater()
  readonly #inflater = createInflate({ dictionary: spdyDictionary })
  readonly #closed: Promise<void>
  #pending = Buffer.alloc(0)
  #nextId = 1
  #wake: (() => void) | undefined

  private constructor(url: string, { protocols = ['v4.channel.k8s.io'], method = 'POST' }: ConnectOptions) {
    const { hostname, port, pathname } = new URL(url)
    this.socket = connect(Number(port), hostname).setNoDelay(true)
    const versions = protocols.map((name) => `X-Stream-Protocol-Version: ${name}\r\n`).join('')
    this.socket.write(
      `${method} ${pathname} HTTP/1.1\r\nHost: other.example\r\nContent-Length: 0\r\n` +
        `Connection: Upgrade\r\nUpgrade: SPDY/3.1\r\n${versions}\r\n`,
    )
    this.socket.on('error', () => {})
    this.socket.on('data', (chunk: Buffer) => this.#read(chunk))
    this.socket.on('end', () => {
      this.ended = true
      this.#wake?.()
    })
    this.#closed = new Promise((resolve) =>
      this.socket.on('close', () => {
        this.#deflater.close()
        this.#inflater.close()
        this.ended = true
        this.#wake?.()
        resolve()
      }),
    )
  }

  /** Resolves when the server's answer is complete, a 101 or not. */
  static async connect(url: string, options: ConnectOptions = {}): Promise<SpdyClient> {
    const client = new SpdyClient(url, options)
    await client.until(() => client.status.includes('\r\n\r\n'))
    return client
  }

  async until(condition: () => boolean): Promise<void> {
    while (!condition()) {
      if (this.ended) throw new Error(`connection ended: ${this.status.slice(0, 200)} ${this.summary()}`)
      await new Promise<void>((resolve) => {
        this.#wake = resolve
      })
    }
  }

  async closed(): Promise<void> {
    await this.#closed
  }

  /** A SYN_STREAM frame with the next id. */
  async syn(headers: Record<string, string>, { id = this.#nextId, flags = 0 } = {}): Promise<Buffer> {
    this.#nextId = id + 2
    const block = await this.#deflater.deflate(headerBlock(headers))
    return control(types.synStream, flags, Buffer.concat([u32(id, 0), Buffer.alloc(2), block]))
  }

  /** Opens a stream and waits for the reply, as every client does. */
  async open(
    headers: Record<string, string> | string,
    options: { id?: number; flags?: number } = {},
  ): Promise<number> {
    const id = options.id ?? this.#nextId
    this.socket.write(
      await this.syn(typeof headers === 'string' ? { streamtype: headers } : headers, options),
    )
    await this.until(() =>
      this.frames.some(
        (frame) => frame.id === id && (frame.type === types.synReply || frame.type === types.rst),
      ),
    )
    return id
  }

  async openAll(...roles: string[]): Promise<number[]> {
    const ids: number[] = []
    for (const role of roles) ids.push(await this.open(role))
    return ids
  }

  send(...frames: Buffer[]): void {
    this.socket.write(Buffer.concat(frames))
  }

  bytesOf(id: number): Buffer {
    return Buffer.concat(this.framesOf(id, types.data).map(({ payload }) => payload))
  }

  framesOf(id: number, type: number): Frame[] {
    return this.frames.filter((frame) => frame.id === id && frame.type === type)
  }

  hasFin(id: number): boolean {
    return this.framesOf(id, types.data).some(({ flags }) => flags === 1)
  }

  /** One word per frame: `reply1 data3:5 fin3 rst5:5 goaway7:0`. */
  summary(): string {
    const words = this.frames.map(({ type, flags, id, payload }) => {
      if (type === types.data)
        return `${flags === 1 ? 'fin' : 'data'}${id}${payload.length ? `:${payload.length}` : ''}`
      if (type === types.synReply) return `reply${id}`
      if (type === types.rst) return `rst${id}:${payload.readUInt32BE(4)}`
      if (type === types.goAway) return `goaway${id}:${payload.readUInt32BE(4)}`
      return type === types.ping ? `ping${id}` : `type${type}`
    })
    return words.join(' ')
  }

  #read(chunk: Buffer): void {
    let rest = chunk
    if (!this.status.includes('\r\n\r\n')) {
      const head = Buffer.from(this.status + chunk.toString('latin1'), 'latin1')
      const end = head.indexOf('\r\n\r\n')
      this.status = head.toString('latin1', 0, end < 0 ? head.length : end + 4)
      rest = end < 0 ? Buffer.alloc(0) : head.subarray(end + 4)
      if (!this.status.startsWith('HTTP/1.1 101')) this.status += rest.toString('latin1')
    }
    if (rest.length > 0) {
      this.reads.push(rest)
      this.#pending = Buffer.concat([this.#pending, rest])
      this.#takeFrames()
    }
    this.#wake?.()
  }

  #takeFrames(): void {
    let offset = 0
    while (this.#pending.length - offset >= 8) {
      const first = this.#pending.readUInt32BE(offset)
      const second = this.#pending.readUInt32BE(offset + 4)
      const end = offset + 8 + (second & 0xffffff)
      if (this.#pending.length < end) break
      const payload = Buffer.from(this.#pending.subarray(offset + 8, end))
      const isControl = first >>> 31 === 1
      const type = isControl ? first & 0xffff : 0
      const id = isControl ? payload.readUInt32BE(0) : first
      if (type === types.synReply) this.#inflater.write(payload.subarray(4))
      this.frames.push({ type, flags: second >>> 24, id, payload })
      offset = end
    }
    this.#pending = this.#pending.subarray(offset)
  }
}
