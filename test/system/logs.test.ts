// Logs of real containers: whole lines and whole ends, rotation and reopening under fire, files that others cut, take
// away or fill. test/keeper has the log's framing in detail.

import assert from 'node:assert/strict'
import { execFileSync } from 'node:child_process'
import {
  copyFileSync,
  existsSync,
  mkdirSync,
  readFileSync,
  renameSync,
  rmSync,
  rmdirSync,
  statSync,
  truncateSync,
  writeFileSync,
} from 'node:fs'
import { join } from 'node:path'
import { after, before, describe, test } from 'node:test'
import { setTimeout as sleep } from 'node:timers/promises'
import { linesOf, readLog } from '../support/cri-log.ts'
import { openAttach, runExec } from '../support/rig-sessions.ts'
import { Rig, runtimes, waitFor } from '../support/rig.ts'

/** Prints numbers until /tmp/stop is there, then ends with 42. */
const counting = ['sh', '-c', 'i=0; while [ ! -e /tmp/stop ]; do echo $i; i=$((i+1)); done; exit 42']
const stop = ['touch', '/tmp/stop']

for (const runtime of runtimes) {
  describe(runtime, () => {
    let rig: Rig
    before(async () => {
      rig = await Rig.start(runtime, { TZ: 'Asia/Kolkata' })
    })
    after(async () => {
      await rig.close()
    })

    test('a stream that ends without a newline ends on an F; one without output has no entry (B01)', async () => {
      const ends = [
        { id: 'open', script: 'printf blah', stdout: ['blah'], stderr: [] },
        { id: 'open-second', script: "printf 'a\\nb'", stdout: ['a', 'b'], stderr: [] },
        { id: 'silent', script: 'printf ""', stdout: [], stderr: [] },
        { id: 'open-error', script: 'printf blah >&2', stdout: [], stderr: ['blah'] },
        { id: 'open-both', script: 'printf blah; printf bluh >&2', stdout: ['blah'], stderr: ['bluh'] },
      ]
      for (const { id, script, stdout, stderr } of ends) {
        await rig.run({ id, args: ['sh', '-c', script] })
        assert.equal(await rig.exitCode(id), 0)
        const entries = readLog(rig.logPath(id))
        assert.deepEqual(
          { out: linesOf(entries, 'stdout'), err: linesOf(entries, 'stderr') },
          { out: stdout, err: stderr },
        )
      }
    })

    test('the log is whole when the exit is reported, each of ten times (M01)', async () => {
      const line = 'the quick brown fox jumps over the lazy dog and writes exactly eighty bytes here'
      for (let i = 0; i < 10; i++) {
        const id = `fast-${i}`
        await rig.run({
          id,
          args: ['sh', '-c', `yes '${line}' | head -n 1250; exit 3`],
          terminal: i % 2 === 1,
        })
        assert.equal(await rig.exitCode(id), 3)
        const lines = linesOf(readLog(rig.logPath(id))).map((text) => text.trimEnd())
        assert.equal(lines.length, 1250)
        assert.ok(lines.every((text) => text === line))
      }
    })

    test('long lines are cut into P entries and one F, on either stream (B03)', async () => {
      const lengths = [4095, 4096, 8191, 8192, 16_383, 16_384, 16_385, 65_536, 1_048_577]
      const script = lengths.map((length) => `head -c ${length} /dev/zero | tr '\\0' x; echo`).join('; ')
      await rig.run({ id: 'long', args: ['sh', '-c', `{ ${script}; }; { ${script}; } >&2`] })
      assert.equal(await rig.exitCode('long'), 0)
      const entries = readLog(rig.logPath('long'))
      for (const stream of ['stdout', 'stderr']) {
        const lines = linesOf(entries, stream)
        assert.deepEqual(
          lines.map((line) => line.length),
          lengths,
        )
        assert.ok(lines.every((line) => /^x*$/.test(line)))
      }
    })

    test('time stamps have nine digits and an offset, and never go back (B05)', async () => {
      const script = 'seq 1 2000; for i in 1 2 3 4 5 6 7 8 9 10; do echo $i; usleep 1000; done'
      await rig.run({ id: 'times', args: ['sh', '-c', script] })
      assert.equal(await rig.exitCode('times'), 0)
      const times = readLog(rig.logPath('times')).map((entry) => entry.time)
      assert.equal(times.length, 2010)
      assert.deepEqual(times, times.toSorted())
      const age = Date.now() - Date.parse(times[0] ?? '')
      assert.ok(age >= 0 && age < 60_000, `the first entry is ${age} ms old`)
    })
  })
}

