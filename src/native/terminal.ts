// The console socket: how an OCI runtime hands over the master of a terminal it made.
// Reading and writing the terminal are not here.

import { chmodSync, closeSync, openSync, constants, unlinkSync } from 'node:fs'
import { isatty } from 'node:tty'
import { MonitorError, isErrno, messageOf } from '../base/errors.ts'
import { acceptFd, recvFds, setNonblock, unixListen } from './addon.ts'
import { WatchedFd } from './watched-fd.ts'

/** A path that an OCI runtime can dial: it knows no way around the limit of sun_path. */
const MAX_DIALLED_PATH_BYTES = 107

let serial = 0

/** A socket that waits for one terminal. */
export class ConsoleSocket {
  /** For the OCI runtime's `--console-socket`. Valid until `close`. */
  readonly path: string
  readonly #file: string
  readonly #directory: number | undefined
  readonly #listener: WatchedFd
  #connection: WatchedFd | undefined

  /** Listens in a directory that only we can enter; its path may be of any length. */
  static listen(directory: string): ConsoleSocket {
    for (;;) {
      const name = `c${process.pid}-${serial++}.sock`
      try {
        return new ConsoleSocket(directory, name, unixListen(`${directory}/${name}`))
      } catch (error) {
        // Left behind by a process that had our pid.
        if (!isErrno(error, 'EADDRINUSE')) throw MonitorError.within('listen on console socket', error)
      }
    }
  }

  private constructor(directory: string, name: string, fd: number) {
    this.#listener = new WatchedFd(fd)
    this.#file = `${directory}/${name}`
    try {
      chmodSync(this.#file, 0o600)
      if (Buffer.byteLength(this.#file) <= MAX_DIALLED_PATH_BYTES) {
        this.path = this.#file
      } else {
        this.#directory = openSync(directory, constants.O_DIRECTORY | constants.O_RDONLY)
        this.path = `/proc/${process.pid}/fd/${this.#directory}/${name}`
      }
    } catch (error) {
      this.close()
      throw error
    }
  }

  /**
   * The master, non-blocking; it belongs to the caller. Rejects when the sender leaves without sending one, and when the
   * signal fires: `canceled`, unless the terminal lies in the socket already. Call once; the socket is closed afterwards.
   */
  async receive(signal: AbortSignal): Promise<number> {
    try {
      return await new Promise<number>((resolve, reject) => this.#wait(signal, resolve, reject))
    } finally {
      this.close()
    }
  }

  /** Stops waiting and removes the path. */
  close(): void {
    if (!this.#listener.open) return
    this.#connection?.close()
    this.#listener.close()
    if (this.#directory !== undefined) closeSync(this.#directory)
    try {
      unlinkSync(this.#file)
    } catch (error) {
      if (!isErrno(error, 'ENOENT')) throw error
    }
  }

  #wait(signal: AbortSignal, resolve: (fd: number) => void, reject: (error: MonitorError) => void): void {
    // runc connects about 100 ms before it sends: both descriptors are watched, nothing is retried by time.
    const look = (): void => {
      if (!this.#listener.open) return
      try {
        const fd = this.#look(look)
        if (fd === undefined) return
        resolve(fd)
      } catch (error) {
        reject(MonitorError.within('receive terminal', error))
      }
      // At once: a second look could find a second terminal, which nobody would close.
      this.close()
    }
    const abort = (): void => {
      look()
      reject(new MonitorError('canceled', `receive terminal: ${messageOf(signal.reason)}`))
    }
    this.#listener.onClosed(() => {
      signal.removeEventListener('abort', abort)
      reject(new MonitorError('canceled', 'receive terminal: console socket closed'))
    })
    if (!this.#listener.open) return
    if (signal.aborted) {
      abort()
      return
    }
    signal.addEventListener('abort', abort)
    this.#listener.watchReadable(look)
  }

  /** What is there now: the master, or undefined. */
  #look(again: () => void): number | undefined {
    if (this.#connection === undefined) {
      const connection = acceptFd(this.#listener.fd)
      if (connection === null) return undefined
      this.#connection = new WatchedFd(connection)
      this.#listener.watchReadable(undefined)
      this.#connection.watchReadable(again)
    }
    const message = recvFds(this.#connection.fd)
    if (message === null) return undefined
    const [master, ...others] = message.fds
    for (const fd of others) closeSync(fd)
    if (master === undefined) {
      // The payload is a name or a blank, of no use; without a descriptor beside it, it is not what we wait for.
      if (message.data.length > 0) return undefined
      throw new MonitorError('internal', 'the OCI runtime closed the console socket without sending one')
    }
    return checked(master)
  }
}

function checked(master: number): number {
  try {
    if (!isatty(master))
      throw new MonitorError('internal', 'what the OCI runtime sent over the console socket is no terminal')
    setNonblock(master)
    return master
  } catch (error) {
    closeSync(master)
    throw error
  }
}
