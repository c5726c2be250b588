// Exit statuses: watched, kept, claimed; fast exits, orphans, and signals to children.

import assert from 'node:assert/strict'
import { readdirSync, readFileSync } from 'node:fs'
import { after, before, test } from 'node:test'
import { checkLeaks } from '../support/leak-check.ts'
import { eventually, isAlive, Monitor, type LentServer } from './monitor.ts'

let monitor: Monitor
let server: LentServer
after(() => monitor.stop()) // before the leak check looks
checkLeaks()
before(async () => {
  ;({ monitor, server } = await Monitor.start())
})

/**
 * Starts commands as the keeper's children, the way an OCI runtime leaves them: a parent below the keeper exits and the
 * keeper, as the next subreaper, inherits them. The server's stand-in starts that parent.
 */
function adopt(command: string): Promise<number> {
  return server.spawn(command)
}

test('a watched exit is told, with code or signal, and stays until it is claimed', async () => {
  const code = await adopt('sleep 0.05; exit 42')
  const killed = await adopt('exec sleep 100')
  assert.equal(await server.client.watch(code), true)
  assert.equal(await server.client.watch(killed), true)
  assert.equal(await server.client.watch(killed), true, 'watching twice is watching once')
  const first = await server.exitOf(code)
  assert.equal(await server.client.kill(killed, 15), true)
  assert.deepEqual(first.status, { code: 42 })
  assert.ok(Math.abs(Number(first.at / 1_000_000n) - Date.now()) < 20_000)
  assert.deepEqual((await server.exitOf(killed)).status, { signal: 15 })
  server.kill()
  server = await monitor.readyServer()
  assert.deepEqual(
    server.replay.exits.map((exit) => [exit.pid, exit.status]),
    [
      [code, { code: 42 }],
      [killed, { signal: 15 }],
    ],
  )
  for (const exit of server.replay.exits) await server.client.claimed(exit.number)
  await assert.rejects(server.client.claimed(first.number), { code: 'not-found' })
  server.kill()
  server = await monitor.readyServer()
  assert.deepEqual(server.replay.exits, [])
})

test('an exit while no server lives is told to the next one', async () => {
  const pid = await adopt('sleep 0.2; exit 7')
  await server.client.watch(pid)
  process.kill(server.seen.pid, 'SIGSTOP')
  await eventually('the exit', () => !isAlive(pid))
  server.kill()
  server = await monitor.readyServer()
  const exit = await server.exitOf(pid)
  assert.deepEqual(exit.status, { code: 7 })
  await server.client.claimed(exit.number)
})

test('a process that is over before it is watched still has its status', async () => {
  for (let i = 0; i < 20; i++) {
    const pid = await adopt(`exit ${i}`)
    await eventually('the exit', () => !isAlive(pid))
    assert.equal(await server.client.watch(pid), true)
    const exit = await server.exitOf(pid)
    assert.deepEqual(exit.status, { code: i })
    await server.client.claimed(exit.number)
    assert.equal(await server.client.watch(pid), false, 'claimed is forgotten')
  }
})

test('300 short orphans neither stay as zombies nor push a fast status out', async () => {
  const fast = await adopt('exit 33')
  await eventually('the exit', () => !isAlive(fast))
  const many = await adopt('i=0; while [ $i -lt 300 ]; do (true &); i=$((i+1)); done; exit 0')
  await server.client.watch(many)
  await server.client.claimed((await server.exitOf(many)).number)
  assert.equal(await server.client.watch(fast), true)
  const exit = await server.exitOf(fast)
  assert.deepEqual(exit.status, { code: 33 })
  await server.client.claimed(exit.number)
  await eventually('no zombie', () => zombiesOf(monitor.keeperPid) === 0)
})

test('only own, living children can be watched or signalled', async () => {
  for (const pid of [1, process.pid, 0, 2 ** 22 + 5, server.seen.pid]) {
    assert.equal(await server.client.watch(pid), false, String(pid))
  }
  for (const pid of [1, process.pid, 0, 2 ** 22 + 5]) {
    assert.equal(await server.client.kill(pid, 0), false, String(pid))
  }
  const pid = await adopt('exec sleep 100')
  assert.equal(await server.client.kill(pid, 0), true)
  await assert.rejects(server.client.kill(pid, 65), { code: 'invalid-argument' })
  await assert.rejects(server.client.kill(pid, 1000), { code: 'invalid-argument' })
  await server.client.watch(pid)
  await server.client.kill(pid, 9)
  const exit = await server.exitOf(pid)
  assert.equal(await server.client.kill(pid, 9), false)
  await server.client.claimed(exit.number)
})

test('an OCI runtime whose server dies becomes a child that can be watched', async () => {
  const pid = await server.spawnStaying('sleep 0.5; exit 5')
  server.kill()
  server = await monitor.readyServer()
  assert.equal(await server.client.watch(pid), true)
  const exit = await server.exitOf(pid)
  assert.deepEqual(exit.status, { code: 5 })
  await server.client.claimed(exit.number)
})

test('a hundred statuses arrive at a server that was not listening', async () => {
  const pids: number[] = []
  for (let i = 0; i < 100; i++) {
    const pid = await adopt(`exit ${i}`)
    await server.client.watch(pid)
    pids.push(pid)
  }
  const seen = await Promise.all(pids.map((pid) => server.exitOf(pid)))
  assert.deepEqual(
    seen.map((exit) => exit.status),
    pids.map((_, i) => ({ code: i })),
  )
  assert.equal(new Set(seen.map((exit) => exit.number)).size, 100)
  await Promise.all(seen.map((exit) => server.client.claimed(exit.number)))
})

function zombiesOf(parent: number): number {
  return readdirSync('/proc').filter((name) => {
    if (!/^\d+$/.test(name)) return false
    try {
      const stat = readFileSync(`/proc/${name}/stat`, 'utf8')
      const [state, ppid] = stat.slice(stat.lastIndexOf(')') + 2).split(' ')
      return state === 'Z' && Number(ppid) === parent
    } catch {
      return false
    }
  }).length
}