describe('the server', () => {
  let rig: Rig
  before(async () => {
    rig = await Rig.start('crun')
  })
  after(async () => {
    await rig.close()
  })

  test('renamed and reopened under fire, the files together have every number once (B54)', async () => {
    await rig.run({ id: 'rotated', args: counting })
    const path = rig.logPath('rotated')
    const { mode } = statSync(path)
    const old: string[] = []
    for (let i = 0; i < 30; i++) {
      await waitFor('some lines', () => statSync(path).size > 0)
      const away = `${path}.${i}`
      renameSync(path, away)
      await rig.client.reopenLog('rotated')
      const { size } = statSync(away)
      assert.equal(statSync(path).mode, mode)
      old.push(away)
      if (i % 10 !== 0) continue
      await sleep(50)
      assert.equal(statSync(away).size, size, 'nothing is written to the old file')
    }
    await rig.client.execSync({ id: 'rotated', command: stop })
    assert.equal(await rig.exitCode('rotated'), 42)
    assertCounts([...old, path].flatMap((file) => linesOf(readLog(file))))
  })

  test('rotated at its size limit as well, no number is lost (B54)', async () => {
    await rig.run({ id: 'limited', args: ['sh', '-c', 'seq 0 49999; exit 5'], logMaxSize: 1_000_000 })
    assert.equal(await rig.exitCode('limited'), 5)
    const path = rig.logPath('limited')
    const lines = [`${path}.1`, path].flatMap((file) => linesOf(readLog(file))).map(Number)
    assert.equal(lines.at(-1), 49_999)
    assert.ok(
      lines.every((number, i) => i === 0 || number === (lines[i - 1] ?? 0) + 1),
      'the last two files join',
    )
    assert.ok(statSync(`${path}.1`).size <= 1_000_000 && statSync(path).size <= 1_000_000)
  })

  test('reopened without a rename the log begins anew; calls at once count as one (B54)', async () => {
    await rig.run({ id: 'again', args: counting })
    await waitFor('some lines', () => statSync(rig.logPath('again')).size > 0)
    await Promise.all(Array.from({ length: 10 }, () => rig.client.reopenLog('again')))
    await rig.client.execSync({ id: 'again', command: stop })
    assert.equal(await rig.exitCode('again'), 42)
    const numbers = linesOf(readLog(rig.logPath('again'))).map(Number)
    assert.ok((numbers[0] ?? 0) > 0, 'what came before the last call is gone')
    assert.ok(
      numbers.every((number, i) => i === 0 || number === (numbers[i - 1] ?? 0) + 1),
      'no number is missing after it',
    )
  })

  test('a log is reopened while nothing is printed, while an exec runs, and not after the exit (B54, M11)', async () => {
    await rig.run({ id: 'quiet', args: ['sh', '-c', 'echo begin; sleep 1000'] })
    const path = rig.logPath('quiet')
    await waitFor('its line', () => statSync(path).size > 0)
    const exec = rig.client.execSync({ id: 'quiet', command: ['sleep', '1'] })
    renameSync(path, `${path}.old`)
    await rig.client.reopenLog('quiet')
    assert.ok(existsSync(path), 'the new file is there when the call returns')
    assert.equal((await exec).exitCode, 0)
    assert.deepEqual(linesOf(readLog(`${path}.old`)), ['begin'])
    rig.runOci('kill', 'quiet', 'KILL')
    await rig.exitCode('quiet')
    await assert.rejects(rig.client.reopenLog('quiet'), {
      code: 'failed-precondition',
      message: /quiet is not running/,
    })
    await assert.rejects(rig.client.reopenLog('nobody'), { code: 'not-found' })
  })

  test('a log that others cut goes on at its beginning without holes (B56)', async () => {
    await rig.run({ id: 'cut', args: counting })
    const path = rig.logPath('cut')
    for (let i = 0; i < 10; i++) {
      await waitFor('some lines', () => statSync(path).size > 1000)
      if (i % 2 === 0) truncateSync(path)
      else {
        copyFileSync(path, `${path}.copy`)
        writeFileSync(path, '')
      }
    }
    await rig.client.execSync({ id: 'cut', command: stop })
    assert.equal(await rig.exitCode('cut'), 42)
    assert.ok(!readFileSync(path).includes(0), 'no hole')
    const numbers = linesOf(readLog(path)).map(Number)
    assert.ok(numbers.every((number, i) => i === 0 || number === (numbers[i - 1] ?? 0) + 1))
  })

  test('a log that was taken away does not stop its container, and comes back with the next reopen (B56)', async () => {
    await rig.run({ id: 'taken', args: counting })
    const path = rig.logPath('taken')
    rmSync(path)
    await sleep(50)
    await rig.client.reopenLog('taken')
    await waitFor('lines in the new file', () => statSync(path).size > 0)
    rmSync(path)
    mkdirSync(path)
    await assert.rejects(rig.client.reopenLog('taken'), /taken\.log/)
    rmdirSync(path)
    await rig.client.reopenLog('taken')
    await waitFor('lines in the new file', () => statSync(path).size > 0)
    await rig.client.execSync({ id: 'taken', command: stop })
    assert.equal(await rig.exitCode('taken'), 42)
    const numbers = linesOf(readLog(path)).map(Number)
    assert.ok(numbers.every((number, i) => i === 0 || number === (numbers[i - 1] ?? 0) + 1))
  })

  test('on a full disk the container runs on, the loss is told once, and the log goes on with a whole entry (B57, M13)', async () => {
    const disk = join(rig.directory, 'small disk')
    mkdirSync(disk)
    execFileSync('mount', ['-t', 'tmpfs', '-o', 'size=1m', 'tmpfs', disk])
    try {
      const script = 'echo first; seq 1 200000; echo all; cat; echo last; exit 6'
      await rig.run({ id: 'full', args: ['sh', '-c', script], stdin: true, logDirectory: disk })
      const path = rig.logPath('full')
      const client = await openAttach(rig, {
        id: 'full',
        transport: 'websocket',
        stdin: true,
        stdinOnce: true,
      })
      client.send('typed\n')
      await client.until('typed')
      assert.equal(
        (await runExec(rig, { id: 'full', command: ['echo', 'hi'], transport: 'spdy' })).stdout.toString(),
        'hi\n',
      )
      await waitFor('the report', () => rig.diagnostics().includes('ENOSPC'))
      const filled = linesOf(readLog(path))
      assert.deepEqual(filled.slice(0, 2), ['first', '1'])
      truncateSync(path)
      client.sendLast('room again\n')
      assert.equal(await rig.exitCode('full'), 6)
      assert.deepEqual(linesOf(readLog(path)), ['room again', 'last'])
      await waitFor('the second report', () => /bytes were lost/.test(rig.diagnostics()))
      assert.equal(rig.diagnostics().split('ENOSPC').length - 1, 1)
      assert.match(
        rig.diagnostics(),
        /write log .*full\.log of container full: it works again; [1-9]\d* bytes were lost/,
      )
      await client.ended
    } finally {
      // The keeper has closed the log by now, or is about to.
      execFileSync('umount', ['--lazy', disk])
    }
  })
})

/** 0, 1, 2 … without a gap, a repetition or a swap. */
function assertCounts(lines: readonly string[]): void {
  const wrong = lines.findIndex((line, i) => line !== String(i))
  assert.ok(wrong < 0, `line ${wrong} of ${lines.length} is ${lines[wrong]}`)
}
