// conmon's attach endpoint: a SOCK_SEQPACKET listener on a path, for any number of clients of one container.
//
//   to the client    +--------+------+   id 2 stdout, 3 stderr, then at most 8191 bytes of data;
//                    | id (1) | data |   id 0 alone: done, once, when the session is over with success
//                    +--------+------+
//   from the client  input as it is, no header; shutting its side down is the end of its input

import { chmodSync, closeSync, lstatSync, mkdirSync, unlinkSync } from 'node:fs'
import { dirname } from 'node:path'
import { MonitorError, fromUnknown } from '../base/errors.ts'
import type { ByteSink, RemoteStdio } from '../base/remote-stdio.ts'
import { SeqpacketConnection, SeqpacketServer, listenUnix } from '../native/unix-socket.ts'

const PACKET_BYTES = 8192
const DONE = 0
const STDOUT = 2
const STDERR = 3

/**
 * Joins a client with the container. Resolves when all its output was given to the sinks, or when it detached; rejects
 * when it was dropped: then it sees the connection's end without `done`.
 */
export type Attach = (remote: RemoteStdio) => Promise<void>

/** Who else has an interest in the connections: copies of their descriptors may be held. */
export interface AttachSocketOptions {
  /** A listener that a predecessor made at the path; its connections come by `adopt`. */
  readonly fd?: number
  readonly onConnected?: (fd: number) => void
  /** Of itself, at the end, or (with the error) dropped. Copies must be dropped now. */
  readonly onDisconnected?: (fd: number, error: MonitorError | undefined) => void
}

/** One attach endpoint. */
export class AttachSocket {
  readonly path: string
  readonly #attach: Attach
  readonly #options: AttachSocketOptions
  readonly #server: SeqpacketServer
  readonly #file: string
  readonly #clients = new Set<AttachClient>()
  #open = true

