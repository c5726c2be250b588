// What cannot be run is told by name and leaves nothing; what is run gets its arguments as they are, its time, and no more.

import assert from 'node:assert/strict'
import { chmodSync, readFileSync, readdirSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { after, before, describe, test } from 'node:test'
import { failureOf, openExec, runExec } from '../support/rig-sessions.ts'
import { Rig, processesNaming, runtimes, streamFds, waitFor } from '../support/rig.ts'
import { openSession, transports, type TransportName } from '../support/session-client.ts'

const streams = { tty: false, stdin: false, stdout: true, stderr: true }

for (const runtime of runtimes) {
  describe(runtime, () => {
    let rig: Rig
    before(async () => {
      rig = await Rig.start(runtime)
      await rig.run({ id: 'main', args: ['sleep', '100000'] })
      // From now on it listens for streams.
      await runExec(rig, { id: 'main', command: ['true'], transport: 'spdy' })
    })
    after(async () => {
      await rig.close()
    })

    for (const tty of [false, true]) {
      test(`what is no program is a failure that names it, ${tty ? 'terminal' : 'pipes'} (B80, M06, M08)`, async () => {
        const fds = streamFds(rig.serverPid())
        for (const [command, reason] of [
          [['/no/such/program'], /no such file|not found/i],
          [['no-such-name'], /not found/i],
          [['/etc/passwd'], /permission denied/i],
          [['/etc'], /permission denied|is a directory|not permitted/i],
        ] as const) {
          for (const transport of transports) {
            const failure = failureOf((await runExec(rig, { id: 'main', command, transport, tty })).end)
            assert.match(failure, reason)
            // crun names only what it does not find.
            if (runtime === 'runc') assert.ok(failure.includes(command[0]), failure)
          }
          await assert.rejects(rig.client.execSync({ id: 'main', command, terminal: tty }), reason)
        }
        await waitFor('the descriptors to be closed', () => streamFds(rig.serverPid()) <= fds)
        assert.equal(await rig.sessions('main'), 0)
        assertNoFiles(rig, 'exec')
      })
    }

    test('a paused container runs nothing, and says so (B80)', async () => {
      rig.runOci('pause', 'main')
      try {
        for (const transport of transports) {
          const { end } = await runExec(rig, { id: 'main', command: ['true'], transport })
          assert.match(failureOf(end), /paused/)
        }
      } finally {
        rig.runOci('resume', 'main')
      }
    })

    test('arguments reach the program byte for byte (B62)', async () => {
      const args = [
        '\necho hello',
        '\t',
        '"',
        "'",
        '${X}',
        '$(id)',
        '`id`',
        '%s',
        '\\',
        '',
        ' ',
        '*',
        'é',
        '-t',
        'x'.repeat(100_000),
      ]
      const { stdout } = await rig.client.execSync({
        id: 'main',
        command: ['cat', '/proc/self/cmdline', '--', ...args],
      })
      assert.deepEqual(stdout.toString().split('\0').slice(3, -1), args)
      const script = await rig.client.execSync({ id: 'main', command: ['sh', '-euc', '\necho hello'] })
      assert.equal(script.stdout.toString(), 'hello\n')
    })

    test('arguments that no execve takes are a clean error (B62)', async () => {
      for (const command of [
        ['true', 'x'.repeat(200_000)],
        ['true', ...Array.from({ length: 40 }, () => 'x'.repeat(100_000))],
      ]) {
        await assert.rejects(rig.client.execSync({ id: 'main', command }), /too long/)
        for (const transport of transports) {
          assert.match(failureOf((await runExec(rig, { id: 'main', command, transport })).end), /too long/)
        }
      }
    })

    test('the environment reaches the container and its execs byte for byte (B62)', async () => {
      const env = ['A=', 'B=x=y', 'C=l1\nl2', 'D=é"\'$(id)', '1E=z', `F=${'v'.repeat(100_000)}`]
      await rig.run({
        id: 'env',
        args: ['sh', '-c', 'cat /proc/self/environ | tr "\\0\\n" "|+"; echo; sleep 1000'],
        env,
      })
      await waitFor('its output', () => rig.logText('env').endsWith('\n'))
      // The shell passes on what it can name: 1E is not among it.
      const own = Buffer.from(rig.logText('env'), 'latin1').toString()
      for (const entry of env.filter((each) => each !== '1E=z')) {
        assert.ok(
          own.includes(`${entry.replaceAll('\n', '+')}|`),
          `${entry.slice(0, 20)} reaches the container`,
        )
      }
      const { stdout } = await rig.client.execSync({ id: 'env', command: ['cat', '/proc/self/environ'] })
      for (const entry of env)
        assert.ok(stdout.toString().split('\0').includes(entry), `${entry.slice(0, 20)} reaches its execs`)
      assert.doesNotMatch(stdout.toString(), /LISTEN_|NODE_|HOLDFAST_|NOTIFY_SOCKET/)
    })

    test('a command that takes too long goes with all its descendants, and nothing else does (B46)', async () => {
      const bystander = await openExec(rig, { id: 'main', command: ['sleep', '2999'], transport: 'spdy' })
      const script = 'trap "" TERM; setsid sleep 2003 & (sleep 2001 & sleep 2002); sleep 2004'
      for (let i = 0; i < 2; i++) {
        const { timedOut } = await rig.client.execSync({
          id: 'main',
          command: ['sh', '-c', script],
          timeoutMs: 1000,
        })
        assert.equal(timedOut, true)
        const { stdout } = await rig.client.execSync({ id: 'main', command: ['ps', '-o', 'args'] })
        assert.doesNotMatch(stdout.toString(), /sleep 200/)
        assert.match(stdout.toString(), /sleep 2999/)
      }
      bystander.vanish()
      await killInside(rig, 'sleep 2999')
    })
  })
}

describe('the monitor', () => {
  let rig: Rig
  let script: string
  before(async () => {
    rig = await Rig.start('runc')
    script = readFileSync(rig.runtimePath, 'utf8')
    await rig.run({ id: 'main', args: ['sleep', '100000'] })
  })
  after(async () => {
    await rig.close()
  })

  test('a container that is unknown, over, or gone by then is named (B80)', async () => {
    const command = ['true']
    await assert.rejects(rig.client.serveExec({ id: 'nobody', command }), {
      code: 'not-found',
      message: /"nobody" not found/,
    })
    await assert.rejects(rig.client.serveExec({ id: 'main', command: [] }), { code: 'invalid-argument' })
    await rig.run({ id: 'short', args: ['sleep', '1000'] })
    const urls = await Promise.all(transports.map(() => rig.client.serveExec({ id: 'short', command })))
    rig.runOci('kill', 'short', 'KILL')
    await rig.exitCode('short')
    for (const [i, transport] of transports.entries()) {
      const session = await openSession(transport, urls[i] ?? '', streams)
      assert.match(failureOf(await session.ended), /short is not running/)
    }
    await assert.rejects(rig.client.serveExec({ id: 'short', command }), {
      code: 'failed-precondition',
      message: /not running/,
    })
    await assert.rejects(rig.client.execSync({ id: 'short', command }), { code: 'failed-precondition' })
  })

  test('a session ends with its command, not with what it left in the background (B48)', async () => {
    const text = async (transport: TransportName, script: string, tty = false): Promise<string> => {
      const command = ['sh', '-c', script]
      const { end, stdout } = await runExec(rig, { id: 'main', command, transport, tty })
      return `${stdout.toString()}${JSON.stringify(end)}`
    }
    const leave = 'trap "" HUP; sleep 3001 & echo hi; exit 5'
    const late = '(sleep 1; echo late; sleep 3001) & echo hi'
    // Who writes later does not block.
    const writes = '(sleep 3; yes | head -c 1000000; echo >> /tmp/written) & true'
    const results = await Promise.all(
      transports.map(async (transport) =>
        Promise.all([
          text(transport, leave),
          text(transport, leave, true),
          text(transport, late),
          text(transport, writes),
        ]),
      ),
    )
    const expected = ['hi\n{"code":5}', 'hi\r\n{"code":5}', 'hi\nlate\n{"code":0}', '{"code":0}']
    for (const result of results) assert.deepEqual(result, expected)
    const written = ['sh', '-c', 'until [ "$(wc -l < /tmp/written)" = 2 ]; do sleep 0.1; done']
    const waited = await rig.client.execSync({ id: 'main', command: written, timeoutMs: 10_000 })
    assert.equal(waited.timedOut, false)
    assert.equal(await killInside(rig, 'sleep 3001'), 6, 'what is left runs on')
  })

  test('a container that ends ends its execs with a status (B80)', async () => {
    await rig.run({ id: 'ends', args: ['sleep', '1000'] })
    const sessions = await Promise.all(
      transports.map((transport) =>
        openExec(rig, { id: 'ends', command: ['sh', '-c', 'echo ready; sleep 1000'], transport }),
      ),
    )
    for (const session of sessions) await session.until('ready')
    rig.runOci('kill', 'ends', 'KILL')
    for (const session of sessions) assert.deepEqual(await session.ended, { code: 137 })
  })

  for (const terminal of [false, true]) {
    const how = terminal ? 'terminal' : 'pipes'
    test(`a runtime that fails at once is quoted and leaves nothing, ${how} (M05)`, async () => {
      await withRuntime(rig, script, 'echo "it is broken today" >&2; exit 1', async () => {
        await assert.rejects(rig.create({ id: `m05-${how}`, args: ['true'], terminal }), /it is broken today/)
        const end = (await runExec(rig, { id: 'main', command: ['true'], transport: 'spdy', tty: terminal }))
          .end
        assert.match(failureOf(end), /it is broken today/)
      })
      assertNoFiles(rig, 'm05|exec|sock')
    })
  }

  test('a runtime whose complaint is no text is quoted as far as it is (B61)', async () => {
    await withRuntime(rig, script, "printf 'no file \\342M \\377\\n' >&2; exit 1", async () => {
      for (const transport of transports) {
        const { end } = await runExec(rig, { id: 'main', command: ['true'], transport })
        assert.match(failureOf(end), /no file \ufffdM \ufffd$/)
      }
      await assert.rejects(rig.client.execSync({ id: 'main', command: ['true'] }), /no file \ufffdM \ufffd/)
    })
  })

  test('a runtime that never sends the terminal is an error, not a hang (B09, M05)', async () => {
    // It connects and leaves.
    const program = `require('net').connect(process.argv.find((arg) => arg.startsWith('--console-socket=')).slice(17)).on('connect', () => process.exit(Number(process.env.CODE ?? 0)))`
    const path = join(rig.directory, 'connects.cjs')
    writeFileSync(path, program)
    for (const code of [0, 1]) {
      await withRuntime(rig, script, `CODE=${code} exec ${process.execPath} ${path} "$@"`, async () => {
        await assert.rejects(
          rig.create({ id: `b09-${code}`, args: ['true'], terminal: true }),
          /without sending|no terminal|exited with: 1/,
        )
      })
    }
    assertNoFiles(rig, 'b09')
    assert.deepEqual(processesNaming(path), [])
  })
})

/** Kills what runs in the container by its command line; returns how many there were. */
async function killInside(rig: Rig, line: string): Promise<number> {
  const script = `ps -o pid,args | while read pid line; do [ "$line" = "${line}" ] && kill -9 $pid && echo $pid; done`
  const { stdout } = await rig.client.execSync({ id: 'main', command: ['sh', '-c', script] })
  return stdout.toString().split('\n').filter(Boolean).length
}

/** What the runtime directory holds of these. */
function assertNoFiles(rig: Rig, pattern: string): void {
  const files = readdirSync(join(rig.directory, 'run')).filter((name) => new RegExp(pattern).test(name))
  assert.deepEqual(
    files.filter((name) => name !== 'conmon.sock'),
    [],
  )
}

/** Lets another shell text stand for the OCI runtime meanwhile. */
async function withRuntime(rig: Rig, script: string, text: string, body: () => Promise<void>): Promise<void> {
  writeFileSync(rig.runtimePath, `#!/bin/sh\n${text}\n`)
  chmodSync(rig.runtimePath, 0o755)
  try {
    await body()
  } finally {
    writeFileSync(rig.runtimePath, script)
  }
}
