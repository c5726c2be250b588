// The RPC socket: takes a listening unix socket that somebody else made and holds, and serves what connects to it.
// Never unlinks a path.

import type { Server, Socket } from 'node:net'
import { createServer } from 'node:net'
import type { Diagnostics } from '../base/diagnostics.ts'
import { messageOf } from '../base/errors.ts'
import { MAX_RPC_CONNECTIONS } from '../base/limits.ts'
import { RpcBudget } from '../capnp/rpc-budget.ts'
import { RpcConnection } from '../capnp/rpc-connection.ts'
import type { Service } from '../capnp/rpc-service.ts'
import type { MonitorCalls } from '../monitor/requests.ts'
import { conmonService } from './conmon-service.ts'
import { holdfastService } from './holdfast-service.ts'

export interface RpcServerOptions {
  readonly calls: MonitorCalls
  readonly diagnostics: Diagnostics
  readonly maxConnections?: number
}

/** Serves the monitor's calls to any number of clients. */
export class RpcServer {
  readonly #diagnostics: Diagnostics
  readonly #maxConnections: number
  readonly #services: readonly Service[]
  readonly #budget = new RpcBudget()
  readonly #connections = new Set<RpcConnection>()
  readonly #servers: Server[] = []

  constructor(options: RpcServerOptions) {
    this.#diagnostics = options.diagnostics
    this.#maxConnections = options.maxConnections ?? MAX_RPC_CONNECTIONS
    this.#services = [conmonService(options.calls), holdfastService(options.calls)]
  }

  /** Accepts connections from a listening unix stream socket; this descriptor of it is ours from now on. */
  listen(fd: number): void {
    const server = createServer((socket) => this.#accept(socket))
    server.on('error', (error) => this.#diagnostics.error(`rpc: accept connections: ${error.message}`))
    this.#servers.push(server)
    server.listen({ fd })
  }

  /** Connections open now. */
  get connections(): number {
    return this.#connections.size
  }

  /** Stops accepting and closes every connection. The socket's path stays. */
  close(): void {
    for (const server of this.#servers.splice(0)) server.close()
    for (const connection of this.#connections) connection.close()
  }

  #accept(socket: Socket): void {
    if (this.#connections.size >= this.#maxConnections) {
      this.#diagnostics.warn(`rpc: refuse a connection: there are ${this.#connections.size} already`)
      socket.destroy()
      return
    }
    const connection = new RpcConnection(socket, {
      services: this.#services,
      budget: this.#budget,
      onUnexpectedError: (method, error) => {
        this.#diagnostics.error(`rpc: ${method}: unexpected error: ${describe(error)}`)
      },
    })
    this.#connections.add(connection)
    void connection.ended.then((reason) => {
      this.#connections.delete(connection)
      if (reason.type === 'disconnected') this.#diagnostics.debug(`rpc: ${reason.message}`)
      else this.#diagnostics.warn(`rpc: connection closed: ${reason.message}`)
    })
  }
}

/** The stack, which shows where the mistake is. */
function describe(error: unknown): string {
  return error instanceof Error && error.stack !== undefined ? error.stack : messageOf(error)
}
