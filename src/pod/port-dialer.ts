// Connects to a TCP port from inside a network namespace: IPv4 loopback first, then IPv6, never both at once.

import { Socket } from 'node:net'
import { MonitorError, isErrno, messageOf } from '../base/errors.ts'
import { DIAL_TIMEOUT_MS } from '../base/limits.ts'
import { netnsSocket } from '../native/addon.ts'

/** IPv4's share of the time for a dial: a server whose queue is full gets its second chance, and IPv6 its own. */
const ipv4Share = 0.8

/**
 * A connection to localhost:port, half-open allowed and paused. `netnsPath` names the namespace: the path of a held
 * descriptor in /proc/self/fd, so that no name can be swapped under it. Rejects with both families' reasons. A server
 * that resets what it has just accepted is no failed dial: that socket comes destroyed.
 */
export async function dialPort(netnsPath: string, port: number, signal: AbortSignal): Promise<Socket> {
  const started = Date.now()
  try {
    const ipv4 = { family: 4, host: '127.0.0.1', port, limitMs: DIAL_TIMEOUT_MS * ipv4Share } as const
    return await connect(netnsPath, ipv4, signal)
  } catch (ipv4) {
    if (signal.aborted) throw ipv4
    try {
      const limitMs = Math.max(0, DIAL_TIMEOUT_MS - (Date.now() - started))
      return await connect(netnsPath, { family: 6, host: '::1', port, limitMs }, signal)
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
  readonly limitMs: number
}

/** The descriptor is made by a short-lived thread inside the namespace and keeps it; libuv only connects it. */
function connect(netnsPath: string, address: Address, signal: AbortSignal): Promise<Socket> {
  return new Promise((resolve, reject) => {
    // manualStart is undocumented, and keeps libuv from reading a socket that is not connected yet (native.md §5).
    const options = { fd: netnsSocket(netnsPath, address.family), allowHalfOpen: true, manualStart: true }
    const socket = new Socket(options)
    const timer = setTimeout(() => {
      const waited = `nothing answered within ${address.limitMs / 1000} s; is its loopback interface up?`
      fail(new MonitorError('deadline-exceeded', `connect ${address.host}:${address.port}: ${waited}`))
    }, address.limitMs)
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
      // Nobody listening says ECONNREFUSED: this one was connected, and reset before we looked (case B36).
      if (isErrno(error, 'ECONNRESET')) resolve(socket)
      else reject(error)
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
