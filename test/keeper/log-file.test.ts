// The log's file: its exact limit, rotation by others, full disks.

import assert from 'node:assert/strict'
import { execFileSync } from 'node:child_process'
import {
  chmodSync,
  closeSync,
  existsSync,
  mkdirSync,
  openSync,
  readFileSync,
  renameSync,
  rmSync,
  statSync,
  writeFileSync,
} from 'node:fs'
import { after, before, test } from 'node:test'
import { checkLeaks } from '../support/leak-check.ts'
import { pumpTo, readLog, textOf, writeAll } from './log-files.ts'
import { eventually, Monitor, type LentServer } from './monitor.ts'

let monitor: Monitor
let server: LentServer
after(() => monitor.stop()) // before the leak check looks
checkLeaks()
before(async () => {
  ;({ monitor, server } = await Monitor.start())
})

/** A pump with a limit, whose log is DIRECTORY/log. */
async function pumpWithLimit(name: string, limit: number): Promise<{ path: string; stdout: number }> {
  const directory = monitor.path(name)
  mkdirSync(directory)
  const handle = openSync(directory, 'r')
  const path = `${directory}/log`
  const [stdout, stderr] = await pumpTo(server, name, path, { directory: handle, logName: 'log', limit })
  closeSync(handle)
  closeSync(stderr)
  return { path, stdout }
}

async function finish(name: string, stdout: number): Promise<void> {
  closeSync(stdout)
  await server.ended(name)
  await server.client.drop(name)
}

for (const limit of [50, 300, 1000, 5000, 70_000]) {
  test(`a log of at most ${limit} bytes is rotated at the entry that would exceed it`, async () => {
    const name = `limit-${limit}`
    const { path, stdout } = await pumpWithLimit(name, limit)
    let text = ''
    const lines = limit < 1000 ? 200 : 3000
    for (let i = 0; i < lines; i++) text += `${i} ${'z'.repeat((i * 37) % 190)}\n`
    writeAll(stdout, text)
    await finish(name, stdout)
    const [old, current] = [`${path}.1`, path].map((file) => ({
      entries: readLog(file),
      size: statSync(file).size,
    }))
    assert.ok(old !== undefined && current !== undefined)
    assert.ok(text.endsWith(textOf(old.entries) + textOf(current.entries)), 'the newest lines, without a gap')
    const first = (current.entries[0]?.text.length ?? 0) + 46
    assert.ok(old.size <= limit || old.entries.length === 1)
    assert.ok(current.size <= limit || current.entries.length === 1)
    assert.ok(old.size + first > limit, 'one more entry would not have fitted')
    assert.equal(statSync(path).mode & 0o777, 0o640)
  })
}

test('a line that is longer than the limit has a file of its own', async () => {
  const { path, stdout } = await pumpWithLimit('big', 100)
  writeAll(stdout, `small\n${'b'.repeat(500)}\n`)
  await finish('big', stdout)
  assert.equal(textOf(readLog(`${path}.1`)), 'small\n')
  assert.equal(textOf(readLog(path)), `${'b'.repeat(500)}\n`)
})

test('rotation goes on while no server lives, and the next one is told the generation', async () => {
  const { path, stdout } = await pumpWithLimit('alone', 200)
  process.kill(server.seen.pid, 'SIGSTOP')
  for (let i = 0; i < 10; i++) {
    writeAll(stdout, `${i}${'a'.repeat(99)}\n`)
    await eventually('the entry', () => existsSync(path) && readFileSync(path, 'utf8').includes(` ${i}aaa`))
  }
  server.kill()
  server = await monitor.readyServer()
  const pump = server.held('alone')?.pump
  assert.equal(pump?.generation, 9)
  assert.equal(pump?.limit, 200)
  assert.equal(pump?.inode, statSync(path).ino)
  assert.equal(pump?.device, statSync(path).dev)
  await finish('alone', stdout)
})

