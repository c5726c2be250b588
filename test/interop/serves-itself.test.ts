// What the daemon drill (test/faults/daemon-killed.test.ts) shows where a runtime serves streams itself, as containerd and
// CRI-O do with the Go library: the bytes pass through the process that dies, and so the sessions end with it.

import assert from 'node:assert/strict'
import { mkdtempSync, rmSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { test } from 'node:test'
import { checkEcho } from '../support/checked-echo.ts'
import { openSession } from '../support/session-client.ts'
import { hostProgram } from './programs.ts'
import { Yardstick } from './yardstick.ts'

test('a server of its own streams loses every session when it is killed', async () => {
  const directory = mkdtempSync(join(tmpdir(), 'holdfast-interop-'))
  const server = await Yardstick.start(hostProgram('runc'), directory)
  const streams = { stdin: true, stdout: true, stderr: false, tty: false }
  const total = 50 * 1024 * 1024
  const sessions = await Promise.all(
    Array.from({ length: 4 }, async () => {
      const request = { kind: 'exec', id: 'synthetic', cmd: ['echo', String(total)], ...streams } as const
      return openSession('spdy', await server.url(request), streams)
    }),
  )
  const echoes = sessions.map((session) => checkEcho(session, total))
  process.kill(server.pid, 'SIGKILL')
  const ends = await Promise.allSettled(echoes)
  assert.deepEqual(
    ends.map((end) => end.status),
    sessions.map(() => 'rejected'),
  )
  // And nobody notices: the error stream is empty, which Kubernetes' clients take for success.
  for (const session of sessions) assert.deepEqual(await session.ended, { code: 0 })
  rmSync(directory, { recursive: true })
})
