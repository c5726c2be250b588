// The launch contract: what whoever starts a monitor sees.

import assert from 'node:assert/strict'
import { execFileSync } from 'node:child_process'
import { copyFileSync, existsSync, mkdirSync, readFileSync, statSync } from 'node:fs'
import { join } from 'node:path'
import { test } from 'node:test'
import { checkLeaks } from '../support/leak-check.ts'
import { eventually, isAlive, keeperBinary, Monitor } from './monitor.ts'

checkLeaks()

async function withMonitor(
  options: ConstructorParameters<typeof Monitor>[0],
  body: (monitor: Monitor) => Promise<void>,
): Promise<void> {
  const monitor = new Monitor(options)
  try {
    await body(monitor)
  } finally {
    await monitor.stop()
  }
}

test('the launcher exits 0 after ready and the pidfile names the keeper, without a newline', () =>
  withMonitor({}, async (monitor) => {
    const server = await monitor.nextServer()
    assert.equal(existsSync(monitor.path('pidfile')), false)
    await server.client.ready({ pidfile: monitor.path('pidfile'), sockets: [] })
    assert.deepEqual(await monitor.launched, { code: 0, stdout: '', stderr: '' })
    assert.equal(readFileSync(monitor.path('pidfile'), 'utf8'), String(monitor.keeperPid))
    assert.equal(statSync(monitor.path('pidfile')).mode & 0o777, 0o644)
    assert.equal(server.replay.keeperPid, monitor.keeperPid)
    assert.equal(server.replay.incarnation, 1)
    assert.equal(server.replay.protocol, 1)
    assert.notEqual(monitor.launcher.pid, monitor.keeperPid)
  }))

test('failed prints its text and exits with its code, and no process stays', () =>
  withMonitor({}, async (monitor) => {
    const server = await monitor.nextServer()
    await server.client.failed(7, 'the runtime dir is locked by 1234')
    server.exit(0)
    assert.deepEqual(await monitor.launched, {
      code: 7,
      stdout: '',
      stderr: 'the runtime dir is locked by 1234\n',
    })
    assert.equal(existsSync(monitor.path('pidfile')), false)
    assert.equal(isAlive(monitor.keeperPid), false)
  }))

test('failed with code 0 is a launch that only printed something', () =>
  withMonitor({}, async (monitor) => {
    const server = await monitor.nextServer()
    await server.client.failed(0, '')
    server.exit(3)
    assert.deepEqual(await monitor.launched, { code: 0, stdout: '', stderr: '' })
  }))

for (const [what, end, code] of [
  ['exits 3', (server: { exit(code: number): void }) => server.exit(3), 3],
  ['exits 0', (server: { exit(code: number): void }) => server.exit(0), 1],
  ['is killed', (server: { kill(): void }) => server.kill(), 137],
] as const) {
  test(`a server that ${what} before it is ready ends the launch with ${code} and its last words`, () =>
    withMonitor({}, async (monitor) => {
      const server = await monitor.nextServer()
      server.say('last-gasp')
      await eventually('the last words', () => readFileSync(`/proc/${server.seen.pid}/fd/2`, 'utf8') !== '')
      end(server)
      const launched = await monitor.launched
      assert.equal(launched.code, code)
      assert.match(launched.stderr, /^last-gasp\nstart server: it ended before it was ready, /)
    }))
}

test('without Node the launch exits 127 and names every path tried', () => {
  const root = join(keeperBinary, '../../asan-no-node')
  mkdirSync(join(root, 'bin'), { recursive: true })
  copyFileSync(keeperBinary, join(root, 'bin/holdfast-monitor'))
  const env = { PATH: '/nowhere:/else', HOLDFAST_NODE: '/missing/node' }
  assert.throws(
    () => execFileSync(join(root, 'bin/holdfast-monitor'), { env, stdio: 'pipe' }),
    (error: { status: number; stderr: Buffer }) => {
      assert.equal(error.status, 127)
      const text = error.stderr.toString()
      for (const path of ['/missing/node', `${root}/bin/../lib/holdfast/node`, '/nowhere/node', '/else/node'])
        assert.ok(text.includes(`  ${path}\n`), `${path} in ${text}`)
      return true
    },
  )
})
