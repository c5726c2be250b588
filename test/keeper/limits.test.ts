// What a wrong server can make the keeper hold: refused beyond the limits, with everything before it whole.

import assert from 'node:assert/strict'
import {
  chmodSync,
  closeSync,
  mkdtempSync,
  openSync,
  readFileSync,
  readdirSync,
  rmSync,
  writeFileSync,
} from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { test } from 'node:test'
import { toKeeper } from '../../src/keeper/channel-messages.ts'
import { Channel } from '../../src/keeper/channel.ts'
import { pipe2, socketpair } from '../../src/native/addon.ts'
import { checkLeaks } from '../support/leak-check.ts'
import { pumpTo } from './log-files.ts'
import { keeperBinary, Monitor, type LentServer } from './monitor.ts'

checkLeaks()

async function withServer(
  body: (monitor: Monitor, server: LentServer) => Promise<void>,
  binary?: string,
): Promise<void> {
  const { monitor, server } = await Monitor.start(binary === undefined ? {} : { binary })
  try {
    await body(monitor, server)
  } finally {
    await monitor.stop()
  }
}

test('names have 1 to 200 bytes', () =>
  withServer(async (monitor, server) => {
    await server.client.hold('n'.repeat(200), {})
    await assert.rejects(server.client.hold('n'.repeat(201), {}), {
      code: 'invalid-argument',
      message: /ENAMETOOLONG$/,
    })
    await assert.rejects(server.client.hold('', {}), { code: 'invalid-argument' })
    await assert.rejects(server.client.drop('unknown'), { code: 'not-found' })
    server.kill()
    const next = await monitor.readyServer()
    assert.equal(next.replay.entries.filter((entry) => entry.name.startsWith('n')).length, 1)
  }))

test('records have at most 32 KiB, a refused one changes nothing', () =>
  withServer(async (monitor, server) => {
    await server.client.hold('full', { record: Buffer.alloc(32_768, 'r') })
    await assert.rejects(server.client.record('full', Buffer.alloc(32_769)), { code: 'resource-exhausted' })
    await assert.rejects(server.client.hold('full', { record: Buffer.alloc(32_769) }), {
      code: 'resource-exhausted',
    })
    await server.client.record('full', Buffer.alloc(32_768, 's'))
    server.kill()
    const next = await monitor.readyServer()
    assert.deepEqual(next.held('full')?.record, Buffer.alloc(32_768, 's'))
  }))

test('256 full records fit, then it is enough, and room comes back', () =>
  withServer(async (monitor, server) => {
    const record = Buffer.alloc(32_768, 'm')
    for (let i = 0; i < 256; i++) await server.client.hold(`r${i}`, { record })
    await assert.rejects(server.client.hold('more', { record: Buffer.alloc(1) }), {
      code: 'resource-exhausted',
    })
    await server.client.hold('without a record', {})
    await server.client.drop('r7')
    await server.client.hold('more', { record })
    server.kill()
    const next = await monitor.readyServer()
    assert.equal(next.replay.entries.length, 258) // with the last words
    assert.ok(memoryOf(monitor.keeperPid) < 12_000)
    for (let i = 0; i < 256; i++) if (i !== 7) await next.client.drop(`r${i}`)
    assert.ok(memoryOf(monitor.keeperPid) < 1000)
  }))

test('4096 entries fit, then it is enough', () =>
  withServer(async (monitor, server) => {
    const held = []
    for (let i = 0; i < 4096; i++)
      held.push(server.client.hold(`entry ${i}`, { record: Buffer.from(String(i)) }))
    await Promise.all(held)
    await assert.rejects(server.client.hold('more', {}), {
      code: 'resource-exhausted',
      message: 'hold more: ENOSPC',
    })
    server.kill()
    const next = await monitor.readyServer()
    assert.equal(next.replay.entries.length, 4096) // no room for last words
    assert.ok(
      next.replay.entries.every(
        (entry, i) => entry.name === `entry ${i}` && entry.record.toString() === String(i),
      ),
    )
  }))

