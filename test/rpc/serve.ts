// An RPC server on a socket in a directory of its own.

import { mkdtempSync, rmSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { Diagnostics } from '../../src/base/diagnostics.ts'
import { unixListen } from '../../src/native/addon.ts'
import { RpcServer } from '../../src/rpc/rpc-server.ts'
import { FakeCalls } from './fake-calls.ts'

/** What a test needs of it. Close it at the test's end. */
export class TestServer {
  readonly directory = mkdtempSync(join(tmpdir(), 'holdfast-rpc-'))
  readonly path = join(this.directory, 'conmon.sock')
  readonly calls = new FakeCalls()
  readonly diagnostics: string[] = []
  /** Forget diagnostics. */
  quiet = false
  server: RpcServer

  constructor() {
    this.server = this.#start()
  }

  /** As after the death of a server: its connections and socket are gone, a new one listens. */
  restart(): void {
    this.server.close()
    rmSync(this.path)
    this.server = this.#start()
  }

  /** The connections open when those that end have ended: a moment after their clients. */
  async connections(): Promise<number> {
    for (let i = 0; i < 1000 && this.server.connections > 0; i++) {
      await new Promise((resolve) => setImmediate(resolve))
    }
    return this.server.connections
  }

  close(): void {
    this.server.close()
    rmSync(this.directory, { recursive: true })
  }

  #start(): RpcServer {
    const diagnostics = new Diagnostics((line) => {
      if (!this.quiet) this.diagnostics.push(line)
    }, 'debug')
    const server = new RpcServer({ calls: this.calls, diagnostics })
    server.listen(unixListen(this.path))
    return server
  }
}
