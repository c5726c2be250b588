// The C++ peers: built once, kept in dist, run as programs.

import assert from 'node:assert/strict'
import { execFileSync, spawn } from 'node:child_process'
import type { ChildProcess } from 'node:child_process'
import { once } from 'node:events'
import { join, resolve } from 'node:path'

const root = resolve(import.meta.dirname, '../../..')
const built = join(root, 'dist/peers')

/** The path of a peer program. The first call of all builds them, which takes some ten seconds. */
export function peer(name: 'client' | 'raw' | 'server'): string {
  execFileSync('sh', [join(root, 'test/capnp/peer/build.sh'), built], {
    stdio: ['ignore', 'ignore', 'inherit'],
  })
  return join(built, name)
}

/** A running peer and what it has printed. */
export class Peer {
  readonly process: ChildProcess
  printed = ''
  readonly #exit: Promise<unknown[]>

  constructor(name: 'client' | 'raw' | 'server', args: readonly string[]) {
    this.process = spawn(peer(name), args, { stdio: ['ignore', 'pipe', 'pipe'] })
    for (const stream of [this.process.stdout, this.process.stderr]) {
      stream?.setEncoding('utf8').on('data', (text: string) => {
        this.printed += text
      })
    }
    this.#exit = once(this.process, 'close')
  }

  /** Until it has printed this. */
  async says(text: string): Promise<void> {
    while (!this.printed.includes(text)) {
      assert.ok(this.process.stdout !== null && this.process.exitCode === null, this.printed)
      await once(this.process.stdout, 'data')
    }
  }

  /** Its exit code, or the signal that ended it. */
  async exit(): Promise<unknown> {
    const [code, signal] = await this.#exit
    return code ?? signal
  }

  async kill(): Promise<void> {
    this.process.kill('SIGKILL')
    await this.#exit
  }
}

/** Runs a test of a peer program; its failed checks are the assertion's message. */
export async function passes(name: 'client' | 'raw', args: readonly string[]): Promise<Peer> {
  const running = new Peer(name, args)
  const timer = setTimeout(() => running.process.kill('SIGKILL'), 60_000)
  const code = await running.exit()
  clearTimeout(timer)
  assert.equal(code, 0, `${name} ${args.slice(1).join(' ')}: ${running.printed}`)
  return running
}
