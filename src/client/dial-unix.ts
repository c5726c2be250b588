// Connecting to a unix socket by path, also where the path is longer than a socket address can hold.

import { closeSync, constants, openSync } from 'node:fs'
import type { Socket } from 'node:net'
import { connect } from 'node:net'
import { basename, dirname } from 'node:path'

/** sun_path, with its NUL. */
const maxSocketPathBytes = 107

/** A connected socket. Rejects with the system's error. */
export async function dialUnix(path: string): Promise<Socket> {
  if (Buffer.byteLength(path) <= maxSocketPathBytes) return await connected(path)
  const directory = openSync(dirname(path), constants.O_RDONLY | constants.O_DIRECTORY)
  try {
    return await connected(`/proc/self/fd/${directory}/${basename(path)}`)
  } finally {
    closeSync(directory)
  }
}

function connected(path: string): Promise<Socket> {
  return new Promise((resolve, reject) => {
    const socket = connect(path)
    socket.once('error', reject)
    socket.once('connect', () => {
      socket.off('error', reject)
      resolve(socket)
    })
  })
}
