// The process behind pod-servers.ts: listens on what its argument says, then prints one line and serves until killed.

import { createServer, type Socket } from 'node:net'
import { setTimeout as sleep } from 'node:timers/promises'
import type { PodBehaviour, PodListener } from './pod-servers.ts'

const lateMs = 1000
let counted = 0

const behaviours: Record<PodBehaviour, (socket: Socket) => void> = {
  echo: (socket) => void socket.pipe(socket),
  reset: (socket) => void socket.resetAndDestroy(),
  'answer-unread': (socket) => {
    socket.pause()
    socket.write('HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok')
    setTimeout(() => socket.destroy(), lateMs)
  },
  'answer-end': (socket) => {
    socket.resume()
    socket.on('end', () => setTimeout(() => socket.end('Reply'), lateMs))
  },
  'send-first': (socket) => {
    counted = 0
    socket.on('data', (chunk: Buffer) => {
      counted += chunk.length
    })
    socket.end(Buffer.alloc(1024 * 1024, 'r'))
  },
  tell: (socket) => void socket.end(String(counted)),
  download: (socket) => void download(socket),
  'answer-late': (socket) => {
    socket.resume()
    setTimeout(() => socket.end('late'), lateMs)
  },
  greet: (socket) => void socket.end(`${socket.localPort}`),
}

for (const { port, host = '127.0.0.1', does } of JSON.parse(process.argv[2] ?? '[]') as PodListener[]) {
  const server = createServer({ allowHalfOpen: true }, (socket) => {
    socket.on('error', () => socket.destroy())
    behaviours[does](socket)
  })
  await new Promise<void>((resolve) => server.listen({ port, host, ipv6Only: host === '::' }, resolve))
}
process.stdout.write('listening\n')

async function download(socket: Socket): Promise<void> {
  for (let i = 0; i < 64 && !socket.destroyed; i++) {
    socket.write(Buffer.alloc(65_536, i))
    await sleep(20)
  }
  socket.end()
}