test('a file that somebody has renamed is not renamed again at the limit', async () => {
  const { path, stdout } = await pumpWithLimit('renamed', 200)
  writeAll(stdout, `${'a'.repeat(100)}\n`)
  await eventually('the entry', () => statSync(path).size > 0)
  renameSync(path, `${path}.moved`)
  writeAll(stdout, `${'b'.repeat(100)}\n`)
  await eventually('a new file', () => existsSync(path) && statSync(path).size > 0)
  renameSync(path, `${path}.moved2`)
  writeFileSync(path, 'theirs\n')
  writeAll(stdout, `${'c'.repeat(100)}\n`)
  await finish('renamed', stdout)
  assert.equal(textOf(readLog(`${path}.moved`)), `${'a'.repeat(100)}\n`)
  assert.equal(textOf(readLog(`${path}.moved2`)), `${'b'.repeat(100)}\n`)
  assert.match(readFileSync(path, 'latin1'), /^theirs\n\S+ stdout F c{100}\n$/)
  assert.equal(existsSync(`${path}.1`), false)
})

test('a log that cannot be rotated grows and says why', async () => {
  const { path, stdout } = await pumpWithLimit('stuck', 100)
  mkdirSync(`${path}.1`)
  writeFileSync(`${path}.1/file`, '')
  for (let i = 0; i < 5; i++) writeAll(stdout, `${i}${'a'.repeat(99)}\n`)
  await finish('stuck', stdout)
  assert.equal(readLog(path).length, 5)
  assert.equal(server.states.get('stuck')?.errno, 21) // EISDIR
})

test('relog goes on in another file from the next entry on, and the inode tells which', async () => {
  const path = monitor.path('relog.log')
  const [stdout, stderr] = await pumpTo(server, 'relog', path)
  closeSync(stderr)
  let written = 0
  const files: string[] = []
  for (let round = 0; round < 50; round++) {
    for (let i = 0; i < 20; i++) writeAll(stdout, `${written++}\n`)
    if (round % 7 === 3) writeAll(stdout, 'unfinished ')
    const moved = `${path}.${String(round).padStart(2, '0')}`
    renameSync(path, moved)
    files.push(moved)
    const fresh = openSync(path, 'a', 0o640)
    await server.client.relog('relog', fresh)
    closeSync(fresh)
    const size = statSync(moved).size
    writeAll(stdout, `${written++}\n`)
    await eventually('an entry in the new file', () => statSync(path).size > 0)
    assert.equal(statSync(moved).size, size, 'nothing goes to the old file')
    assert.equal(server.states.get('relog')?.inode, statSync(path).ino)
  }
  closeSync(stdout)
  const state = await server.ended('relog')
  assert.equal(state.generation, 50)
  const text = [...files, path].flatMap((file) => readLog(file))
  const numbers = textOf(text).replaceAll('unfinished ', '').trim().split('\n').map(Number)
  assert.deepEqual(
    numbers,
    Array.from({ length: written }, (_, i) => i),
  )
  await server.client.drop('relog')
})

test('a successor sees by the inode that the log has lost its name', async () => {
  const path = monitor.path('orphaned.log')
  const [stdout, stderr] = await pumpTo(server, 'orphaned', path)
  closeSync(stderr)
  renameSync(path, `${path}.old`)
  server.kill()
  server = await monitor.readyServer()
  const pump = server.held('orphaned')?.pump
  assert.equal(pump?.inode, statSync(`${path}.old`).ino)
  await finish('orphaned', stdout)
})

test('relog refuses what is no writable file', async () => {
  const path = monitor.path('refuse.log')
  const [stdout, stderr] = await pumpTo(server, 'refuse', path)
  for (const [file, flags] of [
    ['/dev/null', 'w'],
    [monitor.directory, 'r'],
    [path, 'r'],
  ] as const) {
    const fd = openSync(file, flags)
    await assert.rejects(server.client.relog('refuse', fd), {
      code: 'invalid-argument',
      message: 'relog refuse: EINVAL',
    })
    closeSync(fd)
  }
  await assert.rejects(server.client.relog('nothing', stdout), { code: 'not-found' })
  closeSync(stderr)
  await finish('refuse', stdout)
})

