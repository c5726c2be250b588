import { Socket } from 'node:net'
import { closeSync } from 'node:fs'
import { deferred } from '../base/lifetime.ts'
import type { ByteSink } from '../base/remote-stdio.ts'
import { poll, pollSet, read, unpoll, bytesReadable, type PollHandle } from '../native/addon.ts'
export class OutputPump {
  #sink: ByteSink | undefined
  #fd: number
  #d = deferred<void>()
  #h: PollHandle
  #done = false
  constructor(o: { fd: number; terminal: boolean; sink: ByteSink | undefined }) {
    this.#fd = o.fd
    this.setSink(o.sink)
    this.#h = poll(o.fd, () => this.#read())
  }
  get ended() {
    return this.#d.promise
  }
  setSink(s: ByteSink | undefined) {
    this.#sink = s
    if (s)
      s.onDrain = () => {
        if (!this.#done) pollSet(this.#h, 1)
      }
  }
  #read() {
    for (let i = 0; i < 8 && !this.#done; i++) {
      const b = Buffer.allocUnsafe(65536)
      const n = read(this.#fd, b)
      if (n < 0) return
      if (n === 0) return this.#end()
      if (this.#sink && !this.#sink.write(b.subarray(0, n))) {
        pollSet(this.#h, 0)
        return
      }
    }
  }
  #end() {
    if (this.#done) return
    this.#done = true
    unpoll(this.#h)
    closeSync(this.#fd)
    this.#sink?.end()
    this.#d.resolve()
  }
  takeRest() {
    if (this.#done) return
    let n = bytesReadable(this.#fd)
    while (n > 0) {
      const b = Buffer.alloc(65536)
      const k = read(this.#fd, b)
      if (k <= 0) break
      n -= k
      this.#sink?.write(b.subarray(0, k))
    }
    this.#end()
  }
  close() {
    if (this.#done) return
    this.#done = true
    unpoll(this.#h)
    closeSync(this.#fd)
    this.#d.resolve()
  }
}
void Socket
