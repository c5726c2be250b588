// A client of exec and attach on npm ws.

import { WebSocket, type ClientOptions } from 'ws'
import { decodeStatus, type SessionOutcome } from '../../../src/wire/remote-status.ts'

export interface ClientResult {
  readonly stdout: Buffer
  readonly stderr: Buffer
  readonly error: Buffer
  readonly outcome: SessionOutcome
  readonly closeCode: number
}

export class WebSocketClient {
  readonly webSocket: WebSocket
  /** Everything that came, by channel. */
  readonly messages: { readonly channel: number; readonly payload: Buffer }[] = []
  readonly #base64: boolean
  readonly #closed: Promise<number>
  #onMessage: (() => void) | undefined

  constructor(url: string, protocols: string | string[], options: ClientOptions = {}) {
    this.#base64 = String(protocols).includes('base64')
    this.webSocket = new WebSocket(url.replace(/^http/, 'ws'), protocols, options)
    this.webSocket.on('message', (data: Buffer, isBinary) => {
      this.messages.push(
        isBinary
          ? { channel: data[0] ?? -1, payload: data.subarray(1) }
          : { channel: (data[0] ?? 0) - 0x30, payload: Buffer.from(data.toString('latin1', 1), 'base64') },
      )
      this.#onMessage?.()
    })
    this.webSocket.on('error', () => {})
    this.#closed = new Promise((resolve) => this.webSocket.on('close', resolve))
  }

  /** Resolves when the server's first message has come. */
  async ready(): Promise<void> {
    await this.until(() => this.messages.length > 0)
  }

  async until(condition: () => boolean): Promise<void> {
    while (!condition()) {
      await new Promise<void>((resolve, reject) => {
        this.#onMessage = resolve
        void this.#closed.then((code) => reject(new Error(`closed with ${code}`)))
      })
    }
  }

  send(channel: number, payload: Buffer | string): void {
    const bytes = Buffer.from(payload)
    if (this.#base64) this.webSocket.send(`${channel}${bytes.toString('base64')}`)
    else this.webSocket.send(Buffer.concat([Buffer.from([channel]), bytes]))
  }

  closeStdin(): void {
    this.webSocket.send(Buffer.from([255, 0]))
  }

  bytesOf(channel: number): Buffer {
    return Buffer.concat(
      this.messages.filter((each) => each.channel === channel).map(({ payload }) => payload),
    )
  }

  async result(): Promise<ClientResult> {
    const closeCode = await this.#closed
    const error = this.bytesOf(3)
    return {
      stdout: this.bytesOf(1),
      stderr: this.bytesOf(2),
      error,
      outcome: decodeStatus(error),
      closeCode,
    }
  }
}
