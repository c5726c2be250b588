// What is held survives the server, and nothing else does.

import assert from 'node:assert/strict'
import { closeSync, readSync } from 'node:fs'
import { test } from 'node:test'
import { pipe2, write } from '../../src/native/addon.ts'
import { checkLeaks } from '../support/leak-check.ts'
import { Monitor } from './monitor.ts'

checkLeaks()

test('descriptors and records come back after a kill of the server, in the order in which they came', async () => {
  const { monitor, server } = await Monitor.start()
  try {
    const [out, into] = pipe2()
    await server.client.hold('pipe', { fd: into, record: Buffer.from('the write end') })
    await server.client.hold('note', { record: Buffer.from([0, 1, 255]) })
    await server.client.hold('empty', {})
    closeSync(into)
    server.kill()
    const next = await monitor.readyServer()
    assert.equal(next.replay.incarnation, 2)
    const shown = next.replay.entries.map((entry) => [
      entry.name,
      entry.record.toString('latin1'),
      entry.fd === undefined,
    ])
    assert.deepEqual(shown, [
      ['pipe', 'the write end', false],
      ['note', '\0\x01\xff', true],
      ['empty', '', true],
      ['last-words', 'signal 9', false],
    ])
    const again = next.held('pipe')?.fd ?? -1
    assert.equal(write(again, Buffer.from('still here')), 10)
    const got = Buffer.alloc(100)
    assert.equal(got.toString('utf8', 0, readSync(out, got)), 'still here')
    await next.client.drop('pipe')
    closeSync(again)
    assert.equal(readSync(out, got), 0)
    closeSync(out)
  } finally {
    await monitor.stop()
  }
})

test('what the server sent just before its death is done', async () => {
  const { monitor, server } = await Monitor.start()
  try {
    // Unread input makes the kernel report a reset before the messages that are still queued.
    for (let i = 0; i < 40; i++)
      void server.client.hold(`entry ${i}`, { record: Buffer.from(String(i)) }).catch(() => undefined)
    server.kill()
    const next = await monitor.readyServer()
    const names = next.replay.entries.map((entry) => entry.name)
    for (let i = 0; i < 40; i++) assert.ok(names.includes(`entry ${i}`), `entry ${i}`)
  } finally {
    await monitor.stop()
  }
})
