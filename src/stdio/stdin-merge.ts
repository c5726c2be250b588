import { Socket } from 'node:net'
import type { ByteSink } from '../base/remote-stdio.ts'
import { write } from '../native/addon.ts'
export class StdinMerge {
  #s: Socket | undefined
  #o
  closed = false
  constructor(o: { fd: number; terminal: boolean; onClosed: () => void }) {
    this.#o = o
    if (!o.terminal) {
      this.#s = new Socket({ fd: o.fd, writable: true, readable: false })
      this.#s.on('error', () => undefined)
    }
  }
  connect(): ByteSink {
    const t = this
    return {
      buffered: 0,
      onDrain: undefined,
      write(c) {
        if (t.closed) return true
        if (t.#s) t.#s.write(Buffer.from(c))
        else write(t.#o.fd, c)
        return true
      },
      end() {},
    }
  }
  close() {
    if (this.closed) return
    this.closed = true
    this.#s?.end()
    this.#o.onClosed()
  }
  closeWhenWritten() {
    this.close()
  }
}
