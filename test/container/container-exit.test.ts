import assert from 'node:assert/strict'
import { mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { after, describe, test } from 'node:test'
import { Diagnostics } from '../../src/base/diagnostics.ts'
import { MonitorError } from '../../src/base/errors.ts'
import { Container } from '../../src/container/container.ts'
import type { ContainerContext } from '../../src/container/context.ts'
import { execSync } from '../../src/container/exec-sync.ts'
import { ExitTable } from '../../src/container/exit-table.ts'
import { writeExitFiles } from '../../src/container/exit-report.ts'
import type { ContainerRecord } from '../../src/container/record.ts'
import type { PumpState } from '../../src/keeper/keeper-client.ts'
import { OciRuntime } from '../../src/oci/oci-runtime.ts'
import { checkLeaks } from '../support/leak-check.ts'
import { StubKeeper } from '../support/stub-keeper.ts'

checkLeaks()

const directory = mkdtempSync(join(tmpdir(), 'hf-exit-'))
after(() => rmSync(directory, { recursive: true, force: true }))

const exitFile = join(directory, 'c1')
const record: ContainerRecord = {
  state: 'running',
  id: 'c1',
  pid: 4_000_000,
  terminal: false,
  stdin: false,
  stdinOnce: false,
  stdinTaken: false,
  systemdCgroup: false,
  pidFile: join(directory, 'pidfile'),
  runtimePidFile: join(directory, 'runtime'),
  exitPaths: [exitFile],
  oomExitPaths: [],
  cleanupCommand: [],
  logPath: '',
  logLimit: 0,
  relogged: false,
  memoryCgroup: '',
  exitCode: 0,
}

const stream = { bytes: 0, open: false, ended: true, copying: false, copyFrom: 0, lostAt: undefined }
const ended: PumpState = {
  generation: 0,
  errno: 0,
  size: 0,
  limit: 0,
  dropped: 0,
  inode: 0,
  device: 0,
  streams: [stream, stream],
}

function contextOf(keeper: StubKeeper, said: string[] = []): ContainerContext {
  return {
    keeper: keeper.client,
    exits: new ExitTable(keeper.client),
    runtime: new OciRuntime({ path: '/bin/false', root: undefined, launcher: '/bin/false' }),
    diagnostics: new Diagnostics((line) => said.push(line)),
    directory,
    launcher: '/bin/false',
  }
}

describe('the exit of a container', () => {
  test('stays what a server wrote down that died after it had claimed it', async () => {
    const keeper = new StubKeeper()
    const said: string[] = []
    const held = { stdin: undefined, terminal: undefined, pump: ended, logInode: 0 }
    const container = Container.adopt(
      contextOf(keeper, said),
      { ...record, state: 'exiting', exitCode: 3 },
      held,
    )
    await container.exited
    assert.equal(container.exitCode, 3)
    assert.equal(readFileSync(exitFile, 'utf8'), '3')
    assert.deepEqual([said, keeper.asked.filter((request) => request.startsWith('watch'))], [[], []])
  })

  test('is written wherever it can be', () => {
    const said: string[] = []
    writeFileSync(join(directory, 'file'), '')
    const exitPaths = [join(directory, 'file', 'c1'), join(directory, 'x'.repeat(255)), exitFile]
    const diagnostics = new Diagnostics((line) => said.push(line))
    writeExitFiles({ ...record, exitPaths, exitCode: 7 }, false, diagnostics)
    assert.equal(readFileSync(exitFile, 'utf8'), '7')
    assert.equal(said.length, 2)
  })
})

describe('what cannot be started', () => {
  test('says why, not what followed from it', async () => {
    const keeper = new StubKeeper()
    keeper.refused.set(
      'hold container/c1',
      new MonitorError('resource-exhausted', 'hold container/c1: ENOSPC'),
    )
    keeper.refused.set('drop', new MonitorError('not-found', 'drop container/c1: ENOENT'))
    const options = { record, bundlePath: directory, globalArgs: [], commandArgs: [], env: [] }
    await assert.rejects(Container.create(contextOf(keeper), options), {
      message: 'hold container/c1: ENOSPC',
    })
  })
})

describe('a collected exec', () => {
  test('is killed when its caller gave up before it had started', async () => {
    let finish!: (status: { signal: number }) => void
    const finished = new Promise<{ signal: number }>((resolve) => (finish = resolve))
    const process = {
      finished,
      connect: () => undefined,
      kill: async () => finish({ signal: 9 }),
    }
    const container = { exec: () => Promise.resolve(process) } as unknown as Container
    const signal = AbortSignal.abort(new MonitorError('canceled', 'given up'))
    const options = { command: ['sleep', '1000'], terminal: false, timeoutMs: 0, env: [] }
    assert.deepEqual((await execSync(container, options, signal)).status, { signal: 9 })
  })
})
