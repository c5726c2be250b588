// The streaming server of a monitor: one HTTP listener on loopback, started on first use, whose URLs carry a
// single-use token. It takes tokens, upgrades connections and keeps count of sessions; it runs nothing itself.

import type { IncomingMessage, Server, ServerResponse } from 'node:http'
import type { Server as NetServer } from 'node:net'
import type { Duplex } from 'node:stream'
import type { WebSocketServer } from 'ws'
import type { Diagnostics } from '../base/diagnostics.ts'
import { MonitorError, messageOf } from '../base/errors.ts'
import { withDeadline } from '../base/lifetime.ts'
import {
  CLOSE_TIMEOUT_MS,
  IDLE_TIMEOUT_MS,
  KEEPALIVE_MS,
  MAX_PENDING_TOKENS,
  STREAM_CREATION_TIMEOUT_MS,
  TOKEN_LIFETIME_MS,
} from '../base/limits.ts'
import { portForwardProtocol, spdyProtocols, type StreamProtocol } from '../wire/stream-protocol.ts'
import type { SessionLimits } from './client-socket.ts'
import { systemClock, type Clock } from './clock.ts'
import {
  acceptSpdy,
  asksForWebSocket,
  notFound,
  parseRoute,
  refuse,
  refuseUpgrade,
  spdyProtocolOf,
  webSocketProtocolOf,
  webSocketRefused,
  type Refusal,
} from './http-answers.ts'
import { PortForward } from './port-forward.ts'
import { runSession } from './run-session.ts'
import { SessionTokens } from './session-tokens.ts'
import type { Session, StreamingBackend } from './session.ts'
import { SpdyTransport } from './spdy.ts'
import { createHandshaker, WebSocketTransport } from './websocket.ts'

export interface StreamingServerOptions {
  readonly backend: StreamingBackend
  readonly diagnostics: Diagnostics
  /** Where to listen; loopback and any free port unless told otherwise. */
  readonly address?: string
  readonly port?: number
  readonly limits?: Partial<SessionLimits> & { readonly maxPending?: number; readonly tokenMs?: number }
  readonly clock?: Clock
}

/** A connection whose request asks for no upgrade, or never ends, is closed by then. */
const headersTimeoutMs = 10_000
/** Sockets of all kinds, so that idle connections cannot take every descriptor. */
const maxConnections = 4096
const stopping = 'the monitor is stopping'
const closingDown: Refusal = { status: 503, body: stopping }

/** What Node hands over with a request to upgrade. */
interface Upgrade {
  readonly request: IncomingMessage
  readonly socket: Duplex
  /** Bytes that came behind the request. */
  readonly head: Buffer
}

/** Serves exec, attach and port-forward to clients that hold a URL. */
export class StreamingServer {
  /** Called with the listening socket's descriptor each time the server starts to listen. */
  onListening: ((fd: number) => void) | undefined
  readonly #options: StreamingServerOptions
  readonly #clock: Clock
  readonly #limits: SessionLimits
  readonly #live = new Map<Duplex, { stop(message: string): void }>()
  readonly #tokens: SessionTokens
  #http: Server | undefined
  #origin: Promise<string> | undefined
  #handshaker: Promise<WebSocketServer> | undefined
  #closing = false

