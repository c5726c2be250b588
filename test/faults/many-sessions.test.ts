// Sessions by the hundred, ended in every way: descriptors, processes, files and memory are as before, and nothing of what
// was printed is missing. HOLDFAST_FAULT_SESSIONS sets how many of each kind (500), HOLDFAST_FAULT_SLOW_MIB what a slow
// reader is given (200).

import assert from 'node:assert/strict'
import { readdirSync } from 'node:fs'
import { join } from 'node:path'
import { after, before, describe, test } from 'node:test'
import { setTimeout as sleep } from 'node:timers/promises'
import { ForwardClient } from '../support/forward-client.ts'
import { PodServers } from '../support/pod-servers.ts'
import { childrenOf, residentBytes } from '../support/process-facts.ts'
import { openAttach, openExec, runExec } from '../support/rig-sessions.ts'
import { Rig, runtimes, streamFds, waitFor } from '../support/rig.ts'
import { transports, type SessionClient } from '../support/session-client.ts'

const sessions = Number(process.env['HOLDFAST_FAULT_SESSIONS'] ?? 500)
const slowMiB = Number(process.env['HOLDFAST_FAULT_SLOW_MIB'] ?? 200)
const mebibyte = 1024 * 1024
/** At once. */
const width = 8

for (const runtime of runtimes) {
  describe(runtime, () => {
    let rig: Rig
    before(async () => {
      rig = await Rig.start(runtime)
      await rig.run({ id: 'main', args: ['sleep', '100000'] })
      // What is loaded on first use.
      for (const transport of transports)
        await runExec(rig, { id: 'main', command: ['true'], transport, tty: true })
    })
    after(async () => {
      await rig.close()
    })

    test(`${sessions} execs leave nothing and cost no memory (B24, M10)`, async () => {
      const round = async (): Promise<void> =>
        many(sessions / 2, async (i) => {
          const transport = transports[i % 2] ?? 'spdy'
          const { end } = await runExec(rig, { id: 'main', command: ['true'], transport })
          assert.deepEqual(end, { code: 0 })
        })
      await assertNoTrace(rig, round)
    })

    test(`${sessions} clients of a silent container leave nothing (B25)`, async () => {
      await assertNoTrace(rig, () =>
        many(sessions / 2, async (i) => {
          const session = await openAttach(rig, { id: 'main', transport: transports[i % 2] ?? 'spdy' })
          await sleep(20)
          session.vanish()
          await session.ended
        }),
      )
    })

    test(`${sessions} terminals of programs that do not exist, while sizes come, leave nothing (B32)`, async () => {
      await assertNoTrace(rig, () =>
        many(sessions / 2, async (i) => {
          const transport = transports[i % 2] ?? 'spdy'
          const session = await openExec(rig, {
            id: 'main',
            command: ['/no/such/binary'],
            transport,
            tty: true,
          })
          for (let width = 1; width < 50; width++) session.resize(width, 24)
          assert.ok('failure' in (await session.ended))
        }),
      )
    })

    test(`${sessions / 5} shells whose client leaves are gone with their terminals (B49, M09)`, async () => {
      await assertNoTrace(rig, () =>
        many(sessions / 10, async (i) => {
          const transport = transports[i % 2] ?? 'spdy'
          const session = await openExec(rig, {
            id: 'main',
            command: ['sh'],
            transport,
            tty: true,
            stdin: true,
          })
          session.send(i % 4 < 2 ? 'echo rea""dy\n' : 'echo rea""dy; sleep 1000\n')
          await session.until('ready')
          session.vanish()
          await session.ended
        }),
      )
    })

    for (const bytes of [100, 4095, 4096, 8192, 20_480, 100_000]) {
      test(`a terminal delivers ${bytes} bytes ${sessions / 5} times, also to a client that takes its time (B08)`, async () => {
        const command = ['sh', '-c', `stty -opost; head -c ${bytes} /dev/zero; exit 9`]
        await many(sessions / 5, async (i) => {
          const session = await openExec(rig, {
            id: 'main',
            command,
            transport: transports[i % 2] ?? 'spdy',
            tty: true,
          })
          if (i % 4 < 2) slowDown(session)
          assert.deepEqual(await session.ended, { code: 9 })
          assert.equal(session.stdout().length, bytes)
        })
      })
    }
  })
}

