// What stands in a pod, and how client-go opens a forwarded connection.

import { once } from 'node:events'
import { createServer, type AddressInfo, type Socket } from 'node:net'
import type { TestContext } from 'node:test'
import { data, type SpdyClient } from './spdy-client.ts'

export const protocols = ['portforward.k8s.io']

/** A server in the pod; returns its port. */
export async function serve(
  t: TestContext,
  onSocket: (socket: Socket) => void,
  host = '127.0.0.1',
): Promise<number> {
  const sockets = new Set<Socket>()
  const server = createServer({ allowHalfOpen: true }, (socket) => {
    sockets.add(socket)
    socket.on('error', () => {})
    onSocket(socket)
  })
  server.listen(0, host)
  await once(server, 'listening')
  t.after(() => {
    for (const socket of sockets) socket.destroy()
    server.close()
  })
  return (server.address() as AddressInfo).port
}

let requests = 0

/** Opens a pair as client-go does: error stream, its FIN, data stream. */
export async function forward(client: SpdyClient, port: number): Promise<{ error: number; stream: number }> {
  const requestid = String(requests++)
  const error = await client.open({ streamtype: 'error', port: String(port), requestid })
  client.send(data(error, '', true))
  const stream = await client.open({ streamtype: 'data', port: String(port), requestid })
  return { error, stream }
}

export const echo = (socket: Socket): void => void socket.pipe(socket)
