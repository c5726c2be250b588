// The Node-API addon: loads it and says what each function means. The only way to the kernel beyond Node's own API.
// Errors are system errors with `code` ('ENOENT'), `errno` and `syscall`; wrong arguments are TypeErrors or RangeErrors.
// Every descriptor returned is close-on-exec and belongs to the caller, who closes it with fs.closeSync.

import { createRequire } from 'node:module'
import { fileURLToPath } from 'node:url'
import { MonitorError, messageOf } from '../base/errors.ts'

declare const pollHandle: unique symbol

/** A live poll. */
export interface PollHandle {
  readonly [pollHandle]: true
}

/** What `poll` reports and `pollSet` takes, as bits: 1 readable, 2 writable, 4 hang-up (and nothing else). */
export type PollEvents = 0 | 1 | 2 | 3 | 4

type SocketType = 'stream' | 'seqpacket'

interface Addon {
  /**
   * One message or piece of a stream, at most 128 KiB, with its descriptors (at most 253). null: would block. Empty data
   * without descriptors: the end. Throws EMSGSIZE if something did not fit; what came of it is closed.
   */
  readonly recvFds: (fd: number) => { data: Buffer; fds: number[] } | null
  /** Bytes sent, or -1: would block. The descriptors stay the caller's. */
  readonly sendFds: (fd: number, data: Uint8Array, fds: readonly number[]) => number
  /** A listening non-blocking socket; the path may be long, its last part at most about 85 bytes. */
  readonly unixListen: (path: string, type?: SocketType) => number
  /** A connected non-blocking socket; the path may be of any length. */
  readonly unixConnect: (path: string, type?: SocketType) => number
  /** Ends a connection for every process that holds the socket. */
  readonly shutdown: (fd: number) => void
  /** A connection (non-blocking), or null: would block. */
  readonly acceptFd: (fd: number) => number | null
  /** Sends one datagram, with a descriptor if given. Bytes sent, or -1: would block. Throws EMSGSIZE if it is too big. */
  readonly unixDatagramSend: (path: string, buffers: readonly Uint8Array[], fd?: number) => number
  /** A memory file with these bytes (at most 64 pieces) and all four seals. */
  readonly sealedMemfd: (buffers: readonly Uint8Array[]) => number
  /** An empty memory file. */
  readonly memfd: (name: string) => number
  /** A blocking pipe. */
  readonly pipe2: () => [read: number, write: number]
  /** A non-blocking stream pair with send buffers of 1 MiB. */
  readonly socketpair: () => [number, number]
  /** Takes the exclusive lock; false: somebody else has it. */
  readonly flock: (fd: number) => boolean
  readonly setNonblock: (fd: number) => void
  /** Bytes read; 0: end of file or hang-up (EIO); -1: would block. */
  readonly read: (fd: number, bytes: Uint8Array) => number
  /** Bytes written from `offset` on; -1: would block. */
  readonly write: (fd: number, bytes: Uint8Array, offset?: number) => number
  readonly setWinsize: (fd: number, rows: number, columns: number) => void
  /** FIONREAD: bytes that could be read now. */
  readonly bytesReadable: (fd: number) => number
  readonly dupCloexec: (fd: number) => number
  /** Is the other end gone? For a terminal: has nobody its other side open now? */
  readonly isHungUp: (fd: number) => boolean
  /** Is this descriptor a namespace? */
  readonly isNsfs: (fd: number) => boolean
  /**
   * Watches a descriptor (made non-blocking), level-triggered, first for reading. A negative `status` means that the
   * descriptor has an error and that watching has stopped: read or write to learn which; `pollSet` starts it again.
   * EEXIST if it is watched already. Unpoll before the descriptor is closed: libuv aborts the process otherwise.
   */
  readonly poll: (fd: number, callback: (status: number, events: PollEvents) => void) => PollHandle
  /** Watches for other events; 0 pauses. Throws EBADF after `unpoll`. */
  readonly pollSet: (handle: PollHandle, events: PollEvents) => void
  /** Ends the watch, for good; the descriptor stays open. A second call does nothing. */
  readonly unpoll: (handle: PollHandle) => void
  /** A non-blocking TCP socket that lives in the network namespace at this path. */
  readonly netnsSocket: (path: string, family: 4 | 6) => number
  readonly eventfd: () => number
  readonly pidfdOpen: (pid: number) => number
  readonly pidfdSignal: (pidfd: number, signal: number) => void
  /** Gives the pages of program text back; they come again from the page cache. Bytes advised. */
  readonly dropText: () => number
  /** malloc_trim: 1 if memory was given back. */
  readonly mallocTrim: () => number
}

/** The functions of the addon. */
export const {
  acceptFd,
  bytesReadable,
  dropText,
  dupCloexec,
  eventfd,
  flock,
  isHungUp,
  isNsfs,
  mallocTrim,
  memfd,
  netnsSocket,
  pidfdOpen,
  pidfdSignal,
  pipe2,
  poll,
  pollSet,
  read,
  recvFds,
  sealedMemfd,
  sendFds,
  setNonblock,
  setWinsize,
  shutdown,
  socketpair,
  unixConnect,
  unixDatagramSend,
  unixListen,
  unpoll,
  write,
}: Addon = load()

/** A bundle has the addon beside it; compiled sources lie in dist/src/native. */
function load(): Addon {
  const require = createRequire(import.meta.url)
  const failures: string[] = []
  for (const place of ['./addon.node', '../../lib/holdfast/addon.node']) {
    const path = fileURLToPath(new URL(place, import.meta.url))
    try {
      return require(path) as Addon
    } catch (error) {
      failures.push(`${path}: ${messageOf(error).split('\n', 1)[0]}`)
    }
  }
  throw new MonitorError('internal', `load addon: ${failures.join('; ')}`)
}
