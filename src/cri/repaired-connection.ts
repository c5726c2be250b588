// A client's connection whose incoming bytes have gone through AuthorityRepair; the other direction is the socket's.

import type { Socket } from 'node:net'
import { Duplex } from 'node:stream'
import { AuthorityRepair } from './authority-repair.ts'

/** Stands in for the socket where an HTTP/2 server wants a connection. */
export class RepairedConnection extends Duplex {
  readonly #socket: Socket
  readonly #repair = new AuthorityRepair()
  #written: ((error?: Error | null) => void) | undefined

  constructor(socket: Socket) {
    super()
    this.#socket = socket
    socket.on('data', (chunk: Buffer) => {
      let room = true
      for (const piece of this.#repair.push(chunk)) room = this.push(piece)
      if (!room) socket.pause()
    })
    socket.on('end', () => this.push(null))
    socket.on('drain', () => this.#settle())
    // A client that vanished is an expected end: 'close' follows.
    socket.on('error', () => undefined)
    socket.on('close', () => this.destroy())
  }

  override _read(): void {
    this.#socket.resume()
  }

  override _write(chunk: Buffer, _encoding: BufferEncoding, done: (error?: Error | null) => void): void {
    if (this.#socket.destroyed || this.#socket.write(chunk)) done()
    else this.#written = done
  }

  override _final(done: (error?: Error | null) => void): void {
    if (this.#socket.destroyed) done()
    else this.#socket.end(done)
  }

  override _destroy(error: Error | null, done: (error?: Error | null) => void): void {
    this.#socket.destroy()
    this.#settle()
    done(error)
  }

  #settle(): void {
    const done = this.#written
    this.#written = undefined
    done?.()
  }
}
