// Nothing is lost at an end: a process writes fast and exits at once, and every byte and the status arrive, in the log,
// in exec sync and in streamed execs. HOLDFAST_FAULT_RUNS sets how often each is tried (100).

import assert from 'node:assert/strict'
import { after, before, describe, test } from 'node:test'
import { Rig, runtimes } from '../support/rig.ts'
import { openSession, transports } from '../support/session-client.ts'

const runs = Number(process.env['HOLDFAST_FAULT_RUNS'] ?? 100)
const line = 'the quick brown fox jumps over the lazy dog and writes exactly eighty bytes here'
const expected = Buffer.from(`${line}\n`.repeat(150_000))

function writer(bytes: number): string[] {
  return ['sh', '-c', `yes '${line}' | head -c ${bytes}; exit 3`]
}

for (const runtime of runtimes) {
  describe(runtime, () => {
    let rig: Rig
    before(async () => {
      rig = await Rig.start(runtime)
      await rig.run({ id: 'main', args: ['sleep', '100000'] })
    })
    after(async () => {
      await rig.close()
    })

    for (const bytes of [100_000, 1_000_000, 12_000_000]) {
      test(`the log of a container keeps ${bytes} bytes, ${runs} times`, async () => {
        for (let i = 0; i < runs; i++) {
          const id = `log-${bytes}-${i}`
          await rig.run({ id, args: writer(bytes) })
          assert.equal(await rig.exitCode(id), 3)
          const text = Buffer.from(rig.logText(id), 'latin1')
          // The last entry is whole: its line end is the log's own.
          assert.ok(
            text.subarray(0, bytes).equals(expected.subarray(0, bytes)),
            `run ${i}: ${text.length} bytes`,
          )
          assert.ok(text.length <= bytes + 1)
          rig.runOci('delete', id)
          rig.removeFiles(id)
        }
      })

      test(`exec sync returns ${bytes} bytes, ${runs} times`, async () => {
        for (let i = 0; i < runs; i++) {
          const result = await rig.client.execSync({ id: 'main', command: writer(bytes) })
          assert.ok(
            result.stdout.equals(expected.subarray(0, bytes)),
            `run ${i}: ${result.stdout.length} bytes`,
          )
          assert.equal(result.exitCode, 3)
        }
      })

      for (const transport of transports) {
        test(`exec over ${transport} delivers ${bytes} bytes, ${runs} times`, async () => {
          for (let i = 0; i < runs; i++) {
            const url = await rig.client.serveExec({
              id: 'main',
              command: writer(bytes),
              tty: false,
              stdin: false,
              stdout: true,
              stderr: true,
            })
            const session = await openSession(transport, url, {
              stdin: false,
              stdout: true,
              stderr: true,
              tty: false,
            })
            assert.deepEqual(await session.ended, { code: 3 })
            const stdout = session.stdout()
            assert.ok(stdout.equals(expected.subarray(0, bytes)), `run ${i}: ${stdout.length} bytes`)
          }
        })
      }
    }
  })
}
