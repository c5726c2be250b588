// A port-forward session of many connections, as client-go opens them: error stream, its FIN, data stream.

import { connect, type Socket } from 'node:net'
import { HeaderDeflater, control, data, headerBlock, types, u32 } from '../streaming/support/spdy-client.ts'

/** How a forwarded connection ended for the client. */
export type ForwardEnd = 'fin' | 'reset' | 'session over'

/** One forwarded TCP connection. */
export class Forwarded {
  /** What the pod sent. */
  readonly chunks: Buffer[] = []
  /** The end of what the pod sends. */
  readonly ended: Promise<ForwardEnd>
  /** What was said on the error stream, when it has ended. */
  readonly error: Promise<string>
  readonly #client: ForwardClient
  readonly #id: number
  #errorText = ''
  #end: ((end: ForwardEnd) => void) | undefined
  #errorEnd: ((text: string) => void) | undefined

  constructor(client: ForwardClient, id: number) {
    this.#client = client
    this.#id = id
    this.ended = new Promise((resolve) => {
      this.#end = resolve
    })
    this.error = new Promise((resolve) => {
      this.#errorEnd = resolve
    })
  }

  get received(): Buffer {
    return Buffer.concat(this.chunks)
  }

  send(bytes: Buffer | string): void {
    this.#client.write(data(this.#id, bytes))
  }

  /** No more will be sent; the pod may go on. */
  end(): void {
    this.#client.write(data(this.#id, '', true))
  }

  reset(): void {
    this.#client.write(control(types.rst, 0, u32(this.#id, 5)))
  }

  /** For the client only. */
  onData(bytes: Buffer, fin: boolean): void {
    if (bytes.length > 0) this.chunks.push(bytes)
    if (fin) this.#end?.('fin')
  }

  /** For the client only. */
  onError(bytes: Buffer, fin: boolean): void {
    this.#errorText += bytes.toString()
    if (fin) this.#errorEnd?.(this.#errorText)
  }

  /** For the client only. */
  over(end: ForwardEnd): void {
    this.#end?.(end)
    this.#errorEnd?.(this.#errorText)
  }
}

export class ForwardClient {
  /** Settles when the session is over. */
  readonly closed: Promise<void>
  readonly #socket: Socket
  readonly #deflater = new HeaderDeflater()
  readonly #replies = new Map<number, (accepted: boolean) => void>()
  readonly #streams = new Map<number, { readonly forwarded: Forwarded; readonly kind: 'data' | 'error' }>()
  /** Header blocks share one compression stream: connections are opened one after the other. */
  #opening: Promise<unknown> = Promise.resolve()
  #nextId = 1
  #requests = 0
  #head: Buffer = Buffer.alloc(0)
  #upgraded: (() => void) | undefined
  #rest: Buffer = Buffer.alloc(0)

  private constructor(url: string) {
    const { hostname, port, pathname } = new URL(url)
    this.#socket = connect(Number(port), hostname).setNoDelay(true)
    this.#socket.write(
      `POST ${pathname} HTTP/1.1\r\nHost: node\r\nContent-Length: 0\r\nConnection: Upgrade\r\nUpgrade: SPDY/3.1\r\n` +
        'X-Stream-Protocol-Version: portforward.k8s.io\r\n\r\n',
    )
    this.#socket.on('error', () => undefined)
    this.#socket.on('data', (chunk: Buffer) => this.#received(chunk))
    this.#socket.on('end', () => this.#socket.end())
    this.closed = new Promise((resolve) => {
      this.#socket.on('close', () => {
        this.#deflater.close()
        for (const { forwarded } of this.#streams.values()) forwarded.over('session over')
        for (const reply of this.#replies.values()) reply(false)
        resolve()
      })
    })
  }

  static async open(url: string): Promise<ForwardClient> {
    const client = new ForwardClient(url)
    await new Promise<void>((resolve, reject) => {
      client.#upgraded = resolve
      void client.closed.then(() => reject(new Error(`not upgraded: ${client.#head.toString()}`)))
    })
    return client
  }

  /** Resolves when the session has accepted it; the dial comes later. */
  connect(port: number): Promise<Forwarded> {
    const opened = this.#opening.then(() => this.#connect(port))
    this.#opening = opened.catch(() => undefined)
    return opened
  }

  /** For connections only. */
  write(frame: Buffer): void {
    this.#socket.write(frame)
  }

  close(): void {
    this.#socket.destroy()
  }

  async #connect(port: number): Promise<Forwarded> {
    const headers = { port: String(port), requestid: String(this.#requests++) }
    const forwarded = new Forwarded(this, this.#nextId + 2)
    const error = await this.#openStream({ streamtype: 'error', ...headers }, forwarded, 'error')
    this.write(data(error, '', true))
    await this.#openStream({ streamtype: 'data', ...headers }, forwarded, 'data')
    return forwarded
  }

  async #openStream(
    headers: Record<string, string>,
    forwarded: Forwarded,
    kind: 'data' | 'error',
  ): Promise<number> {
    const id = this.#nextId
    this.#nextId += 2
    const block = await this.#deflater.deflate(headerBlock(headers))
    this.#streams.set(id, { forwarded, kind })
    const replied = new Promise<boolean>((resolve) => this.#replies.set(id, resolve))
    this.write(control(types.synStream, 0, Buffer.concat([u32(id, 0), Buffer.alloc(2), block])))
    if (!(await replied)) throw new Error(`stream ${id} was refused`)
    return id
  }

  #received(chunk: Buffer): void {
    this.#rest = this.#rest.length === 0 ? chunk : Buffer.concat([this.#rest, chunk])
    if (this.#upgraded !== undefined) {
      const end = this.#rest.indexOf('\r\n\r\n')
      if (end < 0) return
      this.#head = this.#rest.subarray(0, end)
      this.#rest = this.#rest.subarray(end + 4)
      if (!this.#head.toString().startsWith('HTTP/1.1 101')) {
        this.#socket.destroy()
        return
      }
      this.#upgraded()
      this.#upgraded = undefined
    }
    while (this.#rest.length >= 8) {
      const length = 8 + (this.#rest.readUInt32BE(4) & 0xffffff)
      if (this.#rest.length < length) break
      this.#frame(this.#rest.subarray(0, length))
      this.#rest = this.#rest.subarray(length)
    }
  }

  #frame(frame: Buffer): void {
    const first = frame.readUInt32BE(0)
    const isData = first >>> 31 === 0
    const id = isData ? first : frame.readUInt32BE(8)
    const stream = this.#streams.get(id)
    if (isData) {
      const fin = frame[4] === 1
      const bytes = frame.subarray(8)
      if (stream?.kind === 'data') stream.forwarded.onData(bytes, fin)
      else stream?.forwarded.onError(bytes, fin)
      return
    }
    const type = first & 0xffff
    if (type !== types.synReply && type !== types.rst) return
    const reply = this.#replies.get(id)
    this.#replies.delete(id)
    if (reply !== undefined) reply(type === types.synReply)
    else if (stream?.kind === 'data') stream.forwarded.over('reset')
    else stream?.forwarded.onError(Buffer.alloc(0), true)
  }
}
