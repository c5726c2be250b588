import assert from 'node:assert/strict'
import { chmodSync, existsSync, mkdtempSync, rmSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { afterEach, beforeEach, describe, test } from 'node:test'
import { MonitorError } from '../../src/base/errors.ts'
import { findMonitor, startMonitor } from '../../src/client/monitor-process.ts'
import { TestServer } from '../rpc/serve.ts'
import { checkLeaks } from '../support/leak-check.ts'

checkLeaks()

let directory: string
beforeEach(() => {
  directory = mkdtempSync(join(tmpdir(), 'holdfast-start-'))
})
afterEach(() => rmSync(directory, { recursive: true }))

/** A program in place of the monitor. */
function launcher(script: string): string {
  const path = join(directory, 'launcher')
  writeFileSync(path, `#!/bin/sh\n${script}\n`)
  chmodSync(path, 0o755)
  return path
}

function start(script: string, more: { timeoutMs?: number; env?: NodeJS.ProcessEnv } = {}): Promise<unknown> {
  const same = { runtimePath: '/usr/sbin/runc', runtimeDir: directory }
  return startMonitor({ monitorPath: launcher(script), ...same, ...more })
}

describe('startMonitor', () => {
  test('passes the options and reads the pid', async () => {
    const found = await startMonitor({
      monitorPath: launcher(
        `echo "$@" > ${directory}/args; echo "$X" >> ${directory}/args; printf 4711 > ${directory}/pidfile`,
      ),
      runtimePath: '/usr/sbin/runc',
      runtimeDir: directory,
      runtimeRoot: '/run/runc',
      logLevel: 'debug',
      env: { X: 'y' },
    })
    assert.deepEqual(found, { pid: 4711, socketPath: join(directory, 'conmon.sock') })
    const { readFileSync } = await import('node:fs')
    assert.equal(
      readFileSync(join(directory, 'args'), 'utf8'),
      `--runtime /usr/sbin/runc --runtime-dir ${directory} --runtime-root /run/runc --log-level debug\ny\n`,
    )
  })

  test('does not wait for a monitor that keeps its standard error', async () => {
    const script = `printf 1 > ${directory}/pidfile; (while [ ! -e ${directory}/go ]; do :; done; echo >&2; : > ${directory}/done) & exit 0`
    assert.deepEqual(await start(script), { pid: 1, socketPath: join(directory, 'conmon.sock') })
    writeFileSync(join(directory, 'go'), '')
    for (let i = 0; i < 1000 && !existsSync(join(directory, 'done')); i++) {
      await new Promise((resolve) => setImmediate(resolve))
    }
  })

  const failures = [
    {
      title: 'what the launcher said',
      script: 'echo "Error: no such runtime" >&2; exit 1',
      message: /launcher: exit 1: Error: no such runtime$/,
    },
    { title: 'the signal that ended it', script: 'kill -9 $$', message: /launcher: exit SIGKILL$/ },
    { title: 'a missing pidfile', script: 'exit 0', message: /no pid in .*pidfile/ },
    {
      title: 'that it took too long',
      script: 'exec sleep 60',
      timeoutMs: 200,
      message: /not ready after 200 ms/,
    },
  ]
  for (const { title, script, message, ...more } of failures) {
    test(`reports ${title}`, async () => {
      await assert.rejects(start(script, more), (error) => {
        assert.ok(error instanceof MonitorError)
        assert.match(error.message, message)
        return true
      })
    })
  }

  test('reports a program that is not there', async () => {
    const options = { monitorPath: join(directory, 'none'), runtimePath: '/r', runtimeDir: directory }
    await assert.rejects(startMonitor(options), /start monitor .*none: spawn .* ENOENT/)
  })
})

describe('findMonitor', () => {
  test('finds one that accepts, by the pid in its lock file', async () => {
    const server = new TestServer()
    assert.equal(await findMonitor(server.directory), undefined)
    writeFileSync(join(server.directory, 'pidfile'), '17')
    assert.equal((await findMonitor(server.directory))?.pid, 17)
    writeFileSync(join(server.directory, 'monitor.lock'), '18\n')
    assert.deepEqual(await findMonitor(server.directory), { pid: 18, socketPath: server.path })
    server.close()
  })

  test('finds none where nobody listens', async () => {
    writeFileSync(join(directory, 'monitor.lock'), '18\n')
    assert.equal(await findMonitor(directory), undefined)
    assert.equal(await findMonitor(join(directory, 'none')), undefined)
  })
})
