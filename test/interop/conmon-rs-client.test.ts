// conmon-rs's own Go client against our monitor: what CRI-O does with one container, from its creation to its exit.

import assert from 'node:assert/strict'
import { mkdir, mkdtemp, readFile, rm } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { test } from 'node:test'
import { checkLeaks } from '../support/leak-check.ts'
import { makeBundle, makeRootfs } from './bundle.ts'
import { endMonitor, isAlive, waitFor } from './processes.ts'
import { hostProgram, output, product, referee, run } from './programs.ts'

checkLeaks()

interface Report {
  readonly version: string
  readonly monitorPid: number
  readonly containerPid: number
  readonly attachOut: string
  readonly attachErr: string
  readonly syncOut: string
  readonly syncErr: string
  readonly syncExit: number
  readonly timedOut: boolean
  readonly missing: string
  readonly served: string
  readonly reopened: boolean
  readonly exit: string
}

for (const terminal of [false, true]) {
  test(`conmon-rs's client drives a container ${terminal ? 'on a terminal' : 'on pipes'}`, async (t) => {
    const directory = await mkdtemp(join(tmpdir(), 'holdfast-conmonrs-'))
    const [root, monitor] = [join(directory, 'runtime'), join(directory, 'monitor')]
    const runtime = hostProgram('runc')
    t.after(async () => {
      await run(runtime, ['--root', root, 'delete', '--force', 'c'])
      await endMonitor(join(monitor, 'monitor.lock'))
      await rm(directory, { recursive: true, force: true })
    })
    await mkdir(monitor)
    await makeRootfs(join(directory, 'rootfs'))
    // It greets again and again, because a busy monitor may accept the client only after the first greeting.
    const script = 'until read -t 1 line; do echo ready; done; echo got $line; exit 3'
    await makeBundle(join(directory, 'bundle'), join(directory, 'rootfs'), {
      args: ['sh', '-c', script],
      terminal,
    })
    const args = [
      `--monitor=${product('holdfast-monitor')}`,
      `--runtime=${runtime}`,
      `--root=${root}`,
      `--dir=${monitor}`,
      `--bundle=${join(directory, 'bundle')}`,
      '--id=c',
      `--terminal=${terminal}`,
    ]
    const { code, stdout, stderr } = await run(referee('monitorclient'), args, { timeoutMs: 60_000 })
    assert.equal(code, 0, stderr)
    const report = JSON.parse(stdout) as Report
    const log =
      (await readFile(join(monitor, 'log.1'), 'utf8')) + (await readFile(join(monitor, 'log'), 'utf8'))

    assert.match(report.version, /^\d+\.\d+\.\d+/)
    assert.ok(report.containerPid > 0)
    const attached = lines(report.attachOut).filter((line) => line !== 'ready')
    assert.deepEqual(attached, terminal ? ['world', 'got world'] : ['got world'])
    assert.equal(report.attachErr, '')
    assert.deepEqual([report.syncOut, report.syncErr, report.syncExit], ['out\n', 'err\n', 5])
    assert.equal(report.timedOut, true)
    assert.match(report.missing, /no-such-container/)
    assert.equal(report.served, 'served\n')
    assert.equal(report.reopened, true)
    assert.equal(report.exit, '3')
    assert.match(log, /^\S+ stdout F ready\r?\n/)
    assert.match(log, / stdout F got world\r?\n$/)
    await waitFor('the end of the monitor', () => !isAlive(report.monitorPid))
  })
}

test('the Go programs are built from the versions that the tests name', async () => {
  assert.match(await output(referee('crictl'), ['--version']), /v1\.37\.0/)
  assert.match(await output(referee('kubectl'), ['version', '--client']), /v1\.37\./)
})

function lines(text: string): string[] {
  return text.split(/\r?\n/).filter((line) => line !== '')
}
