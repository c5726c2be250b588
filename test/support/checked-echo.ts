// Checked bytes through a session, both ways.

import { randomBytes } from 'node:crypto'
import type { SessionClient } from './session-client.ts'

/** Unanswered bytes of a session: below what an attached client may have pending. */
const window = 256 * 1024
const pattern = randomBytes(4 * 1024 * 1024)

/** Sends `total` bytes, in a window, to a process that echoes, and checks that the same come back. Rejects when the session ends. */
export function checkEcho(client: SessionClient, total: number, offset = 0): Promise<void> {
  return new Promise((resolve, reject) => {
    let sent = 0
    let received = 0
    const send = (): void => {
      while (sent < total && sent - received < window) {
        const length = Math.min(32 * 1024, total - sent, pattern.length - ((sent + offset) % pattern.length))
        const from = (sent + offset) % pattern.length
        client.send(pattern.subarray(from, from + length))
        sent += length
      }
    }
    client.consume((chunk) => {
      for (let done = 0; done < chunk.length;) {
        const from = (received + offset) % pattern.length
        const length = Math.min(chunk.length - done, pattern.length - from)
        if (!chunk.subarray(done, done + length).equals(pattern.subarray(from, from + length))) {
          reject(new Error(`wrong bytes after ${received}`))
          return
        }
        done += length
        received += length
      }
      if (received === total) resolve()
      else send()
    })
    client.ended.then(
      (end) => received < total && reject(new Error(`ended after ${received}: ${JSON.stringify(end)}`)),
      reject,
    )
    send()
  })
}
