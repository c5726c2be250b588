// gRPC on a unix socket: proto/cri.proto, handlers that return promises, MonitorError to gRPC status. It knows no CRI
// object.

import { closeSync, openSync } from 'node:fs'
import { lstat, mkdir, unlink } from 'node:fs/promises'
import { connect, createServer } from 'node:net'
import type { Server as SocketServer, Socket } from 'node:net'
import { basename, dirname } from 'node:path'
import { loadPackageDefinition, Server, ServerCredentials, status } from '@grpc/grpc-js'
import type { GrpcObject, sendUnaryData, ServerUnaryCall, ServiceClientConstructor } from '@grpc/grpc-js'
import { loadSync } from '@grpc/proto-loader'
import type { Diagnostics } from '../base/diagnostics.ts'
import { fromUnknown, isErrno, MonitorError } from '../base/errors.ts'
import type { ErrorCode } from '../base/errors.ts'
import { MAX_CRI_ERROR_BYTES, MAX_CRI_REQUEST_BYTES } from '../base/limits.ts'
import { RepairedConnection } from './repaired-connection.ts'

/** Answers one method. `gone` is aborted when the client gave up. */
export type Handler = (request: never, gone: AbortSignal) => object | Promise<object>

/** Handlers by method name. */
export type Handlers = Readonly<Record<string, Handler>>

/** sun_path holds 108 bytes with the zero at its end. */
const maxSocketPathBytes = 107

const statusOf: Record<ErrorCode, status> = {
  'invalid-argument': status.INVALID_ARGUMENT,
  'not-found': status.NOT_FOUND,
  'already-exists': status.ALREADY_EXISTS,
  'failed-precondition': status.FAILED_PRECONDITION,
  'resource-exhausted': status.RESOURCE_EXHAUSTED,
  'deadline-exceeded': status.DEADLINE_EXCEEDED,
  unavailable: status.UNAVAILABLE,
  unimplemented: status.UNIMPLEMENTED,
  canceled: status.CANCELLED,
  internal: status.INTERNAL,
}

/** Serves the services of one proto file on one unix socket. */
export class GrpcServer {
  readonly #server: Server
  readonly #sockets = new Set<Socket>()
  readonly #diagnostics: Diagnostics
  #listener: SocketServer | undefined
  #directory: number | undefined
  #path = ''

  /** `services` are named in full: `runtime.v1.RuntimeService`. */
  constructor(protoPath: string, services: Readonly<Record<string, Handlers>>, diagnostics: Diagnostics) {
    this.#diagnostics = diagnostics
    this.#server = new Server({
      'grpc.enable_channelz': 0,
      'grpc.max_receive_message_length': MAX_CRI_REQUEST_BYTES,
      'grpc.max_send_message_length': -1,
    })
    const root = loadPackageDefinition(loadSync(protoPath, { longs: String, enums: String, defaults: true }))
    for (const [name, handlers] of Object.entries(services)) {
      const { service } = find(root, name)
      const missing = Object.keys(service).filter((method) => handlers[method] === undefined)
      if (missing.length > 0)
        throw new MonitorError('internal', `serve ${name}: no handler for ${missing.join(', ')}`)
      const implementation = Object.entries(handlers).map(([method, handler]) => [
        method,
        this.#unary(method, handler),
      ])
      this.#server.addService(service, Object.fromEntries(implementation) as never)
    }
  }

  /** Listens, only for root. A socket that nobody answers on is replaced. */
  async listen(path: string): Promise<void> {
    await mkdir(dirname(path), { recursive: true, mode: 0o755 })
    const address = this.#shortPath(path)
    await removeStale(path, address)
    const injector = this.#server.createConnectionInjector(ServerCredentials.createInsecure())
    const listener = createServer({ allowHalfOpen: true }, (socket) => {
      this.#sockets.add(socket)
      socket.on('close', () => this.#sockets.delete(socket))
      injector.injectConnection(new RepairedConnection(socket))
    })
    this.#listener = listener
    this.#path = path
    const umask = process.umask(0o177)
    try {
      await new Promise<void>((resolve, reject) => {
        listener.once('error', reject)
        listener.listen(address, resolve)
      })
    } catch (error) {
      throw MonitorError.within(`listen on ${path}`, error)
    } finally {
      process.umask(umask)
    }
    listener.on('error', (error) => this.#diagnostics.error(`accept on ${path}: ${error.message}`))
  }

  /** Stops listening and cuts what is still open; calls in flight fail. */
  async close(): Promise<void> {
    const listener = this.#listener
    this.#listener = undefined
    if (listener !== undefined) {
      const closed = new Promise<void>((resolve) => listener.close(() => resolve()))
      this.#server.forceShutdown()
      for (const socket of this.#sockets) socket.destroy()
      await closed
      await unlink(this.#path).catch(() => undefined)
    }
    if (this.#directory !== undefined) closeSync(this.#directory)
    this.#directory = undefined
  }

  /** The path itself, or one through a descriptor of its directory when it is too long for a socket address. */
  #shortPath(path: string): string {
    if (Buffer.byteLength(path) <= maxSocketPathBytes) return path
    this.#directory = openSync(dirname(path), 'r')
    return `/proc/self/fd/${this.#directory}/${basename(path)}`
  }

  #unary(
    method: string,
    handler: Handler,
  ): (call: ServerUnaryCall<never, object>, done: sendUnaryData<object>) => void {
    return (call, done) => {
      const gone = new AbortController()
      call.on('cancelled', () => gone.abort())
      Promise.resolve()
        .then(() => handler(call.request, gone.signal))
        .then(
          (answer) => done(null, answer),
          (error: unknown) => {
            const { code, message } = fromUnknown(error)
            this.#diagnostics.debug(`${method}: ${code}: ${message}`)
            // What is internal is news for whoever runs the daemon, not only for the client.
            if (code === 'internal') this.#diagnostics.warn(`${method}: ${message}`)
            done({ code: statusOf[code], details: shorten(message) })
          },
        )
    }
  }
}

function find(root: GrpcObject, name: string): ServiceClientConstructor {
  let found: GrpcObject[string] | undefined = root
  for (const part of name.split('.')) found = (found as GrpcObject | undefined)?.[part]
  if (typeof found !== 'function')
    throw new MonitorError('internal', `service ${name} is not in the proto file`)
  return found
}

function shorten(text: string): string {
  const bytes = Buffer.from(text)
  return bytes.length <= MAX_CRI_ERROR_BYTES ? text : `${bytes.subarray(0, MAX_CRI_ERROR_BYTES).toString()}…`
}

/** Removes a socket left by a daemon that was killed. Refuses to take the place of one that answers, or of another file. */
async function removeStale(path: string, address: string): Promise<void> {
  try {
    if (!(await lstat(path)).isSocket()) {
      throw new MonitorError(
        'already-exists',
        `listen on ${path}: the path is taken by something that is no socket`,
      )
    }
  } catch (error) {
    if (isErrno(error, 'ENOENT')) return
    throw error
  }
  if (await answers(address)) {
    throw new MonitorError('already-exists', `listen on ${path}: another program listens there`)
  }
  await unlink(path)
}

async function answers(address: string): Promise<boolean> {
  return await new Promise((resolve) => {
    const probe = connect(address)
    probe.once('connect', () => {
      probe.destroy()
      resolve(true)
    })
    probe.once('error', () => resolve(false))
  })
}
