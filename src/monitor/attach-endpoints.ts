// conmon's attach sockets: where attachContainer listens, who is connected, and what the keeper holds of both, so that a
// successor goes on with them. They end with their container.

import { MonitorError } from '../base/errors.ts'
import type { Container } from '../container/container.ts'
import type { ContainerContext } from '../container/context.ts'
import { encodeRecord } from '../container/record.ts'
import { AttachSocket } from '../stdio/attach-socket.ts'

/** `attach/N`, the keeper's entry of a listener; its connections are `attach/N/FD`. */
export interface AttachRecord {
  readonly containerId: string
  readonly socketPath: string
  readonly stopAfterStdinEof: boolean
}

/** A listener and its connections that a predecessor left. */
export interface HeldEndpoint {
  readonly name: string
  readonly fd: number
  readonly connections: readonly { readonly name: string; readonly fd: number }[]
}

export class AttachEndpoints {
  readonly #context: ContainerContext
  readonly #sockets = new Map<string, AttachSocket>()
  #last = 0

  constructor(context: ContainerContext) {
    this.#context = context
  }

  /** Listens at the path until the container has exited. A path that is listened at already just succeeds. */
  async open(container: Container, record: AttachRecord): Promise<void> {
    if (this.#sockets.get(record.socketPath)?.reachable === true) return
    const name = `attach/${process.pid}-${++this.#last}`
    let socket: AttachSocket
    try {
      socket = this.#listen(container, record, { name, held: new Map() })
    } catch (error) {
      throw MonitorError.within(`attach to container ${container.id}: listen on ${record.socketPath}`, error)
    }
    await this.#context.keeper.hold(name, { fd: socket.fd, record: encodeRecord(record) })
  }

  /** Goes on where a predecessor listened, with its clients. */
  adopt(container: Container, record: AttachRecord, endpoint: HeldEndpoint): void {
    const held = new Map(endpoint.connections.map(({ name, fd }) => [fd, name]))
    const socket = this.#listen(container, record, { name: endpoint.name, held, fd: endpoint.fd })
    for (const { fd } of endpoint.connections) socket.adopt(fd)
  }

  close(): void {
    for (const socket of this.#sockets.values()) socket.close()
    this.#sockets.clear()
  }

  #listen(
    container: Container,
    record: AttachRecord,
    { name, held, fd }: { name: string; held: Map<number, string>; fd?: number },
  ): AttachSocket {
    const stdinOnce = record.stopAfterStdinEof ? true : undefined
    const socket = new AttachSocket(
      record.socketPath,
      (remote) => container.attach(remote, { stdinOnce, detachesAtEof: false, replayBytes: 0 }),
      {
        ...(fd === undefined ? {} : { fd }),
        onConnected: (connection) => {
          if (held.has(connection)) return
          const entry = `${name}/${connection}-${++this.#last}`
          held.set(connection, entry)
          this.#quietly(this.#context.keeper.hold(entry, { fd: connection }))
        },
        onDisconnected: (connection, error) => {
          const entry = held.get(connection)
          held.delete(connection)
          if (entry !== undefined) this.#quietly(this.#context.keeper.drop(entry))
          if (error !== undefined)
            this.#context.diagnostics.warn(`attach to container ${container.id}: ${error.message}`)
        },
      },
    )
    this.#sockets.set(record.socketPath, socket)
    // Its clients have the last of the output still to come, and `done` behind it.
    const stop = (): void => {
      if (this.#sockets.get(record.socketPath) === socket) this.#sockets.delete(record.socketPath)
      socket.stopListening()
      this.#quietly(this.#context.keeper.drop(name))
    }
    container.exited.then(stop, stop)
    return socket
  }

  #quietly(step: Promise<void>): void {
    step.catch((error: unknown) => this.#context.diagnostics.debug(`attach sockets: ${String(error)}`))
  }
}
