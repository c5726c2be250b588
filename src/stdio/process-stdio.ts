import { closeSync } from 'node:fs'
import { Socket } from 'node:net'
import type { RemoteStdio, TerminalSize } from '../base/remote-stdio.ts'
import { dupCloexec, setNonblock, setWinsize, write } from '../native/addon.ts'
import { OutputPump } from './output-pump.ts'
export class ProcessStdio {
  terminal: boolean
  #o: OutputPump[] = []
  #in: Socket | undefined
  #t: number | undefined
  outputEnded: Promise<void>
  constructor(f: {
    stdin?: number | undefined
    stdout?: number | undefined
    stderr?: number | undefined
    terminal?: number | undefined
  }) {
    this.terminal = f.terminal !== undefined
    this.#t = f.terminal === undefined ? undefined : dupCloexec(f.terminal)
    let first: OutputPump | undefined, second: OutputPump | undefined
    if (f.terminal !== undefined) {
      setNonblock(f.terminal)
      first = new OutputPump({ fd: f.terminal, terminal: true, sink: undefined })
    }
    if (f.stdout !== undefined) first = new OutputPump({ fd: f.stdout, terminal: false, sink: undefined })
    if (f.stderr !== undefined) second = new OutputPump({ fd: f.stderr, terminal: false, sink: undefined })
    this.#o = [first, second].filter((x) => x !== undefined)
    this.outputEnded = Promise.all(this.#o.map((x) => x.ended)).then(() => undefined)
    if (f.stdin !== undefined) {
      this.#in = new Socket({ fd: f.stdin, writable: true, readable: false })
      this.#in.on('error', () => undefined)
    }
  }
  connect(r: RemoteStdio) {
    this.#o[0]?.setSink(r.stdout)
    this.#o[1]?.setSink(r.stderr)
    const s = this
    r.connectStdin?.({
      buffered: 0,
      onDrain: undefined,
      write(c) {
        if (s.#in) {
          return s.#in.write(Buffer.from(c)) || true
        }
        if (s.#t !== undefined) write(s.#t, c)
        return true
      },
      end() {
        s.#in?.end()
      },
    })
  }
  resize(z: TerminalSize) {
    if (this.#t !== undefined) setWinsize(this.#t, z.height, z.width)
  }
  closeStdin() {
    this.#in?.destroy()
  }
  hangUp() {
    this.#in?.destroy()
    if (this.#t !== undefined) {
      closeSync(this.#t)
      this.#t = undefined
      this.#o[0]?.close()
    } else for (const o of this.#o) o.setSink(undefined)
  }
  finish() {
    for (const o of this.#o) o.takeRest()
  }
  close() {
    for (const o of this.#o) o.close()
    this.#in?.destroy()
    if (this.#t !== undefined) closeSync(this.#t)
    this.#t = undefined
  }
}
