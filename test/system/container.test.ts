// Real containers through the RPC: create, log, exit, exec sync, with runc and crun, with pipes and with a terminal.

import assert from 'node:assert/strict'
import { existsSync, readFileSync, readdirSync, renameSync } from 'node:fs'
import { join } from 'node:path'
import { after, before, describe, test } from 'node:test'
import { Rig, runtimes, waitFor } from '../support/rig.ts'

for (const runtime of runtimes) {
  describe(runtime, () => {
    let rig: Rig
    before(async () => {
      rig = await Rig.start(runtime)
    })
    after(async () => {
      await rig.close()
    })

    test('reports the exit code and keeps the whole log', async () => {
      await rig.run({ id: 'simple', args: ['sh', '-c', 'echo out; echo err >&2; printf rest; exit 42'] })
      assert.equal(await rig.exitCode('simple'), 42)
      assert.equal(rig.logText('simple', 'stdout'), 'out\nrest\n')
      assert.equal(rig.logText('simple', 'stderr'), 'err\n')
    })

    test('reports the exit code of a terminal container and its log', async () => {
      await rig.run({ id: 'tty', terminal: true, args: ['sh', '-c', 'tty; exit 3'] })
      assert.equal(await rig.exitCode('tty'), 3)
      assert.match(rig.logText('tty'), /\/dev\/(pts\/0|console)\r\n/)
    })

    test('lets a container without a log print and exit', async () => {
      await rig.run({
        id: 'unlogged',
        unlogged: true,
        args: ['sh', '-c', 'head -c 1000000 /dev/zero; exit 4'],
      })
      assert.equal(await rig.exitCode('unlogged'), 4)
      assert.ok(!existsSync(rig.logPath('unlogged')))
    })

    test('reports death by signal as 128 + signal', async () => {
      await rig.run({ id: 'killed', args: ['sleep', '1000'] })
      rig.runOci('kill', 'killed', 'KILL')
      assert.equal(await rig.exitCode('killed'), 137)
      assert.ok(!existsSync(rig.oomPath('killed')), 'a kill is no OOM kill')
    })

    for (const terminal of [false, true]) {
      test(`fails a create with the runtime's own message, ${terminal ? 'terminal' : 'pipes'}`, async () => {
        const id = `bad-${terminal}`
        await assert.rejects(
          rig.create({ id, terminal, args: ['/no/such/program'] }),
          /no such file|not found/i,
        )
        assert.deepEqual(
          readdirSync(join(rig.directory, 'run')).filter((name) => name.includes(id)),
          [],
        )
        await rig.run({ id: `${id}-next`, args: ['true'] })
        assert.equal(await rig.exitCode(`${id}-next`), 0)
      })
    }

    describe('a running container', () => {
      before(async () => {
        await rig.run({ id: 'main', args: ['sleep', '1000'] })
      })

      test('runs a command and collects its output and status', async () => {
        const result = await rig.client.execSync({
          id: 'main',
          command: ['sh', '-c', 'echo hi; echo no >&2; exit 7'],
        })
        assert.equal(result.stdout.toString(), 'hi\n')
        assert.equal(result.stderr.toString(), 'no\n')
        assert.equal(result.exitCode, 7)
        assert.equal(result.timedOut, false)
      })

      test('keeps every byte of fast output, each of 20 times', async () => {
        for (let i = 0; i < 20; i++) {
          const result = await rig.client.execSync({
            id: 'main',
            command: ['head', '-c', '1000000', '/dev/zero'],
          })
          assert.equal(result.stdout.length, 1_000_000)
          assert.equal(result.exitCode, 0)
        }
      })

      test('kills the whole tree at a time-out', async () => {
        const result = await rig.client.execSync({
          id: 'main',
          command: ['sh', '-c', 'trap "" TERM; (sleep 1001 & sleep 1002); sleep 1003'],
          timeoutMs: 1000,
        })
        assert.equal(result.timedOut, true)
        const left = await rig.client.execSync({ id: 'main', command: ['ps', '-o', 'args'] })
        assert.doesNotMatch(left.stdout.toString(), /sleep 100[123]/)
      })

      test('does not wait for a child left behind, and keeps what was printed', async () => {
        const result = await rig.client.execSync({ id: 'main', command: ['sh', '-c', 'sleep 30 & echo hi'] })
        assert.equal(result.stdout.toString(), 'hi\n')
        assert.equal(result.exitCode, 0)
      })

      test('says so when the command does not exist', async () => {
        await assert.rejects(
          rig.client.execSync({ id: 'main', command: ['/no/such'] }),
          /no such file|not found/i,
        )
      })

      test('says so when the container does not exist', async () => {
        await assert.rejects(
          rig.client.execSync({ id: 'nobody', command: ['true'] }),
          /container "nobody" not found/,
        )
      })

      test('leaves no file of an exec behind', () => {
        const files = readdirSync(join(rig.directory, 'run')).filter((name) => name.startsWith('exec'))
        assert.deepEqual(files, [])
      })
    })

    test('goes on in a fresh log after rename and reopen', async () => {
      const script = 'i=0; while :; do echo $i; i=$((i+1)); usleep 1000; done'
      await rig.run({ id: 'rotated', args: ['sh', '-c', script] })
      await waitFor('some lines', () => rig.logText('rotated').length > 20)
      renameSync(rig.logPath('rotated'), `${rig.logPath('rotated')}.old`)
      await rig.client.reopenLog('rotated')
      assert.ok(existsSync(rig.logPath('rotated')))
      await waitFor('lines in the new file', () => rig.logText('rotated').length > 20)
      rig.runOci('kill', 'rotated', 'KILL')
      await rig.exitCode('rotated')
      const text =
        readFileSync(`${rig.logPath('rotated')}.old`, 'utf8') + readFileSync(rig.logPath('rotated'), 'utf8')
      const numbers = text
        .trimEnd()
        .split('\n')
        .map((line) => Number(line.split(' ')[3]))
      assert.deepEqual(
        numbers,
        numbers.map((_, i) => i),
      )
    })
  })
}
