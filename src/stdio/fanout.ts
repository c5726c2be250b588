import type { MonitorError } from '../base/errors.ts'
import type { ByteSink } from '../base/remote-stdio.ts'
export class Fanout implements ByteSink {
  onDrain: (() => void) | undefined
  buffered = 0
  #s = new Set<ByteSink>()
  add(s: ByteSink, _d: (e: MonitorError) => void): () => void {
    this.#s.add(s)
    return () => {
      this.#s.delete(s)
    }
  }
  write(c: Buffer) {
    const k = Buffer.from(c)
    for (const s of this.#s) s.write(k)
    return true
  }
  end() {
    for (const s of this.#s) s.end()
  }
}
