// The control address of the Go driver's table: POST /url with a request as JSON, answered with one stream URL.

import { createServer } from 'node:http'
import type { IncomingMessage, Server } from 'node:http'
import type { AddressInfo } from 'node:net'
import { messageOf } from '../../src/base/errors.ts'

/** What is asked for, in the driver's words. */
export interface UrlRequest {
  readonly kind: 'exec' | 'attach' | 'portforward'
  readonly id: string
  readonly cmd: readonly string[]
  readonly tty: boolean
  readonly stdin: boolean
  readonly stdout: boolean
  readonly stderr: boolean
}

export interface Control {
  readonly address: string
  close(): Promise<void>
}

/** Serves until closed; a rejection of `ask` is answered with its message. */
export async function serveControl(ask: (request: UrlRequest) => Promise<string>): Promise<Control> {
  const server = createServer((request, response) => {
    readAll(request)
      .then(async (body) => await ask(JSON.parse(body) as UrlRequest))
      .then(
        (url) => response.end(`${url}\n`),
        (error: unknown) => response.writeHead(400).end(messageOf(error)),
      )
  })
  await listenLocal(server)
  return { address: `http://127.0.0.1:${portOf(server)}`, close: async () => await closeServer(server) }
}

/** Listens on a free port of 127.0.0.1. */
export async function listenLocal(server: Server): Promise<void> {
  await new Promise<void>((resolve) => {
    server.listen(0, '127.0.0.1', resolve)
  })
}

export function portOf(server: Server): number {
  return (server.address() as AddressInfo).port
}

/** Closes a server with every connection that it has. */
export async function closeServer(server: Server): Promise<void> {
  await new Promise<void>((resolve) => {
    server.close(() => resolve())
    server.closeAllConnections()
  })
}

async function readAll(request: IncomingMessage): Promise<string> {
  let body = ''
  for await (const chunk of request) body += String(chunk)
  return body
}
