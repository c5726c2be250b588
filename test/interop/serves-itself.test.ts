// What the daemon drill (test/faults/daemon-killed.test.ts) shows where a runtime serves streams itself, as containerd and
// CRI-O do with the Go library: the bytes pass through the process that dies, and so the sessions end with it.

import assert from 'node:assert/strict'
import { join } from 'node:path'
import { test } from 'node:test'
import { checkEcho } from '../support/checked-echo.ts'
import { Rig } from '../support/rig.ts'
import { openSession } from '../support/session-client.ts'
import { hostProgram } from './programs.ts'
import { Yardstick } from './yardstick.ts'

test('a server of its own streams loses every session when it is killed', async () => {
  const rig = await Rig.start('runc')
  try {
    await rig.run({ id: 'main', args: ['sleep', '100000'] })
    const server = await Yardstick.start(hostProgram('runc'), join(rig.directory, 'root'))
    const streams = { stdin: true, stdout: true, stderr: false, tty: false }
    const sessions = await Promise.all(
      Array.from({ length: 4 }, async () => {
        const url = await server.url({ kind: 'exec', id: 'main', cmd: ['cat'], ...streams })
        return openSession('spdy', url, streams)
      }),
    )
    // All of them work…
    await Promise.all(sessions.map((session) => checkEcho(session, 1024 * 1024)))
    // … until the server dies in the middle.
    const echoes = sessions.map((session) => checkEcho(session, 1024 * 1024 * 1024))
    process.kill(server.pid, 'SIGKILL')
    const ends = await Promise.allSettled(echoes)
    assert.deepEqual(
      ends.map((end) => end.status),
      sessions.map(() => 'rejected'),
    )
    // And nobody notices: the error stream is empty, which Kubernetes' clients take for success.
    for (const session of sessions) assert.deepEqual(await session.ended, { code: 0 })
  } finally {
    await rig.close()
  }
})
