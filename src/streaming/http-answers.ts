// The HTTP side of the streaming server before an upgrade: routes, the choice of protocol, and refusals in the words
// of k8s.io/cri-streaming, which clients print (streaming.md §1.4).

import type { IncomingMessage, ServerResponse } from 'node:http'
import type { Duplex } from 'node:stream'
import {
  chooseProtocol,
  splitHeader,
  webSocketDefault,
  webSocketProtocols,
  type StreamProtocol,
} from '../wire/stream-protocol.ts'
import type { Session } from './session.ts'

/** An answer other than 101. */
export interface Refusal {
  readonly status: 400 | 403 | 404 | 405 | 503
  readonly body: string
  readonly headers?: readonly (readonly [string, string])[]
}

const reasons = {
  400: 'Bad Request',
  403: 'Forbidden',
  404: 'Not Found',
  405: 'Method Not Allowed',
  503: 'Service Unavailable',
} as const

/** Unknown, used, expired and misdirected tokens all look alike. */
export const notFound: Refusal = { status: 404, body: '404 page not found' }
/** A WebSocket protocol that is not served: clients then try SPDY. */
export const webSocketRefused: Refusal = { status: 403, body: '' }

/** `/exec/TOKEN` and its two siblings; undefined: no such path. */
export function parseRoute(url: string | undefined): { kind: Session['kind']; token: string } | undefined {
  const [, kind, token] = /^\/(exec|attach|portforward)\/([A-Za-z0-9_-]+)(?:\?.*)?$/.exec(url ?? '') ?? []
  return token === undefined ? undefined : { kind: kind as Session['kind'], token }
}

/** Everything that does not ask for a WebSocket counts as SPDY. */
export function asksForWebSocket(request: IncomingMessage): boolean {
  return request.headers.upgrade?.toLowerCase() === 'websocket' && asksForUpgrade(request)
}

/** The protocol that this WebSocket request gets; undefined: none of the client's is known. */
export function webSocketProtocolOf(request: IncomingMessage): StreamProtocol | undefined {
  const offered = splitHeader(request.headersDistinct['sec-websocket-protocol'])
  return offered.length === 0 ? webSocketDefault : chooseProtocol(offered, webSocketProtocols)
}

/** The protocol that this SPDY request gets, or why it gets none. */
export function spdyProtocolOf(
  request: IncomingMessage,
  accepted: readonly StreamProtocol[],
): StreamProtocol | Refusal {
  const lines = request.headersDistinct['x-stream-protocol-version']
  if (lines === undefined) {
    const count = Object.keys(request.headersDistinct).filter((name) => name !== 'host').length
    return bad(`header X-Stream-Protocol-Version does not exist in request with ${count} headers`)
  }
  const offered = splitHeader(lines)
  if (offered.length === 0) {
    return bad(`header X-Stream-Protocol-Version contains [${lines.join(' ')}], but no valid protocols`)
  }
  const names = accepted.map(({ name }) => name)
  const protocol = chooseProtocol(offered, accepted)
  if (protocol === undefined) {
    const body = `client supports [${offered.join(' ')}], server accepts [${names.join(' ')}]`
    return {
      status: 403,
      body: `unable to upgrade: unable to negotiate protocol: ${body}`,
      headers: names.map((name) => ['X-Accepted-Stream-Protocol-Versions', name] as const),
    }
  }
  if (request.headers.upgrade?.toLowerCase() !== 'spdy/3.1' || !asksForUpgrade(request)) {
    const { connection = '', upgrade = '' } = request.headers
    return bad(`missing upgrade headers in request: Connection "${connection}", Upgrade "${upgrade}"`)
  }
  if (Number(request.headers['content-length'] ?? 0) !== 0 || request.headers['transfer-encoding']) {
    return bad('request has a body')
  }
  return protocol
}

/** Answers a request that did not ask for an upgrade. */
export function refuse(response: ServerResponse, refusal: Refusal): void {
  response.shouldKeepAlive = false
  response.statusCode = refusal.status
  for (const [name, value] of headersOf(refusal)) response.appendHeader(name, value)
  response.end(bodyOf(refusal))
}

/** Answers on a socket that Node has handed over, and closes it. */
export function refuseUpgrade(socket: Duplex, refusal: Refusal): void {
  const lines = [
    `HTTP/1.1 ${refusal.status} ${reasons[refusal.status]}`,
    ...headersOf(refusal).map(([name, value]) => `${name}: ${value}`),
    `Content-Length: ${Buffer.byteLength(bodyOf(refusal))}`,
    'Connection: close',
  ]
  socket.once('finish', () => socket.destroy())
  socket.end(`${lines.join('\r\n')}\r\n\r\n${bodyOf(refusal)}`)
}

/** The 101 of a SPDY session; the client's own frames come next. */
export function acceptSpdy(socket: Duplex, protocol: string): void {
  socket.write(
    'HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: SPDY/3.1\r\n' +
      `X-Stream-Protocol-Version: ${protocol}\r\n\r\n`,
  )
}

function asksForUpgrade(request: IncomingMessage): boolean {
  return request.headers.connection?.toLowerCase().includes('upgrade') === true
}

function bad(text: string): Refusal {
  return { status: 400, body: `unable to upgrade: ${text}` }
}

function headersOf(refusal: Refusal): readonly (readonly [string, string])[] {
  if (refusal.body === '') return []
  return [
    ['Content-Type', 'text/plain; charset=utf-8'],
    ['X-Content-Type-Options', 'nosniff'],
    ...(refusal.headers ?? []),
  ]
}

function bodyOf(refusal: Refusal): string {
  return refusal.body === '' ? '' : `${refusal.body}\n`
}
