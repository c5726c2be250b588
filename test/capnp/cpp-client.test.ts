// Cap'n Proto's C++ implementation drives our server.

import assert from 'node:assert/strict'
import { afterEach, beforeEach, describe, test } from 'node:test'
import { TestServer } from '../rpc/serve.ts'
import { checkLeaks } from '../support/leak-check.ts'
import { Peer, passes } from './peers.ts'

checkLeaks()

let server: TestServer
beforeEach(() => {
  server = new TestServer()
})
afterEach(() => server.close())

describe('a C++ client', () => {
  test('calls every method', async () => {
    await passes('client', [server.path, 'basic'])
    assert.deepEqual(server.calls.seen['setWindowSize'], { id: 'c1', size: { width: 65535, height: 40 } })
    const attach = { id: 'c1', socketPath: '/run/attach', stopAfterStdinEof: true }
    assert.deepEqual(server.calls.seen['attachContainer'], attach)
    // conmon-rs's interface cannot say these: its clients rely on a replay.
    const unsaid = { tty: undefined, stdinOnce: undefined, replayBytes: 16 * 1024 }
    const streams = { stdin: true, stdout: false, stderr: false }
    assert.deepEqual(server.calls.seen['serveAttach'], { id: 'c1', ...streams, ...unsaid })
    const forward = { netnsPath: '/run/netns/x', podSandboxId: '', ports: [] }
    assert.deepEqual(server.calls.seen['servePortForward'], forward)
  })

  test('gets every result of an exec, of any size', async () => {
    await passes('client', [server.path, 'exec'])
  })

  test('speaks both layouts on one connection', async () => {
    const requests: unknown[] = []
    server.calls.createContainer = (request) => {
      requests.push({ ...request, commandArgs: request.commandArgs.length })
      return Promise.resolve(4242)
    }
    await passes('client', [server.path, 'layouts'])
    const expected = ['new-0', 'old-1', 'new-2', 'old-3'].map((id, round) => ({
      id,
      bundlePath: '/bundle \u00e9',
      terminal: true,
      stdin: true,
      exitPaths: ['/e0', ''],
      oomExitPaths: ['/oom'],
      logDrivers: [
        { type: 'journald', path: '', maxSize: 2 ** 64 },
        { type: 'cri', path: '/log', maxSize: 2 ** 40 },
      ],
      cleanupCommand: ['cleanup'],
      globalArgs: ['--debug'],
      commandArgs: round > 1 ? 500 : 1,
      env: [
        ['K0', 'V0'],
        ['K1', 'V1'],
      ],
      additionalFds: [1n, 2n ** 63n, 3n],
      leakFds: [9n],
      cgroupManager: 'cgroupfs',
    }))
    assert.deepEqual(requests, expected)
  })

  test('has its old requests read as the new ones', async () => {
    await passes('client', [server.path, 'old-requests'])
    const { execSync, attachContainer, setWindowSize, createNamespaces } = server.calls.seen
    assert.deepEqual(execSync, {
      id: 'x',
      command: ['true'],
      terminal: false,
      cgroupManager: 'systemd',
      timeoutMs: 5000,
      env: [['E', '']],
    })
    assert.deepEqual(attachContainer, { id: 'c1', socketPath: '/run/attach', stopAfterStdinEof: false })
    assert.deepEqual(setWindowSize, { id: 'c1', size: { width: 80, height: 24 } })
    assert.deepEqual(createNamespaces, {
      namespaces: ['user'],
      uidMappings: ['0 1 2'],
      gidMappings: ['3 4 5'],
      basePath: '/base',
      podId: 'pod',
    })
  })

  test('gets exceptions with their type and exact text', async () => {
    await passes('client', [server.path, 'exceptions'])
  })

  test('has 64 calls under way', async () => {
    await passes('client', [server.path, 'concurrent'])
  })

  test('calls before its bootstrap has returned, and bootstraps again', async () => {
    await passes('client', [server.path, 'pipelined'])
  })

  test('cancels calls', async () => {
    await passes('client', [server.path, 'cancel'])
    assert.deepEqual(server.calls.givenUp, Array(20).fill('canceled'))
  })

  test('disconnects during calls', async () => {
    await passes('client', [server.path, 'disconnect'])
    assert.ok(server.calls.givenUp.every((code) => code === 'unavailable' || code === 'canceled'))
  })

  test('sees the death of the server as a disconnect', async () => {
    const client = new Peer('client', [server.path, 'server-death'])
    await client.says('hanging')
    server.restart()
    assert.equal(await client.exit(), 0, client.printed)
  })

  test('connects 300 times', async () => {
    await passes('client', [server.path, 'many', '300'])
    assert.equal(await server.connections(), 0)
  })

  test('calls 5,000 times on one connection', async () => {
    await passes('client', [server.path, 'soak', '5000'])
  })
})
