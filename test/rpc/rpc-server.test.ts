import assert from 'node:assert/strict'
import { existsSync, mkdtempSync, rmSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { after, describe, test } from 'node:test'
import { Diagnostics } from '../../src/base/diagnostics.ts'
import { MonitorError } from '../../src/base/errors.ts'
import { MonitorClient } from '../../src/client/monitor-client.ts'
import { unixListen } from '../../src/native/addon.ts'
import { RpcServer } from '../../src/rpc/rpc-server.ts'
import { checkLeaks } from '../support/leak-check.ts'
import { FakeCalls } from './fake-calls.ts'
import { TestServer } from './serve.ts'

checkLeaks()

describe('a client of our own', async () => {
  const server = new TestServer()
  const client = await MonitorClient.connect(server.path)
  after(() => {
    client.close()
    server.close()
  })

  test('gets the version, and the tree when it asks', async () => {
    assert.equal((await client.version()).cargoTree, '')
    const version = await client.version({ verbose: true })
    assert.deepEqual(version, { ...server.calls.version(true), cargoVersion: 'none' })
  })

  test('creates a container with every field', async () => {
    const pid = await client.createContainer({
      id: 'c1',
      bundlePath: '/b',
      terminal: true,
      exitPaths: ['/e', ''],
      logDrivers: [{ type: 'cri', path: '/log', maxSize: 2 ** 40 }, { type: 'journald' }],
      cleanupCommand: ['touch', '/x'],
      commandArgs: ['--no-pivot'],
      env: [['K', 'V']],
    })
    assert.equal(pid, 4242)
    assert.deepEqual(server.calls.seen['createContainer'], {
      id: 'c1',
      bundlePath: '/b',
      terminal: true,
      stdin: false,
      cgroupManager: 'cgroupfs',
      exitPaths: ['/e', ''],
      oomExitPaths: [],
      logDrivers: [
        { type: 'cri', path: '/log', maxSize: 2 ** 40 },
        { type: 'journald', path: '', maxSize: 0 },
      ],
      cleanupCommand: ['touch', '/x'],
      globalArgs: [],
      commandArgs: ['--no-pivot'],
      env: [['K', 'V']],
      additionalFds: [],
      leakFds: [],
    })
  })

  const execs = [
    { title: 'an exit code', id: 'x', expected: { exitCode: 2, timedOut: false, out: 0, err: 0 } },
    {
      title: 'a signal as 128 + N',
      id: 'signal:9',
      expected: { exitCode: 137, timedOut: false, out: 0, err: 0 },
    },
    { title: 'a timeout as -3', id: 'timeout', expected: { exitCode: -3, timedOut: true, out: 4, err: 0 } },
    ...[1, 7, 8, 32767, 32768, 65536, 10 * 2 ** 20 + 1].map((bytes) => ({
      title: `${bytes} bytes of output`,
      id: `big:${bytes}`,
      expected: { exitCode: 7, timedOut: false, out: bytes, err: 1 },
    })),
  ]
  for (const { title, id, expected } of execs) {
    test(`hears of an exec: ${title}`, async () => {
      const { exitCode, timedOut, stdout, stderr } = await client.execSync({ id, command: ['a', 'b'] })
      assert.deepEqual({ exitCode, timedOut, out: stdout.length, err: stderr.length }, expected)
      assert.ok(!id.startsWith('big') || stdout.equals(Buffer.alloc(expected.out, 'a')))
    })
  }

  test('asks for whole seconds of time, rounded up', async () => {
    await client.execSync({ id: 'x', command: [], timeoutMs: 1001 })
    assert.equal((server.calls.seen['execSync'] as { timeoutMs: number }).timeoutMs, 2000)
  })

  test('gets errors with their code and exact text', async () => {
    const cases = [
      {
        call: () => client.reopenLog('c9'),
        code: 'not-found',
        message: 'reopen log of container c9: no such container',
      },
      {
        call: () => client.createContainer({ id: 'broken', bundlePath: '' }),
        code: 'failed-precondition',
        message: 'create container broken: it is',
      },
      {
        call: () => client.setWindowSize('pipes', { width: 1, height: 1 }),
        code: 'failed-precondition',
        message: 'resize container pipes: it has no terminal',
      },
      {
        call: () => client.execSync({ id: 'bug', command: [] }),
        code: 'internal',
        message: 'x is not a function',
      },
      {
        call: () => client.reopenLog(''),
        code: 'invalid-argument',
        message: 'missing required container id',
      },
      {
        call: () => client.setWindowSize('c1', { width: 65536, height: 1 }),
        code: 'invalid-argument',
        message: 'width is 65536: not an integer from 0 to 65535',
      },
    ]
    for (const { call, code, message } of cases) {
      await assert.rejects(call, (error) => {
        assert.ok(error instanceof MonitorError)
        assert.deepEqual({ code: error.code, message: error.message }, { code, message })
        return true
      })
    }
    assert.ok(server.diagnostics.some((line) => line.includes('execSyncContainer: unexpected error')))
  })

  test('names streams by default as a terminal wants them', async () => {
    await client.serveExec({ id: 'c1', command: ['sh'], tty: true, stdin: true })
    assert.deepEqual(server.calls.seen['serveExec'], {
      id: 'c1',
      command: ['sh'],
      tty: true,
      stdin: true,
      stdout: true,
      stderr: false,
      cgroupManager: 'cgroupfs',
    })
  })

  test('says of an attach what it knows', async () => {
    await client.serveAttach({ id: 'c1', stdin: true, stdinOnce: false })
    assert.deepEqual(server.calls.seen['serveAttach'], {
      id: 'c1',
      stdin: true,
      stdout: true,
      stderr: true,
      tty: undefined,
      stdinOnce: false,
      replayBytes: 0,
    })
  })

  test('names ports and pod of a port-forward', async () => {
    const url = await client.servePortForward({ podSandboxId: 'p1', netnsPath: '/ns', ports: [80, 65535] })
    assert.equal(url, 'http://127.0.0.1:1/portforward/token')
    const expected = { podSandboxId: 'p1', netnsPath: '/ns', ports: [80, 65535] }
    assert.deepEqual(server.calls.seen['servePortForward'], expected)
  })

  test('creates namespaces in the order asked', async () => {
    const paths = await client.createNamespaces({ podId: 'p', basePath: '/run', namespaces: ['uts', 'net'] })
    assert.deepEqual(paths, [
      { type: 'uts', path: '/run/utsns/p' },
      { type: 'net', path: '/run/netns/p' },
    ])
  })

  test('lists containers, with an exit code only when exited', async () => {
    const same = { terminal: false, sessions: 2 }
    server.calls.containers = [
      { id: 'a', pid: 1, state: 'running', exitCode: undefined, ...same },
      { id: 'b', pid: 2, state: 'exited', exitCode: 0, ...same },
    ]
    assert.deepEqual(await client.listContainers(), server.calls.containers)
  })
})

test('refuses connections beyond the limit, and takes them when there is room', async () => {
  const directory = mkdtempSync(join(tmpdir(), 'holdfast-rpc-'))
  const path = join(directory, 'conmon.sock')
  const diagnostics = new Diagnostics(() => {})
  const server = new RpcServer({ calls: new FakeCalls(), diagnostics, maxConnections: 2 })
  server.listen(unixListen(path))
  const [one, two, three] = [
    await MonitorClient.connect(path),
    await MonitorClient.connect(path),
    await MonitorClient.connect(path),
  ]
  await Promise.all([one.version(), two.version()])
  await assert.rejects(
    three.version(),
    (error) => error instanceof MonitorError && error.code === 'unavailable',
  )
  one.close()
  while (server.connections > 1) await new Promise((resolve) => setImmediate(resolve))
  await three.version()
  for (const client of [two, three]) client.close()
  server.close()
  rmSync(directory, { recursive: true })
})

test('close leaves the path of the socket', () => {
  const server = new TestServer()
  server.server.close()
  assert.ok(existsSync(server.path))
  server.close()
})
