import assert from 'node:assert/strict'
import { describe, test } from 'node:test'
import { Diagnostics } from '../../src/base/diagnostics.ts'
import { ExitTable } from '../../src/container/exit-table.ts'
import type { ContainerContext } from '../../src/container/context.ts'
import { encodeRecord } from '../../src/container/record.ts'
import type { HeldEntry, PumpState } from '../../src/keeper/keeper-client.ts'
import { Monitor } from '../../src/monitor/monitor.ts'
import { OwnCgroup } from '../../src/monitor/own-cgroup.ts'
import { restore, type Held } from '../../src/monitor/restore.ts'
import { OciRuntime } from '../../src/oci/oci-runtime.ts'
import { dupCloexec } from '../../src/native/addon.ts'
import { checkLeaks } from '../support/leak-check.ts'
import { StubKeeper } from '../support/stub-keeper.ts'

checkLeaks()

const stream = { bytes: 0, open: true, ended: false, copying: false, copyFrom: 0, lostAt: undefined }
const pump: PumpState = {
  generation: 0,
  errno: 0,
  size: 0,
  limit: 0,
  dropped: 0,
  inode: 1,
  device: 0,
  streams: [stream, stream],
}

function entry(name: string, record: Buffer, more: Partial<HeldEntry> = {}): [string, HeldEntry] {
  return [name, { name, record, fd: undefined, wake: false, pump: undefined, ...more }]
}

async function restored(...entries: [string, HeldEntry][]) {
  const keeper = new StubKeeper()
  // Its containers run on.
  keeper.watch = () => Promise.resolve(true)
  const said: string[] = []
  const context: ContainerContext = {
    keeper: keeper.client,
    exits: new ExitTable(keeper.client),
    runtime: new OciRuntime({ path: '/bin/false', root: undefined, launcher: '/bin/false' }),
    diagnostics: new Diagnostics((line) => said.push(line)),
    directory: '/nonexistent',
    launcher: '/bin/false',
  }
  const ownCgroup = new OwnCgroup(process.pid, context.diagnostics)
  const monitor = new Monitor({ context, keeperPid: process.pid, ownCgroup })
  const held: Held = new Map(entries)
  await restore(monitor, context, held)
  return { keeper, said, monitor, left: [...held.keys()] }
}

describe('a server that takes over', () => {
  test('goes on with a container whose log cannot be opened again', async () => {
    const logPath = '/nonexistent/directory/c1.log'
    const record = encodeRecord({ id: 'c1', state: 'running', pid: 4_000_000, terminal: false, logPath })
    const { monitor, said } = await restored(
      entry('container/c1', record),
      entry('container/c1/io', encodeRecord({ id: 'c1' }), { pump }),
    )
    assert.equal(monitor.containers.running('c1', 'test').pid, 4_000_000)
    assert.match(said.join(), /^error: container c1: go on in its log: open log file path .*ENOENT/)
  })

  test('does without namespaces whose record it cannot read', async () => {
    const { said } = await restored(entry('namespaces', Buffer.from('{"v":2}')))
    assert.match(said.join(), /^error: restore namespaces: read the record of namespaces: unknown format/)
  })

  test('disconnects the clients of an attach socket whose container has exited', async () => {
    const fd = dupCloexec(0)
    const { keeper, left } = await restored(entry('attach/1-1/9-2', Buffer.alloc(0), { fd }))
    assert.ok(keeper.asked.includes('drop attach/1-1/9-2'))
    assert.deepEqual(left, [])
  })
})
