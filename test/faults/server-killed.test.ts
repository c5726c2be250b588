// The server is killed at random moments while containers print and sessions run: no line is lost or doubled, the exit
// code is right, broken sessions are failures, and nothing of them is left. HOLDFAST_FAULT_KILLS sets how often (50).

import assert from 'node:assert/strict'
import { readFileSync } from 'node:fs'
import { after, before, describe, test } from 'node:test'
import { setTimeout as sleep } from 'node:timers/promises'
import { Rig, runtimes, streamFds, waitFor } from '../support/rig.ts'
import { openSession, transports, type SessionEnd } from '../support/session-client.ts'

const kills = Number(process.env['HOLDFAST_FAULT_KILLS'] ?? 50)
/** Processes in a container, by what they run. */
const execMarks = ['sleep 4001', 'cat /dev/stdin']

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

    test(`${kills} kills: the log is whole, sessions fail, nothing is left`, async () => {
      const script =
        'i=0; while [ ! -e /tmp/stop ]; do echo line $i; i=$((i+1)); done; printf "END $i"; exit 42'
      await rig.run({ id: 'counts', args: ['sh', '-c', script] })
      const fds = streamFds(rig.keeperPid)
      const ends: Promise<SessionEnd>[] = []
      for (let i = 0; i < kills; i++) {
        const broken = await openSome(rig, i)
        ends.push(...broken)
        await sleep(Math.random() * 150)
        await rig.killServer()
      }
      for (const end of await Promise.all(ends)) {
        assert.ok('failure' in end, `a broken session must be a failure, not ${JSON.stringify(end)}`)
      }
      await rig.client.execSync({ id: 'counts', command: ['touch', '/tmp/stop'] })
      assert.equal(await rig.exitCode('counts'), 42)
      checkNumbers(rig.logText('counts'))
      await waitFor('the exec processes of broken sessions to end', () => marked(rig) === 0, 15_000)
      await waitFor('the keeper to give the descriptors up', () => streamFds(rig.keeperPid) <= fds, 15_000)
    })
  })
}

/** A shell on a terminal and a program that waits for stdin, over either transport. */
async function openSome(rig: Rig, round: number): Promise<Promise<SessionEnd>[]> {
  const transport = transports[round % 2] ?? 'spdy'
  const ends: Promise<SessionEnd>[] = []
  for (const tty of [true, false]) {
    const command = tty ? ['sh', '-c', 'echo ready; sleep 4001'] : ['sh', '-c', 'echo ready; cat /dev/stdin']
    const url = await rig.client.serveExec({
      id: 'main',
      command,
      tty,
      stdin: true,
      stdout: true,
      stderr: false,
    })
    const session = await openSession(transport, url, { tty, stdin: true, stdout: true, stderr: false })
    await session.until('ready')
    ends.push(session.ended)
  }
  return ends
}

function marked(rig: Rig): number {
  const children = readFileSync(`/proc/${rig.keeperPid}/task/${rig.keeperPid}/children`, 'utf8')
    .trim()
    .split(' ')
  return children.filter((pid) => {
    try {
      const line = readFileSync(`/proc/${pid}/cmdline`, 'latin1').replaceAll('\0', ' ')
      return execMarks.some((mark) => line.includes(mark))
    } catch {
      return false
    }
  }).length
}

function checkNumbers(text: string): void {
  const lines = text.split('\n')
  const end = lines.findIndex((line) => line.startsWith('END '))
  assert.ok(end > 0, 'the last line is there')
  assert.equal(lines[end], `END ${end}`, 'as many lines as were printed')
  for (let i = 0; i < end; i++) if (lines[i] !== `line ${i}`) assert.fail(`line ${i} is ${lines[i]}`)
}
