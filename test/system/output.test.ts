// What processes print arrives whole: at a fast end, on a terminal, to slow readers, and for exec sync up to its limit.
// Ids name the cases these tests stand for. test/faults/end-of-output.test.ts has the long repetitions.

import assert from 'node:assert/strict'
import { createHash } from 'node:crypto'
import { after, before, describe, test } from 'node:test'
import { setTimeout as sleep } from 'node:timers/promises'
import { residentBytes } from '../support/process-facts.ts'
import { openExec, runExec } from '../support/rig-sessions.ts'
import { Rig, runtimes } from '../support/rig.ts'
import { transports } from '../support/session-client.ts'

const mebibyte = 1024 * 1024
const zeros = (bytes: number): Buffer => Buffer.alloc(bytes)

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

    test('eight execs at once each deliver all they wrote before their end (B06, M02)', async () => {
      // One byte a write, as in the report.
      const command = [
        'sh',
        '-c',
        'dd if=/dev/zero bs=1 count=50000 2>/dev/null; dd if=/dev/zero bs=50000 count=9 2>/dev/null',
      ]
      const runs = Array.from({ length: 8 }, async (_, i) => {
        const transport = transports[i % 2] ?? 'spdy'
        const { end, stdout } = await runExec(rig, { id: 'main', command, transport })
        assert.deepEqual(end, { code: 0 })
        assert.equal(stdout.length, 500_000)
      })
      await Promise.all(runs)
    })

    for (const bytes of [100, 4095, 4096, 8192, 20_480, 100_000]) {
      test(`a terminal delivers ${bytes} bytes of a fast program, each time (B08)`, async () => {
        const command = ['sh', '-c', `stty -opost; head -c ${bytes} /dev/zero; exit 9`]
        for (const transport of [...transports, ...transports]) {
          const { end, stdout } = await runExec(rig, { id: 'main', command, transport, tty: true })
          assert.deepEqual(end, { code: 9 })
          assert.equal(stdout.length, bytes)
        }
      })
    }

    test('a terminal delivers what a program said that ended before anybody looked (B09)', async () => {
      const long = 'x'.repeat(3000)
      const commands = [
        { command: ['true'], text: '' },
        { command: ['echo', 'hi'], text: 'hi\r\n' },
        { command: ['printf', long], text: long },
      ]
      for (const { command, text } of commands) {
        for (const transport of transports) {
          const exec = { id: 'main', command, transport, tty: true }
          const results = await Promise.all([runExec(rig, exec), runExec(rig, exec), runExec(rig, exec)])
          for (const { end, stdout } of results) {
            assert.deepEqual(end, { code: 0 })
            assert.equal(stdout.toString(), text)
          }
        }
      }
    })

    test('bytes that are no text pass unchanged in both directions (B61, B73)', async () => {
      const bytes = Buffer.alloc(mebibyte)
      for (let i = 0; i < bytes.length; i++) bytes[i] = (i * 7 + (i >> 8)) & 0xff
      for (const transport of transports) {
        const { end, stdout } = await runExec(rig, { id: 'main', command: ['cat'], transport }, bytes)
        assert.deepEqual(end, { code: 0 })
        assert.equal(digest(stdout), digest(bytes))
      }
      const { stdout } = await rig.client.execSync({
        id: 'main',
        command: ['printf', '\\377\\376\\200A\\000B'],
      })
      assert.deepEqual([...stdout], [0xff, 0xfe, 0x80, 0x41, 0, 0x42])
    })
  })
}

describe('the server', () => {
  let rig: Rig
  before(async () => {
    rig = await Rig.start('runc')
    await rig.run({ id: 'main', args: ['sleep', '100000'] })
  })
  after(async () => {
    await rig.close()
  })

  test('a client that rests for 3 s before it reads gets 20 MB, and the process waits (B10, M03)', async () => {
    const command = ['sh', '-c', 'head -c 20000000 /dev/zero; exit 6']
    const before = residentBytes(rig.serverPid())
    const sessions = await Promise.all(
      transports.map((transport) => openExec(rig, { id: 'main', command, transport })),
    )
    for (const session of sessions) session.pause()
    await sleep(3000)
    const rise = residentBytes(rig.serverPid()) - before
    for (const session of sessions) {
      session.resume()
      assert.deepEqual(await session.ended, { code: 6 })
      assert.ok(session.stdout().equals(zeros(20_000_000)), `${session.stdout().length} bytes`)
    }
    assert.ok(rise < 32 * mebibyte, `memory rose by ${rise} bytes while the clients rested`)
  })

  test('exec sync keeps 16 MiB of each stream and lets the process go on to its end (B22)', async () => {
    const command = ['sh', '-c', 'head -c 17825792 /dev/zero; echo said >&2; exit 4']
    const { stdout, stderr, exitCode } = await rig.client.execSync({ id: 'main', command })
    assert.equal(stdout.length, 16 * mebibyte)
    assert.equal(stderr.toString(), 'said\n')
    assert.equal(exitCode, 4)
  })

  test('endless output ends at the time limit of exec sync, and costs no more than its limit (B22)', async () => {
    const runs = Array.from({ length: 3 }, () =>
      rig.client.execSync({ id: 'main', command: ['yes'], timeoutMs: 1000 }),
    )
    for (const { stdout, timedOut } of await Promise.all(runs)) {
      assert.equal(timedOut, true)
      assert.ok(stdout.length <= 16 * mebibyte)
    }
    const left = await rig.client.execSync({ id: 'main', command: ['ps', '-o', 'comm'] })
    assert.doesNotMatch(left.stdout.toString(), /^yes$/m)
  })
})

function digest(bytes: Buffer): string {
  return `${bytes.length} ${createHash('sha256').update(bytes).digest('hex')}`
}
