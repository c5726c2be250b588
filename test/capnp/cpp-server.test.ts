// Our client drives a server on Cap'n Proto's C++ implementation.

import assert from 'node:assert/strict'
import { mkdtempSync, rmSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { after, before, describe, test } from 'node:test'
import { MonitorError } from '../../src/base/errors.ts'
import { RpcConnection } from '../../src/capnp/rpc-connection.ts'
import { RpcException } from '../../src/capnp/rpc-exception.ts'
import { dialUnix } from '../../src/client/dial-unix.ts'
import { MonitorClient } from '../../src/client/monitor-client.ts'
import { Conmon } from '../../src/generated/conmon.ts'
import { checkLeaks } from '../support/leak-check.ts'
import { Peer } from './peers.ts'

checkLeaks()

const directory = mkdtempSync(join(tmpdir(), 'holdfast-cpp-'))
const path = join(directory, 'conmon.sock')
let server: Peer
let client: MonitorClient
before(async () => {
  server = new Peer('server', [path])
  await server.says('listening')
  client = await MonitorClient.connect(path)
})
after(async () => {
  client.close()
  await server.kill()
  rmSync(directory, { recursive: true })
})

function rejectsWith(code: string, message: RegExp): (error: unknown) => boolean {
  return (error) => {
    assert.ok(error instanceof MonitorError)
    assert.equal(error.code, code)
    assert.match(error.message, message)
    return true
  }
}

describe('the client against a C++ server', () => {
  test('reads texts', async () => {
    const { processId, version, cargoTree } = await client.version({ verbose: true })
    assert.deepEqual(
      { processId, version, cargoTree },
      {
        processId: server.process.pid,
        version: '1.2.3',
        cargoTree: 'verbose-tree \u2603',
      },
    )
  })

  test('writes every kind of field', async () => {
    const pid = await client.createContainer({
      id: 'id \u2603',
      bundlePath: '/b',
      terminal: true,
      exitPaths: ['/e', ''],
      logDrivers: [{ type: 'cri', path: '/log', maxSize: 2 ** 40 }, { type: 'journald' }],
      commandArgs: Array.from({ length: 300 }, (_, i) => `argument ${i}`),
      env: [['K', 'V']],
    })
    assert.equal(pid, 4242)
  })

  test('reads replies of 10 MiB and of many segments', async () => {
    const big = await client.execSync({ id: 'big:10485760', command: [] })
    assert.ok(big.stdout.equals(Buffer.alloc(10 * 2 ** 20, 'a')))
    const spread = await client.execSync({ id: 'spread', command: [] })
    assert.deepEqual(spread, {
      exitCode: -3,
      timedOut: true,
      stdout: Buffer.alloc(300_001, 'o'),
      stderr: Buffer.alloc(100_000, 'e'),
    })
  })

  test('takes a null reply for all defaults', async () => {
    const reply = await client.execSync({ id: 'null', command: [] })
    assert.deepEqual(reply, {
      exitCode: 0,
      timedOut: false,
      stdout: Buffer.alloc(0),
      stderr: Buffer.alloc(0),
    })
  })

  test('reads a list of structs', async () => {
    const made = await client.createNamespaces({ podId: 'p', basePath: '/b', namespaces: ['uts', 'ipc'] })
    assert.deepEqual(made, [
      { type: 'uts', path: '/b/4/p' },
      { type: 'ipc', path: '/b/0/p' },
    ])
  })

  test('has 64 calls under way', async () => {
    const replies = await Promise.all(
      Array.from({ length: 64 }, (_, i) =>
        client.execSync({ id: `sleep:${300 - i}`, command: Array.from({ length: i }, () => 'x') }),
      ),
    )
    assert.deepEqual(
      replies.map(({ exitCode }) => exitCode),
      replies.map((_, i) => i),
    )
  })

  test('gives each type of exception its code', async () => {
    await assert.rejects(
      client.attachContainer({ id: 'c', socketPath: '' }),
      rejectsWith('internal', /attach is broken/),
    )
    await assert.rejects(client.reopenLog('c'), rejectsWith('resource-exhausted', /too busy/))
    await assert.rejects(
      client.setWindowSize('c', { width: 1, height: 1 }),
      rejectsWith('unimplemented', /./),
    )
    await assert.rejects(client.listContainers(), rejectsWith('unimplemented', /./))
  })

  test('gives up a call by its signal and goes on', async () => {
    const controller = new AbortController()
    const call = client.execSync({ id: 'hang', command: [] }, { signal: controller.signal })
    await client.version()
    controller.abort(new Error('enough'))
    await assert.rejects(call, /enough/)
    assert.equal((await client.version()).tag, 'tag')
  })

  test('gives up a call that takes too long', async () => {
    const call = client.execSync({ id: 'hang', command: [] }, { timeoutMs: 20 })
    await assert.rejects(call, rejectsWith('deadline-exceeded', /exec in container hang: no answer .* 20 ms/))
  })

  test('keeps exception types below the client', async () => {
    const connection = new RpcConnection(await dialUnix(path))
    const call = connection.call(Conmon.methods.reopenLogContainer, {})
    await assert.rejects(call, (error) => error instanceof RpcException && error.type === 'overloaded')
    connection.close()
    await assert.rejects(connection.call(Conmon.methods.version, {}), /closed/)
  })

  test('fails calls under way once when the server dies, and those after it', async () => {
    const hanging = client.execSync({ id: 'hang', command: [] })
    await client.version()
    const failed = assert.rejects(
      hanging,
      rejectsWith('unavailable', /exec in container hang: no connection/),
    )
    await server.kill()
    await failed
    await assert.rejects(client.version(), rejectsWith('unavailable', /connect to monitor at .*ECONNREFUSED/))
  })
})
