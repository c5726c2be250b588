// Connects to a TCP port from inside a network namespace: IPv4 loopback first, then IPv6, never both at once.

import { Socket } from 'node:net'
import { MonitorError, messageOf } from '../base/errors.ts'
import { DIAL_TIMEOUT_MS } from '../base/limits.ts'
import { netnsSocket } from '../native/addon.ts'

/**
 * A connection to localhost:port, half-open allowed and paused. `netnsPath` names the namespace: the path of a held
 * descriptor in /proc/self/fd, so that no name can be swapped under it. Rejects with both families' reasons.
 */
export async function dialPort(netnsPath: string, port: number, signal: AbortSignal): Promise<Socket> {
  try {
    return await connect(netnsPath, { family: 4, host: '127.0.0.1', port }, signal)
  } catch (ipv4) {
    if (signal.aborted) throw ipv4
    try {
      return await connect(netnsPath, { family: 6, host: '::1', port }, signal)
    } catch (ipv6) {
      throw new MonitorError(
        'unavailable',
        `connect to localhost:${port} in the network namespace: IPv4 ${messageOf(ipv4)}; IPv6 ${messageOf(ipv6)}`,
        { cause: ipv4 },
      )
    }
  }
}

interface Address {
  readonly family: 4 | 6
  readonly host: string
  readonly port: number
}

/** The descriptor is made by a short-lived thread inside the namespace and keeps it; libuv only connects it. */
function connect(netnsPath: string, address: Address, signal: AbortSignal): Promise<Socket> {
  return new Promise((resolve, reject) => {
    // manualStart is undocumented, and keeps libuv from reading a socket that is not connected yet (native.md §5).
    const options = { fd: netnsSocket(netnsPath, address.family), allowHalfOpen: true, manualStart: true }
    const socket = new Socket(options)
    const timer = setTimeout(() => fail(new MonitorError('deadline-exceeded', 'timed out')), DIAL_TIMEOUT_MS)
    const abort = (): void => fail(new MonitorError('canceled', 'given up'))
    const settle = (): void => {
      clearTimeout(timer)
      signal.removeEventListener('abort', abort)
      socket.off('error', fail)
      socket.off('connect', connected)
    }
    const fail = (error: Error): void => {
      settle()
      socket.on('error', () => undefined)
      socket.destroy()
      reject(error)
    }
    const connected = (): void => {
      settle()
      resolve(socket)
    }
    socket.once('error', fail)
    socket.once('connect', connected)
    signal.addEventListener('abort', abort, { once: true })
    socket.connect({ host: address.host, port: address.port })
    socket.pause()
    if (signal.aborted) abort()
  })
}
