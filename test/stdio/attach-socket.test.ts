// conmon's attach endpoint, seen from a client's socket.

import assert from 'node:assert/strict'
import { closeSync, existsSync, mkdtempSync, rmSync, statSync, unlinkSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { after, describe, test } from 'node:test'
import type { MonitorError } from '../../src/base/errors.ts'
import { deferred } from '../../src/base/lifetime.ts'
import type { RemoteStdio } from '../../src/base/remote-stdio.ts'
import { dupCloexec, pipe2, recvFds, sendFds, unixConnect } from '../../src/native/addon.ts'
import { WatchedFd } from '../../src/native/watched-fd.ts'
import { AttachSocket } from '../../src/stdio/attach-socket.ts'
import type { AttachSocketOptions } from '../../src/stdio/attach-socket.ts'
import { Fanout } from '../../src/stdio/fanout.ts'
import { checkLeaks } from '../support/leak-check.ts'
import { assertSame, pattern } from '../support/pattern.ts'
import { TestSink } from '../support/test-sinks.ts'

checkLeaks()

const directory = mkdtempSync(join(tmpdir(), 'holdfast-attach-'))
after(() => rmSync(directory, { recursive: true }))
let serial = 0

/** A client: packets as they come, input by hand. */
class Peer {
  readonly packets: Buffer[] = []
  ended = false
  readonly #fd: WatchedFd
  #wake: (() => void) | undefined

  constructor(path: string) {
    this.#fd = new WatchedFd(unixConnect(path, 'seqpacket'))
    this.read()
  }

  /** Data of one stream, joined. */
  data(id: number): Buffer {
    return Buffer.concat(
      this.packets.filter((packet) => packet[0] === id).map((packet) => packet.subarray(1)),
    )
  }

  send(input: Buffer | string): number {
    return sendFds(this.#fd.fd, Buffer.from(input as Buffer), [])
  }

  read(): void {
    this.#fd.watchReadable(() => this.#receive())
  }

  rest(): void {
    this.#fd.watchReadable(undefined)
  }

  async until(condition: () => boolean): Promise<void> {
    while (!condition()) await new Promise<void>((resolve) => (this.#wake = resolve))
  }

  close(): void {
    this.#fd.close()
  }

  #receive(): void {
    const message = recvFds(this.#fd.fd)
    if (message === null) return
    if (message.data.length > 0) this.packets.push(message.data)
    else {
      this.ended = true
      this.rest()
    }
    this.#wake?.()
  }
}

/** A container: two fan-outs, recorded input, and an end. */
class Container {
  readonly stdout = new Fanout()
  readonly stderr = new Fanout()
  readonly input = new TestSink()
  readonly over = deferred<void>()
  readonly disconnected: (MonitorError | undefined)[] = []
  readonly path = join(directory, `${serial++}`, 'run', 'attach')
  readonly socket: AttachSocket
  vanished = 0

  constructor(options: Partial<AttachSocketOptions> = {}) {
    this.socket = new AttachSocket(this.path, (remote) => this.#attach(remote), {
      onDisconnected: (_, error) => this.disconnected.push(error),
      ...options,
    })
  }

  end(): void {
    this.stdout.end()
    this.stderr.end()
    this.over.resolve()
  }

  async clients(count: number): Promise<void> {
    while (this.socket.clients !== count) await new Promise((resolve) => setImmediate(resolve))
  }

  async #attach(remote: RemoteStdio): Promise<void> {
    const own = deferred<void>()
    const drop = (error: MonitorError): void => own.reject(error)
    const leave = [this.stdout.add(remote.stdout!, drop), this.stderr.add(remote.stderr!, drop)]
    remote.gone.addEventListener('abort', () => {
      this.vanished++
      own.resolve()
    })
    remote.connectStdin?.(this.input)
    try {
      await Promise.race([own.promise, this.over.promise])
    } finally {
      for (const remove of leave) remove()
    }
  }
}

describe('an attach socket', () => {
  test('is made with its directories, for its owner only, and removed when closed', () => {
    const container = new Container()
    assert.equal(statSync(container.path).mode & 0o777, 0o700)
    assert.equal(statSync(join(container.path, '..')).mode & 0o777, 0o700)
    assert.ok(container.socket.reachable)
    container.socket.close()
    container.socket.close()
    assert.ok(!existsSync(container.path))
  })

  test('sends each stream under its id in packets of at most 8192 bytes, then done, once, and closes', async () => {
    const container = new Container()
    const peer = new Peer(container.path)
    await container.clients(1)
    const [out, err] = [pattern(100_000), pattern(20_000)]
    container.stdout.write(out)
    container.stderr.write(err)
    container.stdout.write(Buffer.from('tail'))
    container.stdout.end()
    container.stderr.end()
    await peer.until(() => peer.data(3).length === err.length)
    assert.ok(
      peer.packets.every((packet) => packet[0] !== 0),
      'done before the end',
    )
    container.over.resolve()
    await peer.until(() => peer.ended)
    assertSame(peer.data(2), Buffer.concat([out, Buffer.from('tail')]))
    assertSame(peer.data(3), err)
    assert.ok(peer.packets.every((packet) => packet.length <= 8192))
    assert.deepEqual(
      peer.packets.filter((packet) => packet[0] === 0),
      [Buffer.from([0])],
    )
    assert.deepEqual(peer.packets.at(-1), Buffer.from([0]))
    assert.deepEqual([container.socket.clients, container.disconnected], [0, [undefined]])
    peer.close()
    container.socket.close()
  })

  test('passes input on as it is: zero bytes, long packets, and before anybody takes it', async () => {
    const container = new Container()
    const peer = new Peer(container.path)
    const input = Buffer.concat([Buffer.from([0, 1, 0, 255]), pattern(32_768)])
    peer.send(input)
    peer.send('\0')
    await container.input.until(input.length + 1)
    assertSame(container.input.bytes, Buffer.concat([input, Buffer.from([0])]))
    peer.close()
    await container.clients(0)
    assert.deepEqual([container.input.ends, container.vanished], [1, 1])
    container.socket.close()
  })

  test('delivers the input of a client that leaves at once', async () => {
    const container = new Container()
    const peer = new Peer(container.path)
    peer.send('hello\n')
    peer.close()
    await container.input.until(100)
    assert.equal(container.input.bytes.toString(), 'hello\n')
    await container.clients(0)
    container.socket.close()
  })

  test('holds a client back whose input is not read', async () => {
    const container = new Container()
    container.input.keeping = true
    const peer = new Peer(container.path)
    await container.clients(1)
    let sent = 0
    for (let quiet = 0; quiet < 20;) {
      const length = peer.send(Buffer.alloc(32_768))
      if (length > 0) sent += length
      quiet = length > 0 ? 0 : quiet + 1
      await new Promise((resolve) => setImmediate(resolve))
    }
    assert.equal(container.input.length, 32_768)
    container.input.onWrite = () => setImmediate(() => container.input.drain())
    container.input.drain()
    peer.close()
    await container.input.until(sent + 1)
    assert.equal(container.input.length, sent)
    await container.clients(0)
    container.socket.close()
  })

  test('serves several clients, each with everything', async () => {
    const container = new Container()
    const peers = [1, 2, 3].map(() => new Peer(container.path))
    await container.clients(3)
    for (let i = 0; i < 50; i++) container.stdout.write(Buffer.from(`line ${i}\n`))
    peers[0]!.close()
    await container.clients(2)
    container.stdout.write(Buffer.from('last\n'))
    container.end()
    for (const peer of peers.slice(1)) {
      await peer.until(() => peer.ended)
      assert.match(peer.data(2).toString(), /^line 0\n[^]*line 49\nlast\n$/)
      peer.close()
    }
    container.socket.close()
  })

  test('drops a client that does not read, without done, and serves the others', async () => {
    const container = new Container()
    const [good, stalled] = [new Peer(container.path), new Peer(container.path)]
    stalled.rest()
    await container.clients(2)
    const chunk = pattern(65_536)
    let chunks = 0
    const send = async (): Promise<void> => {
      const drained = new Promise<void>((resolve) => (container.stdout.onDrain = resolve))
      chunks++
      if (!container.stdout.write(Buffer.from(chunk))) await drained
      await new Promise((resolve) => setImmediate(resolve))
    }
    while (container.disconnected.length === 0) await send()
    assert.equal(container.disconnected[0]?.code, 'resource-exhausted')
    assert.equal(container.socket.clients, 1)
    container.end()
    await good.until(() => good.ended)
    assert.equal(good.data(2).length, chunks * chunk.length)
    assert.equal(good.packets.at(-1)?.[0], 0)
    stalled.read()
    await stalled.until(() => stalled.ended)
    assert.ok(stalled.packets.every((packet) => packet[0] === 2))
    for (const peer of [good, stalled]) peer.close()
    container.socket.close()
  })

  test('waits with done until a slow client has taken all', async () => {
    const container = new Container()
    const peer = new Peer(container.path)
    peer.rest()
    await container.clients(1)
    container.stdout.write(pattern(500_000))
    container.end()
    for (let turn = 0; turn < 20; turn++) await new Promise((resolve) => setImmediate(resolve))
    assert.equal(container.socket.clients, 1)
    peer.read()
    await peer.until(() => peer.ended)
    assertSame(peer.data(2), pattern(500_000))
    assert.equal(peer.packets.at(-1)?.[0], 0)
    peer.close()
    container.socket.close()
  })

  test('goes on with its clients when it listens no more', async () => {
    const container = new Container()
    const peer = new Peer(container.path)
    await container.clients(1)
    container.socket.stopListening()
    assert.ok(!existsSync(container.path))
    container.stdout.write(Buffer.from('last words'))
    container.end()
    await peer.until(() => peer.ended)
    assert.equal(peer.data(2).toString(), 'last words')
    assert.equal(peer.packets.at(-1)?.[0], 0)
    peer.close()
    container.socket.close()
  })

  test('lets a client that shut its side down go on reading', async () => {
    const container = new Container()
    const connection = unixConnect(container.path, 'seqpacket')
    await container.clients(1)
    // An empty packet is what the end of input looks like, and keeps the connection.
    sendFds(connection, Buffer.alloc(0), [])
    await container.input.until(1)
    assert.equal(container.input.ends, 1)
    container.stdout.write(Buffer.from('still here'))
    assert.equal(recvFds(connection)?.data.toString(), '\u0002still here')
    assert.equal(container.vanished, 0)
    closeSync(connection)
    await container.clients(0)
    assert.equal(container.vanished, 1)
    container.socket.close()
  })

  test('closes descriptors that a client sends', async () => {
    const container = new Container()
    const [readEnd, writeEnd] = pipe2()
    const connection = unixConnect(container.path, 'seqpacket')
    sendFds(connection, Buffer.from('x'), [readEnd, writeEnd])
    await container.input.until(1)
    for (const fd of [readEnd, writeEnd, connection]) closeSync(fd)
    await container.clients(0)
    container.socket.close()
  })

  test('knows when its path was taken away, and then leaves the new one alone', () => {
    const container = new Container()
    unlinkSync(container.path)
    assert.ok(!container.socket.reachable)
    const { path } = container
    const second = new AttachSocket(path, () => Promise.resolve())
    assert.ok(!container.socket.reachable && second.reachable)
    container.socket.close()
    assert.ok(existsSync(path))
    second.close()
  })

  test('refuses a path where another socket listens', () => {
    const container = new Container()
    assert.throws(() => new AttachSocket(container.path, () => Promise.resolve()), { code: 'already-exists' })
    container.socket.close()
  })

  test('disconnects its clients when it is closed', async () => {
    const container = new Container()
    const peer = new Peer(container.path)
    await container.clients(1)
    container.socket.close()
    await peer.until(() => peer.ended)
    assert.deepEqual([container.vanished, container.disconnected], [1, [undefined]])
    peer.close()
  })

  test('ends a connection although a copy of it is held', async () => {
    const held: number[] = []
    const container = new Container({ onConnected: (fd) => held.push(dupCloexec(fd)) })
    const peer = new Peer(container.path)
    await container.clients(1)
    container.end()
    await peer.until(() => peer.ended)
    peer.close()
    closeSync(held[0]!)
    container.socket.close()
  })

  test('goes on in a successor with the listener and the connections of its predecessor', async () => {
    const held: number[] = []
    const predecessor = new Container({ onConnected: (fd) => held.push(dupCloexec(fd)) })
    const peer = new Peer(predecessor.path)
    await predecessor.clients(1)
    const attach = (remote: RemoteStdio): Promise<void> => {
      remote.stdout?.write(Buffer.from('live'))
      return Promise.resolve()
    }
    const successor = new AttachSocket(predecessor.path, attach, { fd: dupCloexec(predecessor.socket.fd) })
    successor.adopt(held[0]!)
    await peer.until(() => peer.ended)
    assert.deepEqual(peer.packets, [Buffer.from('\u0002live'), Buffer.from([0])])
    peer.close()
    await predecessor.clients(0)
    successor.close()
    assert.ok(!existsSync(predecessor.path))
    predecessor.socket.close()
  })
})
