import assert from 'node:assert/strict'
import { mkdirSync, mkdtempSync, rmSync } from 'node:fs'
import { createServer } from 'node:net'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { afterEach, beforeEach, describe, test } from 'node:test'
import { Diagnostics } from '../../src/base/diagnostics.ts'
import { MonitorError } from '../../src/base/errors.ts'
import { MonitorClient } from '../../src/client/monitor-client.ts'
import { unixListen } from '../../src/native/addon.ts'
import { RpcServer } from '../../src/rpc/rpc-server.ts'
import { FakeCalls } from '../rpc/fake-calls.ts'
import { TestServer } from '../rpc/serve.ts'
import { checkLeaks } from '../support/leak-check.ts'

checkLeaks()

let server: TestServer
let client: MonitorClient
beforeEach(async () => {
  server = new TestServer()
  client = await MonitorClient.connect(server.path)
})
afterEach(() => {
  client.close()
  server.close()
})

function hasCode(code: string): (error: unknown) => boolean {
  return (error) => error instanceof MonitorError && error.code === code
}

describe('a client whose server dies', () => {
  test('fails the calls under way once, and dials again for the next', async () => {
    const calls = [1, 2, 3].map(() => client.execSync({ id: 'hang', command: [] }))
    await client.version()
    const failures = calls.map((call) => assert.rejects(call, hasCode('unavailable')))
    server.restart()
    await Promise.all(failures)
    assert.equal((await client.version()).tag, 'tag')
    assert.deepEqual(server.calls.givenUp, ['unavailable', 'unavailable', 'unavailable'])
  })

  test('dials once for calls made together', async () => {
    await client.version()
    server.restart()
    await assert.rejects(client.execSync({ id: 'hang', command: [] }), hasCode('unavailable'))
    await Promise.all([client.version(), client.version(), client.listContainers()])
    assert.equal(server.server.connections, 1)
  })

  test('says that nobody listens', async () => {
    await client.version()
    server.server.close()
    await assert.rejects(client.execSync({ id: 'hang', command: [] }), hasCode('unavailable'))
    await assert.rejects(client.version(), (error) => {
      assert.ok(error instanceof MonitorError)
      assert.match(error.message, /connect to monitor at .*conmon.sock: connect ECONNREFUSED/)
      return error.code === 'unavailable'
    })
  })
})

describe('a client', () => {
  test('refuses calls after close', async () => {
    client.close()
    await assert.rejects(client.version(), hasCode('failed-precondition'))
  })

  test('does not call at all when its signal has fired already', async () => {
    const signal = AbortSignal.abort(new MonitorError('canceled', 'not now'))
    await assert.rejects(client.execSync({ id: 'x', command: [] }, { signal }), /not now/)
    await client.version()
    assert.equal(server.calls.seen['execSync'], undefined)
  })

  test('tells the server when it gives up', async () => {
    await assert.rejects(
      client.execSync({ id: 'hang', command: [] }, { timeoutMs: 30 }),
      hasCode('deadline-exceeded'),
    )
    await client.version()
    assert.deepEqual(server.calls.givenUp, ['canceled'])
  })

  test('rejects connect where no socket is', async () => {
    await assert.rejects(MonitorClient.connect(join(server.directory, 'none')), hasCode('unavailable'))
  })

  test('gives up waiting for a server that accepts and says nothing', async () => {
    const path = join(server.directory, 'silent')
    const silent = createServer((socket) => socket.on('error', () => {}).resume()).listen(path)
    const waiting = await MonitorClient.connect(path)
    await assert.rejects(waiting.version({ timeoutMs: 30 }), hasCode('deadline-exceeded'))
    waiting.close()
    await new Promise((resolve) => silent.close(resolve))
  })

  test('finds sockets whose path is longer than an address', async () => {
    const directory = mkdtempSync(join(tmpdir(), 'holdfast-long-'))
    const long = join(directory, 'x'.repeat(100), 'y'.repeat(100))
    mkdirSync(long, { recursive: true })
    const path = join(long, 'conmon.sock')
    const far = new RpcServer({ calls: new FakeCalls(), diagnostics: new Diagnostics(() => {}) })
    far.listen(unixListen(path))
    const near = await MonitorClient.connect(path)
    assert.equal((await near.version()).tag, 'tag')
    near.close()
    far.close()
    rmSync(directory, { recursive: true })
  })
})