test('on a full disk no entry is torn, what is lost is counted and told once, and logging resumes', async (t) => {
  const mount = monitor.path('small')
  mkdirSync(mount)
  try {
    execFileSync('mount', ['-t', 'tmpfs', '-o', 'size=256k', 'none', mount], { stdio: 'pipe' })
  } catch {
    t.skip('cannot mount')
    return
  }
  try {
    const path = `${mount}/log`
    const [stdout, stderr] = await pumpTo(server, 'full', path)
    closeSync(stderr)
    const news = server.news.length
    let lines = 0
    for (; lines < 20_000; lines++)
      writeAll(stdout, `${String(lines).padStart(6, '0')} ${'f'.repeat(lines % 90)}\n`)
    await server.until('ENOSPC', () => server.states.get('full')?.errno === 28)
    const whole = readLog(path)
    assert.ok(whole.length > 1000)
    assert.ok(whole.every((entry, i) => entry.tag === 'F' && Number(entry.text.slice(0, 6)) === i))
    assert.equal(
      server.news.slice(news).filter(({ name, state }) => name === 'full' && state.errno === 28).length,
      1,
    )
    renameSync(path, `${mount}/gone`)
    rmSync(`${mount}/gone`)
    const fresh = openSync(path, 'a')
    await server.client.relog('full', fresh)
    closeSync(fresh)
    writeAll(stdout, 'after\n')
    closeSync(stdout)
    const end = await server.ended('full')
    assert.equal(end.errno, 0)
    assert.ok(end.dropped > 0)
    assert.equal(readLog(path).at(-1)?.text, 'after')
    await server.client.drop('full')
  } finally {
    execFileSync('umount', [mount])
  }
})

test('a disk that has room again gets the next whole entries', async (t) => {
  const mount = monitor.path('room')
  mkdirSync(mount)
  try {
    execFileSync('mount', ['-t', 'tmpfs', '-o', 'size=64k', 'none', mount], { stdio: 'pipe' })
  } catch {
    t.skip('cannot mount')
    return
  }
  try {
    writeFileSync(`${mount}/ballast`, Buffer.alloc(40_000))
    const path = `${mount}/log`
    const [stdout, stderr] = await pumpTo(server, 'room', path)
    closeSync(stderr)
    let line = 0
    while (server.states.get('room')?.errno !== 28) {
      writeAll(stdout, `${line++} ${'r'.repeat(200)}\n`.repeat(3))
      await new Promise((done) => setImmediate(done))
    }
    rmSync(`${mount}/ballast`)
    for (let i = 0; i < 10; i++) writeAll(stdout, `later ${i}\n`)
    await server.until('room', () => server.states.get('room')?.errno === 0)
    closeSync(stdout)
    const end = await server.ended('room')
    const entries = readLog(path)
    assert.ok(entries.every((entry) => entry.tag === 'F' && /^(\d+ r{200}|later \d)$/.test(entry.text)))
    assert.equal(entries.at(-1)?.text, 'later 9')
    assert.ok(end.dropped > 0)
    await server.client.drop('room')
  } finally {
    execFileSync('umount', [mount])
  }
})

test('a log beyond RLIMIT_FSIZE is an error like any other', () => {
  // The keeper ignores SIGXFSZ: it would die of it.
  const status = readFileSync(`/proc/${monitor.keeperPid}/status`, 'utf8')
  const ignored = BigInt(`0x${/^SigIgn:\s*(\w+)/m.exec(status)?.[1] ?? '0'}`)
  for (const signal of [1, 13, 25]) assert.ok((ignored >> BigInt(signal - 1)) & 1n, `signal ${signal}`)
})

test('a pump refuses a limit without a directory, and names that are paths', async () => {
  const path = monitor.path('names.log')
  const handle = openSync(monitor.directory, 'r')
  chmodSync(monitor.directory, 0o700)
  for (const options of [
    { limit: 100 },
    { limit: 100, directory: handle, logName: '' },
    { limit: 100, directory: handle, logName: 'a/b' },
    { limit: 100, directory: handle, logName: '..' },
    { limit: 100, directory: handle, logName: 'x'.repeat(251) },
  ]) {
    await assert.rejects(pumpTo(server, 'names', path, options), { code: 'invalid-argument' })
  }
  closeSync(handle)
})
