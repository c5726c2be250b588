// Listening, dialling, and SOCK_SEQPACKET conversations.

import assert from 'node:assert/strict'
import { once } from 'node:events'
import { closeSync, existsSync, mkdtempSync, rmSync, writeFileSync } from 'node:fs'
import { createServer } from 'node:net'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { after, describe, test } from 'node:test'
import { acceptFd, pipe2, recvFds, sendFds, unixConnect, unixListen } from '../../src/native/addon.ts'
import {
  SeqpacketConnection,
  SeqpacketServer,
  connectUnix,
  listenUnix,
} from '../../src/native/unix-socket.ts'
import { checkLeaks } from '../support/leak-check.ts'

checkLeaks()

const directory = mkdtempSync(join(tmpdir(), 'holdfast-unix-'))
after(() => rmSync(directory, { recursive: true }))
let serial = 0
const newPath = (): string => join(directory, `s${serial++}`)

describe('listenUnix and connectUnix', () => {
  test('carry bytes both ways at a path of 300 bytes', async () => {
    const deep = mkdtempSync(join(directory, 'd'.repeat(200)))
    const path = join(deep, 'x'.repeat(60))
    const server = createServer({ allowHalfOpen: true }, (socket) => socket.pipe(socket))
    server.listen({ fd: listenUnix(path) })
    await once(server, 'listening')
    const socket = connectUnix(path)
    socket.end('ping')
    const [data] = (await once(socket, 'data')) as [Buffer]
    assert.equal(data.toString(), 'ping')
    await once(socket, 'close')
    server.close()
    await once(server, 'close')
  })

  test('replace a socket that nobody listens on', () => {
    const path = newPath()
    closeSync(listenUnix(path))
    assert.ok(existsSync(path))
    closeSync(listenUnix(path))
  })

  test('refuse a path where somebody listens, of either type', () => {
    const path = newPath()
    const listener = listenUnix(path)
    assert.throws(() => listenUnix(path), { code: 'already-exists' })
    assert.throws(() => listenUnix(path, 'seqpacket'), { code: 'already-exists' })
    closeSync(listener)
  })

  test('refuse to replace a file that is no socket', () => {
    const path = newPath()
    writeFileSync(path, 'precious')
    assert.throws(() => listenUnix(path), { code: 'already-exists' })
  })

  test('say when nobody listens', () => {
    const path = newPath()
    assert.throws(() => connectUnix(path), { code: 'unavailable', message: /connect to .*No such file/ })
  })
})

/** What a connection reported, in order, and a wait for the next report. */
class Reports {
  readonly seen: string[] = []
  #wake: (() => void) | undefined

  listener = {
    message: (data: Buffer, fds: number[]): void => {
      for (const fd of fds) closeSync(fd)
      this.#add(
        `message ${data.length > 20 ? data.length : data.toString()}${fds.length > 0 ? ` +${fds.length}` : ''}`,
      )
    },
    inputEnded: (): void => this.#add('inputEnded'),
    hungUp: (): void => this.#add('hungUp'),
    drained: (): void => this.#add('drained'),
  }

  async until(last: string): Promise<void> {
    while (!this.seen.includes(last)) await new Promise<void>((resolve) => (this.#wake = resolve))
  }

  #add(what: string): void {
    this.seen.push(what)
    this.#wake?.()
  }
}

/** A connection under test and the raw descriptor of its peer. */
function connected(): { connection: SeqpacketConnection; peer: number; reports: Reports } {
  const path = newPath()
  const listener = unixListen(path, 'seqpacket')
  const peer = unixConnect(path, 'seqpacket')
  const reports = new Reports()
  const connection = new SeqpacketConnection(acceptFd(listener)!, reports.listener)
  closeSync(listener)
  return { connection, peer, reports }
}

describe('a seqpacket connection', () => {
  test('reports messages, then the end of input, then that the peer is gone', async () => {
    const { connection, peer, reports } = connected()
    const [readEnd, writeEnd] = pipe2()
    sendFds(peer, Buffer.from('one'), [])
    sendFds(peer, Buffer.from('two'), [readEnd, writeEnd])
    closeSync(peer)
    closeSync(readEnd)
    closeSync(writeEnd)
    await reports.until('hungUp')
    assert.deepEqual(reports.seen, ['message one', 'message two +2', 'inputEnded', 'hungUp'])
    assert.equal(connection.send(Buffer.from('into the void')), true)
    connection.close()
    connection.close()
  })

  test('reports every message of a peer that left without reading its own', async () => {
    const { connection, peer, reports } = connected()
    connection.send(Buffer.from('never read'))
    for (let i = 0; i < 30; i++) sendFds(peer, Buffer.from(`m${i}`), [])
    closeSync(peer)
    await reports.until('inputEnded')
    assert.equal(reports.seen.filter((what) => what.startsWith('message')).length, 30)
    await reports.until('hungUp')
    connection.close()
  })

  test('holds the peer back while paused, and notices there that it has gone', async () => {
    const { connection, peer, reports } = connected()
    connection.pause()
    let sent = 0
    while (sendFds(peer, Buffer.alloc(8192), []) > 0) sent++
    await new Promise((resolve) => setImmediate(resolve))
    assert.deepEqual(reports.seen, [])
    closeSync(peer)
    await reports.until('hungUp')
    connection.resume()
    await reports.until('inputEnded')
    assert.equal(reports.seen.filter((what) => what === 'message 8192').length, sent)
    connection.close()
  })

  test('says when it has room again', async () => {
    const { connection, peer, reports } = connected()
    while (connection.send(Buffer.alloc(8192)));
    while (recvFds(peer) !== null);
    await reports.until('drained')
    assert.equal(connection.send(Buffer.from('more')), true)
    connection.close()
    assert.equal(recvFds(peer)!.data.toString(), 'more')
    closeSync(peer)
  })

  test('delivers its last messages although input was left unread', () => {
    const { connection, peer } = connected()
    sendFds(peer, Buffer.from('unread'), [])
    connection.send(Buffer.from('last words'))
    connection.close()
    assert.equal(recvFds(peer)!.data.toString(), 'last words')
    assert.equal(recvFds(peer)!.data.length, 0)
    closeSync(peer)
  })

  test('ends when a message is too long', async () => {
    const { connection, peer, reports } = connected()
    sendFds(peer, Buffer.alloc(128 * 1024 + 1), [])
    await reports.until('inputEnded')
    assert.throws(() => sendFds(peer, Buffer.from('x'), []), { code: 'EPIPE' })
    connection.close()
    closeSync(peer)
  })
})

test('a seqpacket server accepts all that wait, until it is closed', async () => {
  const path = newPath()
  const clients = Array.from({ length: 40 }, () => 0)
  const listener = listenUnix(path, 'seqpacket')
  clients.forEach((_, i) => (clients[i] = unixConnect(path, 'seqpacket')))
  const accepted: number[] = []
  await new Promise<void>((resolve) => {
    const server = new SeqpacketServer(listener, (fd) => {
      accepted.push(fd)
      if (accepted.length < clients.length) return
      server.close()
      server.close()
      resolve()
    })
  })
  assert.equal(accepted.length, clients.length)
  for (const fd of [...accepted, ...clients]) closeSync(fd)
  assert.throws(() => unixConnect(path, 'seqpacket'), { code: 'ECONNREFUSED' })
})
