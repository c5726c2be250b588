// Input of execs: it arrives whole, its end ends nothing else, programs that do not want it are no error, and one that
// does not read holds its own client back and nobody else.

import assert from 'node:assert/strict'
import { createHash, randomBytes } from 'node:crypto'
import { after, before, describe, test } from 'node:test'
import { setTimeout as sleep } from 'node:timers/promises'
import { cpuMs, residentBytes } from '../support/process-facts.ts'
import { finish, openExec, runExec } from '../support/rig-sessions.ts'
import { Rig, runtimes, waitFor } from '../support/rig.ts'
import { transports, type SessionClient, type TransportName } from '../support/session-client.ts'
import { WebSocketClient } from '../support/websocket-client.ts'

const mebibyte = 1024 * 1024
/** What the server may use of a core while nothing moves, in a window of `stallMs`. */
const idleCpuMs = 300
const stallMs = 2000
/** Shell text that waits until go() is called. */
const waitForGo = 'until [ -e /tmp/go ]; do sleep 0.1; done'

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

    for (const transport of transports) {
      test(`input ends where the client ends it, and output goes on after it, over ${transport} (B12, B13, M07)`, async () => {
        const exec = { id: 'main', transport }
        const said = await runExec(rig, { ...exec, command: ['cat'] }, 'foo\n')
        assert.deepEqual({ ...said.end, text: said.stdout.toString() }, { code: 0, text: 'foo\n' })
        const nothing = await runExec(rig, { ...exec, command: ['cat'] }, '')
        assert.deepEqual({ ...nothing.end, bytes: nothing.stdout.length }, { code: 0, bytes: 0 })
        const command = ['sh', '-c', 'cat | wc -c; sleep 1; echo done; exit 3']
        const counted = await runExec(rig, { ...exec, command }, 'x'.repeat(100_000))
        assert.deepEqual(
          { ...counted.end, text: counted.stdout.toString() },
          { code: 3, text: '100000\ndone\n' },
        )
      })

      test(`a program that ends while its client sends has its own status, over ${transport} (M17)`, async () => {
        for (const command of [
          ['sh', '-c', 'exit 4'],
          ['sh', '-c', 'head -c 1 >/dev/null; sleep 0.3; exit 4'],
        ]) {
          const session = await openExec(rig, { id: 'main', command, transport, stdin: true })
          const stop = sendWithoutEnd(session)
          assert.deepEqual(await session.ended, { code: 4 })
          stop()
        }
      })
    }
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

  for (const transport of transports) {
    test(`10 MiB of input arrive unchanged, and their end with them, over ${transport} (B12)`, async () => {
      const input = randomBytes(10 * mebibyte)
      const { end, stdout } = await runExec(rig, { id: 'main', command: ['sha256sum'], transport }, input)
      assert.deepEqual(end, { code: 0 })
      assert.equal(stdout.toString().slice(0, 64), createHash('sha256').update(input).digest('hex'))
    })

    test(`programs that do not want their input end nothing else, over ${transport} (B67)`, async () => {
      const server = rig.serverPid()
      const bystander = await openExec(rig, { id: 'main', command: ['cat'], transport, stdin: true })
      for (let i = 0; i < 5; i++) {
        for (const command of [['true'], ['head', '-c1']]) {
          const session = await openExec(rig, { id: 'main', command, transport, stdin: true })
          const stop = sendWithoutEnd(session)
          assert.deepEqual(await session.ended, { code: 0 })
          stop()
        }
      }
      bystander.sendLast('still here')
      const { end, stdout } = await finish(bystander)
      assert.deepEqual({ ...end, text: stdout.toString() }, { code: 0, text: 'still here' })
      assert.equal(rig.serverPid(), server)
    })

    test(`a client that resets its connection in a burst of output ends nothing else, over ${transport} (B67)`, async () => {
      const server = rig.serverPid()
      const bystander = await openExec(rig, { id: 'main', command: ['cat'], transport, stdin: true })
      for (let i = 0; i < 5; i++) {
        const burst = await openExec(rig, {
          id: 'main',
          command: ['head', '-c', '10000000', '/dev/zero'],
          transport,
        })
        await waitFor('some output', () => burst.stdout().length > 0)
        burst.vanish()
        await burst.ended
      }
      bystander.sendLast('still here')
      assert.equal((await finish(bystander)).stdout.toString(), 'still here')
      assert.equal(rig.serverPid(), server)
    })
  }

  test('a slow reader of lines gets every line (B65)', async () => {
    const line = `${'l'.repeat(199)}\n`
    const command = ['sh', '-c', 'n=0; while IFS= read -r l; do n=$((n+1)); done; echo $n end']
    const { end, stdout } = await runExec(rig, { id: 'main', command, transport: 'spdy' }, line.repeat(2000))
    assert.deepEqual({ ...end, text: stdout.toString() }, { code: 0, text: '2000 end\n' })
  })

  test('a program that sleeps before it reads 32 MiB holds its client back, and costs no work (B65)', async () => {
    const command = ['sh', '-c', `${waitForGo}; cat | wc -c`]
    const sessions = await Promise.all(
      transports.map((transport) => openExec(rig, { id: 'main', command, transport, stdin: true })),
    )
    const before = residentBytes(rig.serverPid())
    const piece = Buffer.alloc(mebibyte)
    for (const session of sessions) for (let i = 0; i < 32; i++) session.send(piece)
    await sleep(500)
    const { rise, used } = await watchStall(rig, before)
    for (const session of sessions) {
      assert.ok(session.buffered > 16 * mebibyte, 'the client is held back')
    }
    await go(rig)
    for (const session of sessions) {
      session.closeStdin()
      const { end, stdout } = await finish(session)
      assert.deepEqual({ ...end, text: stdout.toString() }, { code: 0, text: `${32 * mebibyte}\n` })
    }
    assert.ok(rise < 16 * mebibyte, `memory rose by ${rise} bytes`)
    assert.ok(rig.diagnostics().split('\n').length < 5, 'waiting is not worth a message')
    assert.ok(used < idleCpuMs, `the server worked for ${used} ms while nothing moved`)
  })

  test('a terminal program that sleeps before it reads a paste of 1 MiB costs no work, and others type on (B66)', async () => {
    const paste = Buffer.from(randomBytes(mebibyte / 2).toString('hex'))
    const command = ['sh', '-c', `stty raw -echo; echo ready; ${waitForGo}; head -c ${mebibyte} | md5sum`]
    const stalled = await openExec(rig, { id: 'main', command, transport: 'spdy', stdin: true, tty: true })
    await stalled.until('ready')
    stalled.send(paste)
    const typists = await Promise.all(
      Array.from({ length: 6 }, (_, i) => openTypist(rig, transports[i % 2] ?? 'spdy')),
    )
    const { used } = await watchStall(rig, residentBytes(rig.serverPid()))
    for (const [i, typist] of typists.entries()) {
      typist.send(`word ${i}\n`)
      await typist.until(`word ${i}`)
      typist.closeStdin()
      assert.deepEqual(await typist.ended, { code: 0 })
    }
    await go(rig)
    assert.deepEqual(await stalled.ended, { code: 0 })
    assert.ok(stalled.stdout().toString().includes(createHash('md5').update(paste).digest('hex')))
    assert.ok(used < idleCpuMs, `the server worked for ${used} ms while nothing moved`)
  })

  test('a message in many frames is one message (B71, M16)', async () => {
    for (const pieces of [1, 2, 1000]) {
      const input = randomBytes(100_000)
      const url = await rig.client.serveExec({
        id: 'main',
        command: ['sha256sum'],
        stdin: true,
        stderr: false,
      })
      const client = new WebSocketClient(url)
      await client.opened
      const length = Math.ceil(input.length / pieces)
      const frames = Array.from({ length: pieces }, (_, i) => input.subarray(i * length, (i + 1) * length))
      // The channel stands alone in the first frame, and the last one is empty.
      client.sendInFrames([Buffer.from([0]), ...frames, Buffer.alloc(0)])
      client.closeStdin()
      assert.deepEqual(await client.ended, { code: 0 })
      assert.equal(client.stdout().toString().slice(0, 64), createHash('sha256').update(input).digest('hex'))
    }
  })
})

function openTypist(rig: Rig, transport: TransportName): Promise<SessionClient> {
  return openExec(rig, { id: 'main', command: ['cat'], transport, stdin: true })
}

async function go(rig: Rig): Promise<void> {
  await rig.client.execSync({ id: 'main', command: ['sh', '-c', 'touch /tmp/go; sleep 0.5; rm /tmp/go'] })
}

/** What the server does while nothing can move. */
async function watchStall(rig: Rig, before: number): Promise<{ rise: number; used: number }> {
  const cpu = cpuMs(rig.serverPid())
  await sleep(stallMs)
  return { rise: residentBytes(rig.serverPid()) - before, used: cpuMs(rig.serverPid()) - cpu }
}

/** Sends as fast as the connection takes it; returns what stops it. */
function sendWithoutEnd(session: SessionClient): () => void {
  const piece = Buffer.from('y\n'.repeat(8192))
  const timer = setInterval(() => {
    if (session.buffered < 4 * mebibyte) session.send(piece)
  }, 1)
  return () => clearInterval(timer)
}