  /** Makes the directories above the path, and the socket with mode 0700. */
  constructor(path: string, attach: Attach, options: AttachSocketOptions = {}) {
    this.path = path
    this.#attach = attach
    this.#options = options
    const fd = options.fd ?? listenPrivately(path)
    this.#file = fileAt(path)
    this.#server = new SeqpacketServer(fd, (connection) => {
      options.onConnected?.(connection)
      this.adopt(connection)
    })
  }

  /** The listening socket. */
  get fd(): number {
    return this.#server.fd
  }

  get clients(): number {
    return this.#clients.size
  }

  /** False when the path was removed or replaced (conmon-rs's Go client removes it): nobody can come any more. */
  get reachable(): boolean {
    return this.#open && this.#file !== '' && fileAt(this.path) === this.#file
  }

  /** Goes on with a connection: live output from now on. */
  adopt(fd: number): void {
    const client = new AttachClient(fd, (error) => {
      this.#clients.delete(client)
      this.#options.onDisconnected?.(fd, error)
    })
    this.#clients.add(client)
    this.#attach(client.remote).then(
      () => client.finish(),
      (error: unknown) => client.close(fromUnknown(error)),
    )
  }

  /** Stops listening, and disconnects the clients that are left. */
  close(): void {
    this.stopListening()
    for (const client of this.#clients) client.close(undefined)
  }

  /** Removes the path if it is still ours. Clients that are connected stay until their sessions end. */
  stopListening(): void {
    if (!this.#open) return
    const ours = this.reachable
    this.#open = false
    this.#server.close()
    try {
      if (ours) unlinkSync(this.path)
    } catch {
      // Somebody else removed it.
    }
  }
}

function listenPrivately(path: string): number {
  try {
    mkdirSync(dirname(path), { recursive: true, mode: 0o700 })
  } catch (error) {
    throw MonitorError.within(`listen on ${path}: make its directory`, error)
  }
  const fd = listenUnix(path, 'seqpacket')
  try {
    chmodSync(path, 0o700)
    return fd
  } catch (error) {
    closeSync(fd)
    throw MonitorError.within(`listen on ${path}`, error)
  }
}

/** Names the file that a path leads to, or nothing. */
function fileAt(path: string): string {
  const stat = lstatSync(path, { throwIfNoEntry: false, bigint: true })
  return stat === undefined ? '' : `${stat.dev}:${stat.ino}`
}

/** One output stream of one client. */
class PacketSink implements ByteSink {
  readonly id: number
  buffered = 0
  onDrain: (() => void) | undefined
  readonly #client: AttachClient

  constructor(id: number, client: AttachClient) {
    this.id = id
    this.#client = client
  }

  write(chunk: Buffer): boolean {
    return this.#client.write(this, chunk)
  }

  /** The session's end says it for all streams. */
  end(): void {}
}

interface Pending {
  readonly sink: PacketSink
  readonly chunk: Buffer
  offset: number
}

/** One packet on its way out: sending copies it into the kernel. */
const packet = Buffer.alloc(PACKET_BYTES)

/** One client: its output streams and its input share a connection. */
class AttachClient {
  readonly remote: RemoteStdio
  readonly #connection: SeqpacketConnection
  readonly #onClosed: (error: MonitorError | undefined) => void
  readonly #gone = new AbortController()
  #queue: Pending[] = []
  #input: ByteSink | undefined
  #inputEnded = false
  #hungUp = false
  #finishing = false

  constructor(fd: number, onClosed: (error: MonitorError | undefined) => void) {
    this.#onClosed = onClosed
    this.#connection = new SeqpacketConnection(fd, {
      message: (data, fds) => this.#takeInput(data, fds),
      inputEnded: () => this.#endInput(),
      hungUp: () => this.#hangUp(),
      drained: () => this.#flush(),
    })
    // Nobody takes input yet.
    this.#connection.pause()
    this.remote = {
      stdout: new PacketSink(STDOUT, this),
      stderr: new PacketSink(STDERR, this),
      connectStdin: (sink) => this.#connectStdin(sink),
      onResize: () => undefined,
      gone: this.#gone.signal,
    }
  }

  /** The session is over: `done` goes out after the last byte, and is the last the client hears. */
  finish(): void {
    this.#finishing = true
    if (this.#queue.length > 0 || !this.#connection.open) return
    packet[0] = DONE
    if (this.#connection.send(packet.subarray(0, 1))) this.close(undefined)
  }

  /** Disconnects now. */
  close(error: MonitorError | undefined): void {
    if (!this.#connection.open) return
    this.#connection.close()
    this.#forgetOutput()
    this.#gone.abort()
    this.#onClosed(error)
  }

  /** For the sinks. */
  write(sink: PacketSink, chunk: Buffer): boolean {
    const offset = this.#queue.length === 0 ? this.#send(sink.id, chunk, 0) : 0
    if (offset === chunk.length) return true
    sink.buffered += chunk.length - offset
    this.#queue.push({ sink, chunk, offset })
    return false
  }

  /** Sends packets from `offset` on while there is room; how far it came. */
  #send(id: number, chunk: Buffer, offset: number): number {
    packet[0] = id
    while (offset < chunk.length) {
      const length = chunk.copy(packet, 1, offset)
      if (!this.#connection.send(packet.subarray(0, 1 + length))) break
      offset += length
    }
    return offset
  }

  #flush(): void {
    for (let pending = this.#queue[0]; pending !== undefined; pending = this.#queue[0]) {
      const { sink, chunk, offset } = pending
      pending.offset = this.#send(sink.id, chunk, offset)
      sink.buffered -= pending.offset - offset
      if (pending.offset < chunk.length) return
      this.#queue.shift()
      if (sink.buffered === 0) sink.onDrain?.()
    }
    if (this.#finishing) this.finish()
  }

  #connectStdin(sink: ByteSink): void {
    this.#input = sink
    sink.onDrain = () => this.#connection.resume()
    this.#connection.resume()
  }

  #takeInput(data: Buffer, fds: readonly number[]): void {
    for (const fd of fds) closeSync(fd)
    if (this.#input?.write(data) === false) this.#connection.pause()
  }

  #endInput(): void {
    this.#inputEnded = true
    this.#input?.end()
    if (this.#hungUp) this.#gone.abort()
  }

  /** What the client sent before it went may still wait for the process to read it. */
  #hangUp(): void {
    this.#hungUp = true
    this.#forgetOutput()
    if (this.#inputEnded) this.#gone.abort()
  }

  /** What is sent from now on is thrown away by the connection. */
  #forgetOutput(): void {
    const sinks = new Set(this.#queue.splice(0).map(({ sink }) => sink))
    for (const sink of sinks) {
      sink.buffered = 0
      sink.onDrain?.()
    }
    if (this.#finishing) this.finish()
  }
}
