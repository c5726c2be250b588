// URLs of a streaming server, as several callers ask for them.

import assert from 'node:assert/strict'
import { test } from 'node:test'
import { checkLeaks } from '../support/leak-check.ts'
import { startServer } from './support/test-server.ts'
import { WebSocketClient } from './support/web-socket-client.ts'

checkLeaks()

test('gives callers that ask at the same moment, before it listens, URLs that all work (B42)', async (t) => {
  const { exec } = startServer(t)
  const urls = await Promise.all(Array.from({ length: 8 }, () => exec(['exit', '7'])))
  assert.equal(new Set(urls).size, 8)
  for (const url of urls) {
    const { outcome } = await new WebSocketClient(url, 'v5.channel.k8s.io').result()
    assert.deepEqual(outcome, { kind: 'exited', status: { code: 7 } })
  }
})