test('descriptors run out before those that a restart needs', async () => {
  const directory = mkdtempSync(join(tmpdir(), 'holdfast-limited-'))
  await withServer(async (monitor, server) => {
    const [out, into] = pipe2()
    let held = 0
    try {
      for (; held < 300; held++) await server.client.hold(`fd ${held}`, { fd: into })
      assert.fail('nothing was refused')
    } catch (error) {
      assert.equal((error as Error).message, `hold fd ${held}: EMFILE`)
    }
    assert.ok(held >= 140 && held < 200, String(held))
    server.kill()
    const next = await monitor.readyServer()
    assert.equal(
      next.replay.entries.filter((entry) => entry.fd !== undefined && entry.name !== 'last-words').length,
      held,
    )
    assert.ok(readdirSync(`/proc/${monitor.keeperPid}/fd`).length <= 200)
    closeSync(out)
    closeSync(into)
  }, limitedKeeper(directory))
  rmSync(directory, { recursive: true })
})

test('watching a pid again, or an unknown one, costs nothing', () =>
  withServer(async (_, server) => {
    const pid = await server.spawn('exec sleep 100')
    for (let i = 0; i < 9000; i++) assert.equal(await server.client.watch(pid), true)
    for (let i = 0; i < 100; i++) assert.equal(await server.client.watch(4_000_000 + i), false)
    await server.client.kill(pid, 9)
    await server.client.claimed((await server.exitOf(pid)).number)
  }))

test('a message with wrong descriptors is refused and takes nothing', () =>
  withServer(async (monitor, server) => {
    const [out, into] = pipe2()
    const before = readdirSync(`/proc/${monitor.keeperPid}/fd`).length
    const file = openSync('/dev/null', 'r')
    const regular = openSync('/proc/self/status', 'r')
    await assert.rejects(server.client.hold('two', { fd: out, record: Buffer.alloc(40_000) }), {
      code: 'resource-exhausted',
    })
    await assert.rejects(server.client.pump('file', { stdout: regular }), { code: 'invalid-argument' })
    await assert.rejects(server.client.pump('nothing', {}), { code: 'invalid-argument' })
    await assert.rejects(server.client.pump('log', { stdout: out, log: file }), { code: 'invalid-argument' })
    await assert.rejects(server.client.pump('log', { stdout: out, log: into }), { code: 'invalid-argument' })
    await server.client.hold('sync', {})
    assert.equal(readdirSync(`/proc/${monitor.keeperPid}/fd`).length, before)
    for (const fd of [out, into, file, regular]) closeSync(fd)
  }))

test('an unknown message answers ENOSYS, and so does replace', () =>
  withServer(async (_, server) => {
    server.client.close()
    const channel = new Channel(server.channel, { message: () => undefined, closed: () => undefined })
    for (const type of [0, toKeeper.REPLACE, 16, 31, 32, 47, 64, 69, 1000, 65_535])
      assert.equal(await channel.request('ask', { type }), 38, String(type))
    assert.equal(await channel.request('ask', { type: toKeeper.HOLD, name: 'fine' }), 0)
    channel.close()
  }))

test('copies without a log reserve 16 MiB in all', () =>
  withServer(async (_, server) => {
    const fds: number[] = []
    let refused: unknown
    let copies = 0
    for (; refused === undefined && copies < 1100; copies++) {
      const name = `copy ${copies >> 1}`
      if (copies % 2 === 0) fds.push(...(await pumpTo(server, name, undefined)))
      const [mine, theirs] = socketpair()
      refused = await server.client
        .copy(name, copies % 2 === 0 ? 0 : 1, { fd: theirs, patienceMs: 0 })
        .catch((error: unknown) => error)
      closeSync(theirs)
      fds.push(mine)
    }
    assert.equal((refused as Error).message, 'copy copy 512: ENOSPC')
    for (const fd of fds) closeSync(fd)
    await server.client.drop('copy 3')
    const [stdout, stderr] = await pumpTo(server, 'again', undefined)
    const [mine, theirs] = socketpair()
    await server.client.copy('again', 0, { fd: theirs, patienceMs: 0 })
    for (const fd of [stdout, stderr, mine, theirs]) closeSync(fd)
  }))

/** The keeper, started by a shell that allows 200 descriptors. */
function limitedKeeper(directory: string): string {
  const path = join(directory, 'limited-keeper')
  writeFileSync(path, `#!/bin/sh\nulimit -n 200\nexec ${keeperBinary} "$@"\n`)
  chmodSync(path, 0o755)
  return path
}

/** VmRSS in kB. */
function memoryOf(pid: number): number {
  return Number(/^VmRSS:\s*(\d+)/m.exec(readFileSync(`/proc/${pid}/status`, 'utf8'))?.[1])
}