describe('one client', () => {
  let rig: Rig
  before(async () => {
    rig = await Rig.start('runc')
    await rig.run({ id: 'main', args: ['sleep', '100000'] })
  })
  after(async () => {
    await rig.close()
  })

  for (const transport of transports) {
    test(`that reads 8 MiB a second gets ${slowMiB} MiB over ${transport}, and little is kept for it (B10)`, async () => {
      const command = ['sh', '-c', `head -c ${slowMiB * mebibyte} /dev/zero; exit 6`]
      const session = await openExec(rig, { id: 'main', command, transport })
      const before = residentBytes(rig.serverPid())
      const started = Date.now()
      let received = 0
      let most = 0
      let resting = false
      session.consume((chunk) => {
        received += chunk.length
        if (resting) return
        const earlyMs = (received / (8 * mebibyte)) * 1000 - (Date.now() - started)
        if (earlyMs < 20) return
        resting = true
        session.pause()
        setTimeout(() => {
          most = Math.max(most, residentBytes(rig.serverPid()))
          resting = false
          session.resume()
        }, earlyMs)
      })
      assert.deepEqual(await session.ended, { code: 6 })
      assert.equal(received, slowMiB * mebibyte)
      assert.ok(most - before < 32 * mebibyte, `memory rose by ${most - before} bytes`)
    })
  }

  test(`forwards ${6 * sessions} connections, gives most of them up, and then one more (B41)`, async () => {
    const basePath = join(rig.directory, 'ns')
    const paths = await rig.client.createNamespaces({ podId: 'pod1', namespaces: ['net'], basePath })
    const netnsPath = paths.find(({ type }) => type === 'net')?.path ?? ''
    const servers = await PodServers.start(netnsPath, [
      { port: 80, does: 'answer-late' },
      { port: 81, does: 'greet' },
    ])
    const client = await ForwardClient.open(
      await rig.client.servePortForward({ podSandboxId: 'pod1', netnsPath }),
    )
    for (let round = 0; round < sessions / 50; round++) {
      const connections = []
      for (let i = 0; i < 300; i++) connections.push(await client.connect(80))
      for (const connection of connections) connection.reset()
    }
    const last = await client.connect(81)
    assert.equal(await last.ended, 'fin')
    assert.equal(last.received.toString(), '81')
    client.close()
    await client.closed
    await servers.close()
  })
})

/** Runs it twice: what the second time adds to the first is a leak. */
async function assertNoTrace(rig: Rig, round: () => Promise<void>): Promise<void> {
  await round()
  await settled(rig)
  const before = { ...traceOf(rig), memory: residentBytes(rig.serverPid()) }
  await round()
  await settled(rig)
  const now = traceOf(rig)
  const { memory, ...same } = before
  assert.deepEqual(now, same)
  const rise = residentBytes(rig.serverPid()) - memory
  assert.ok(rise < 16 * mebibyte, `memory rose by ${rise} bytes`)
}

async function settled(rig: Rig): Promise<void> {
  await waitFor('the sessions to end', async () => (await rig.sessions('main')) === 0, 15_000)
  let last = ''
  await waitFor('everything to be quiet', async () => {
    const was = last
    last = JSON.stringify(traceOf(rig))
    await sleep(500)
    return last === was
  })
}

function traceOf(rig: Rig): { files: string[]; fds: number; processes: number } {
  return {
    files: readdirSync(join(rig.directory, 'run')).toSorted(),
    fds: streamFds(rig.serverPid()) + streamFds(rig.keeperPid),
    processes: childrenOf(rig.keeperPid).length,
  }
}

/** Calls it for 0 … count - 1, a few at a time. */
async function many(count: number, run: (i: number) => Promise<void>): Promise<void> {
  let next = 0
  const lane = async (): Promise<void> => {
    while (next < count) await run(next++)
  }
  await Promise.all(Array.from({ length: width }, lane))
}

/** Rests 3 ms after each chunk. */
function slowDown(session: SessionClient): void {
  session.onData(() => {
    session.pause()
    setTimeout(() => session.resume(), 3)
  })
}
