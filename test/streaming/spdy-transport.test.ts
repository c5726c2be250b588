// npm spdy-transport as an independent client: it sends SETTINGS, WINDOW_UPDATE and more headers, 8 KiB chunks, and
// other zlib settings than Go. Two of its habits are patched: it wants `:status` and windows, which nobody in
// Kubernetes sends.

import assert from 'node:assert/strict'
import { once } from 'node:events'
import { request } from 'node:http'
import { createRequire } from 'node:module'
import type { Duplex, Readable } from 'node:stream'
import { test } from 'node:test'
import { decodeStatus } from '../../src/wire/remote-status.ts'
import { checkLeaks } from '../support/leak-check.ts'
import { eventually } from './support/eventually.ts'
import { pattern } from './support/fake-backend.ts'
import { echo, serve } from './support/forwarding.ts'
import { startServer } from './support/test-server.ts'

checkLeaks()

interface PeerWindow {
  update: (size: number, callback?: () => void) => void
}

interface Peer extends NodeJS.EventEmitter {
  // oxlint-disable-next-line no-underscore-dangle
  readonly _spdyState: {
    readonly window: { readonly send: PeerWindow }
    readonly streamWindow: { clone(id: number): { readonly send: PeerWindow } }
  }
  start(version: number): void
  request(options: object): Duplex
  ping(callback: () => void): void
}

type ResponseHandler = (this: unknown, frame: { headers: Record<string, string> }) => unknown

interface Transport {
  readonly connection: { create(socket: Duplex, options: object): Peer }
  readonly Stream: {
    readonly prototype: { _handleResponse: ResponseHandler }
  }
}

const transport = createRequire(import.meta.url)('spdy-transport') as Transport

// oxlint-disable no-underscore-dangle
const handleResponse = transport.Stream.prototype._handleResponse
transport.Stream.prototype._handleResponse = function (frame) {
  frame.headers[':status'] ??= '200'
  return handleResponse.call(this, frame)
}

function openWindows(peer: Peer): void {
  const ignore = (side: PeerWindow): void => {
    side.update = (_size, callback) => {
      if (callback) process.nextTick(callback)
    }
  }
  ignore(peer._spdyState.window.send)
  const { streamWindow } = peer._spdyState
  const clone = streamWindow.clone.bind(streamWindow)
  streamWindow.clone = (id) => {
    const window = clone(id)
    ignore(window.send)
    return window
  }
}
// oxlint-enable no-underscore-dangle

async function connect(url: string, protocol: string): Promise<{ peer: Peer; socket: Duplex }> {
  const headers = { Connection: 'Upgrade', Upgrade: 'SPDY/3.1', 'X-Stream-Protocol-Version': protocol }
  const sent = request(url, { method: 'POST', headers })
  sent.end()
  const [, socket, head] = (await once(sent, 'upgrade')) as [unknown, Duplex, Buffer]
  if (head.length > 0) socket.unshift(head)
  const peer = transport.connection.create(socket, { protocol: 'spdy', isServer: false, windowSize: 1 << 20 })
  openWindows(peer)
  peer.on('error', () => {})
  peer.start(3.1)
  return { peer, socket }
}

async function open(peer: Peer, headers: Record<string, string>): Promise<Duplex> {
  const stream = peer.request({ method: 'POST', path: '/', host: 'x', headers })
  stream.on('error', () => {})
  await once(stream, 'response')
  return stream
}

async function all(stream: Readable): Promise<Buffer> {
  const chunks: Buffer[] = []
  stream.on('data', (chunk: Buffer) => chunks.push(chunk))
  await once(stream, 'end')
  return Buffer.concat(chunks)
}

test('serves an exec with input and output to spdy-transport', async (t) => {
  const { exec, server } = startServer(t)
  const url = await exec(['echo', '7'], { stdin: true })
  const { peer, socket } = await connect(url, 'v4.channel.k8s.io')
  const error = await open(peer, { streamtype: 'error' })
  const stdin = await open(peer, { streamtype: 'stdin' })
  const stdout = await open(peer, { streamtype: 'stdout' })
  await new Promise<void>((resolve) => peer.ping(resolve))
  const [status, output] = [all(error), all(stdout)]
  stdin.end(pattern(1024 * 1024))
  assert.ok((await output).equals(pattern(1024 * 1024)))
  assert.deepEqual(decodeStatus(await status), { kind: 'exited', status: { code: 7 } })
  socket.destroy()
  await eventually('forgotten', () => server.sessions() === 0)
})

test('forwards a port for spdy-transport', async (t) => {
  const { portForward, server } = startServer(t)
  const port = String(await serve(t, echo))
  const { peer, socket } = await connect(await portForward(), 'portforward.k8s.io')
  for (const requestid of ['0', '1']) {
    const error = await open(peer, { streamtype: 'error', port, requestid })
    const text = all(error)
    error.end()
    const data = await open(peer, { streamtype: 'data', port, requestid })
    const output = all(data)
    data.end(pattern(500_000))
    assert.ok((await output).equals(pattern(500_000)))
    assert.equal((await text).length, 0)
  }
  socket.destroy()
  await eventually('forgotten', () => server.sessions() === 0)
})
