import type { ByteSink } from '../base/remote-stdio.ts'
export class OutputCapture implements ByteSink {
  onDrain: (() => void) | undefined
  buffered = 0
  #b: Buffer[] = []
  #n = 0
  write(c: Buffer) {
    const k = Buffer.from(c.subarray(0, 16777216 - this.#n))
    this.#n += k.length
    this.#b.push(k)
    return true
  }
  end() {}
  get bytes() {
    return Buffer.concat(this.#b)
  }
}