  constructor(options: StreamingServerOptions) {
    this.#options = options
    this.#clock = options.clock ?? systemClock
    this.#limits = {
      idleMs: IDLE_TIMEOUT_MS,
      creationMs: STREAM_CREATION_TIMEOUT_MS,
      closeMs: CLOSE_TIMEOUT_MS,
      ...options.limits,
    }
    this.#tokens = new SessionTokens({
      clock: this.#clock,
      // Loaded with the first token.
      randomToken: () => process.getBuiltinModule('node:crypto').randomBytes(16).toString('base64url'),
      maxPending: options.limits?.maxPending ?? MAX_PENDING_TOKENS,
      lifetimeMs: options.limits?.tokenMs ?? TOKEN_LIFETIME_MS,
    })
  }

  /** The URL at which one client may run this session, once, within a minute. */
  async issue(session: Session): Promise<string> {
    this.#origin ??= this.#listen({
      host: this.#options.address ?? '127.0.0.1',
      port: this.#options.port ?? 0,
    })
    const origin = await this.#origin
    return `${origin}/${session.kind}/${this.#tokens.issue(session)}`
  }

  /** The descriptor of the listening socket, for whoever keeps it alive beyond this process. */
  listenFd(): number | undefined {
    return this.#http === undefined ? undefined : descriptorOf(this.#http)
  }

  /** Goes on with a predecessor's listening socket, which belongs to this server from now on. */
  adopt(fd: number): void {
    this.#origin = this.#listen({ fd })
    this.#origin.catch((error: unknown) => this.#options.diagnostics.error(messageOf(error)))
  }

  /** Clients that are connected to a session. */
  sessions(): number {
    return this.#live.size
  }

  /** Stops listening and ends every session with a failure; resolves when the last client is gone. */
  async close(): Promise<void> {
    this.#closing = true
    await this.#origin?.catch(() => {})
    const http = this.#http
    this.#http = undefined
    this.#origin = undefined
    if (http === undefined) return
    const closed = new Promise<void>((resolve) => http.close(() => resolve()))
    http.closeAllConnections()
    const ends = [...this.#live].map(([socket, session]) => {
      session.stop(stopping)
      return new Promise<void>((resolve) => socket.once('close', () => resolve()))
    })
    // A client that does not read its failure is not waited for.
    await withDeadline(Promise.all<void>([closed, ...ends]), 2 * this.#limits.closeMs, () => {
      for (const socket of this.#live.keys()) socket.destroy()
      return []
    })
  }

  async #listen(where: { host: string; port: number } | { fd: number }): Promise<string> {
    if (this.#closing) throw new MonitorError('unavailable', 'issue stream url: the server is closing')
    const { createServer } = await import('node:http')
    const http = createServer({
      // A write that does not fit is followed by 'drain' whatever its size: sinks count on it.
      highWaterMark: 1,
      noDelay: true,
      keepAlive: true,
      keepAliveInitialDelay: KEEPALIVE_MS,
      headersTimeout: headersTimeoutMs,
      requestTimeout: headersTimeoutMs,
      requireHostHeader: false,
    })
    http.maxConnections = maxConnections
    http.on('request', (request, response) => this.#onRequest(request, response))
    http.on('upgrade', (request, socket, head) => this.#onUpgrade({ request, socket, head }))
    try {
      await new Promise<void>((resolve, reject) => {
        http.once('error', reject)
        http.listen(where, resolve)
      })
    } catch (error) {
      this.#origin = undefined
      throw MonitorError.within(`listen for streams on ${JSON.stringify(where)}`, error, 'unavailable')
    }
    // Later ones are about a single connection that could not be accepted.
    http.on('error', (error) => this.#options.diagnostics.warn(`accept stream client: ${error.message}`))
    this.#http = http
    const fd = descriptorOf(http)
    if (fd !== undefined) this.onListening?.(fd)
    const address = http.address()
    if (address === null || typeof address === 'string') {
      throw new MonitorError('internal', 'listen for streams: not a TCP socket')
    }
    return `http://${address.family === 'IPv6' ? `[${address.address}]` : address.address}:${address.port}`
  }

  #onRequest(request: IncomingMessage, response: ServerResponse): void {
    const session = this.#take(request)
    if ('status' in session) return refuse(response, session)
    // A request without an upgrade is always refused; only the reason differs.
    const protocol = spdyProtocolOf(request, acceptedBy(session))
    return refuse(response, 'status' in protocol ? protocol : notFound)
  }

  #onUpgrade(upgrade: Upgrade): void {
    const { request, socket } = upgrade
    socket.on('error', () => socket.destroy())
    const session = this.#take(request)
    if ('status' in session) return refuseUpgrade(socket, session)
    if (!asksForWebSocket(request)) return this.#upgradeSpdy(session, upgrade)
    this.#upgradeWebSocket(session, upgrade).catch((error: unknown) => {
      this.#options.diagnostics.error(`serve ${session.kind}: ${messageOf(error)}`)
      socket.destroy()
    })
    return undefined
  }

  #upgradeSpdy(session: Session, { request, socket, head }: Upgrade): void {
    const protocol = spdyProtocolOf(request, acceptedBy(session))
    if ('status' in protocol) return refuseUpgrade(socket, protocol)
    if (this.#closing) return refuseUpgrade(socket, closingDown)
    acceptSpdy(socket, protocol.name)
    const { backend } = this.#options
    const common = { clock: this.#clock, limits: this.#limits }
    if (session.kind === 'portforward') {
      const forward = new PortForward(socket, { ...common, session, backend })
      this.#enter(socket, forward)
      return forward.start(head)
    }
    const onReady = (transport: SpdyTransport) => void runSession(session, backend, transport)
    const transport = new SpdyTransport(socket, { ...common, session, protocol, onReady })
    this.#enter(socket, transport)
    return transport.start(head)
  }

  async #upgradeWebSocket(session: Session, { request, socket, head }: Upgrade): Promise<void> {
    const protocol = webSocketProtocolOf(request)
    if (protocol === undefined || session.kind === 'portforward') {
      return refuseUpgrade(socket, webSocketRefused)
    }
    this.#handshaker ??= createHandshaker()
    const handshaker = await this.#handshaker
    if (this.#closing) return refuseUpgrade(socket, closingDown)
    handshaker.handleUpgrade(request, socket, head, (webSocket) => {
      const options = { session, protocol, clock: this.#clock, limits: this.#limits }
      const transport = new WebSocketTransport(webSocket, socket, options)
      this.#enter(socket, transport)
      void runSession(session, this.#options.backend, transport)
    })
    return undefined
  }

  #enter(socket: Duplex, session: { stop(message: string): void }): void {
    this.#live.set(socket, session)
    socket.once('close', () => this.#live.delete(socket))
  }

  /** Spends the request's token. */
  #take(request: IncomingMessage): Session | Refusal {
    const route = parseRoute(request.url)
    if (route === undefined) return notFound
    if (request.method !== 'GET' && request.method !== 'POST') {
      return { status: 405, body: '405: Method Not Allowed', headers: [['Allow', 'GET, POST']] }
    }
    const session = this.#tokens.take(route.token)
    return session?.kind === route.kind ? session : notFound
  }
}

/** The SPDY protocols of this kind of session. */
function acceptedBy(session: Session): readonly StreamProtocol[] {
  return session.kind === 'portforward' ? [portForwardProtocol] : spdyProtocols
}

/** Node offers no other way to the descriptor of a listening socket. */
function descriptorOf(server: NetServer): number | undefined {
  // oxlint-disable-next-line no-underscore-dangle
  const fd = (server as unknown as { _handle?: { fd?: number } })._handle?.fd
  return fd === undefined || fd < 0 ? undefined : fd
}
