// client-go's executors against a monitor: the table of cases, and sessions whose server dies.

import assert from 'node:assert/strict'
import { after, before, test } from 'node:test'
import { checkLeaks } from '../support/leak-check.ts'
import { MonitorRig } from './monitor-rig.ts'
import { Program, referee, run } from './programs.ts'

const all = process.env['HOLDFAST_TEST_ALL'] !== undefined
const transports = ['spdy', 'ws', 'ws5'] as const

const runtimes = all ? (['runc', 'crun'] as const) : (['runc'] as const)

const rigs = new Map<string, MonitorRig>()

after(async () => {
  for (const rig of rigs.values()) await rig.stop()
})
// Hooks run in this order: nothing may be left once all is stopped.
checkLeaks()

before(async () => {
  for (const runtime of runtimes) {
    const rig = await MonitorRig.start({ runtime })
    rigs.set(runtime, rig)
    await rig.runContainer('table', { args: ['sleep', '100000'] })
  }
})

const rounds = runtimes.flatMap((runtime) => transports.map((transport) => ({ runtime, transport })))
for (const { runtime, transport } of rounds) {
  test(`every case of the table is right over ${transport} with ${runtime}`, async () => {
    const rig = rigOf(runtime)
    const control = await rig.control()
    const args = ['table', '--control', control.address, '--id', 'table', '--transport', transport]
    const { code, stdout, stderr } = await run(referee('driver'), all ? [...args, '--all'] : args, {
      timeoutMs: 300_000,
    })
    await control.close()
    const cells = stdout.trim().split('\n')
    assert.deepEqual(
      cells.filter((cell) => !cell.includes('"ok":true')),
      [],
      stderr,
    )
    assert.ok(cells.length > 15, `only ${cells.length} cells: ${stderr}`)
    assert.equal(code, 0)
  })

  test(`a session over ${transport} with ${runtime} whose server is killed is an error`, async (t) => {
    const rig = rigOf(runtime)
    const cmd = ['sh', '-c', 'echo running; exec cat']
    const url = await rig.url({ id: 'table', cmd, stdin: true })
    const session = Program.during(t, referee('driver'), ['exec', '--stdin', '--transport', transport, url])
    await session.until(/running\n/)
    process.kill(await rig.serverPid(), 'SIGKILL')
    assert.equal(await session.exited, 0, session.stderr)
    const last = session.stderr.trim().split('\n').at(-1) ?? ''
    const { exit, error } = JSON.parse(last) as { exit: number; error: string }
    assert.equal(exit, -1)
    assert.notEqual(error, '')
  })
}

function rigOf(runtime: string): MonitorRig {
  const rig = rigs.get(runtime)
  assert.ok(rig !== undefined, `no rig for ${runtime}`)
  return rig
}
