// Copies of a stream for the server: gapless, never ahead of the log, patient within limits; streams without a log;
// terminals.

import assert from 'node:assert/strict'
import { execFileSync, spawn } from 'node:child_process'
import { closeSync, openSync, statSync } from 'node:fs'
import { join } from 'node:path'
import { after, before, test } from 'node:test'
import { bytesReadable, pipe2, read, recvFds, socketpair } from '../../src/native/addon.ts'
import { checkLeaks } from '../support/leak-check.ts'
import { pumpTo, readLog, textOf, writeAll } from './log-files.ts'
import { eventually, Monitor, repository, type LentServer } from './monitor.ts'

let monitor: Monitor
let server: LentServer
after(() => monitor.stop()) // before the leak check looks
checkLeaks()
before(async () => {
  ;({ monitor, server } = await Monitor.start())
})

/** A copy of a stream; returns the receiving end. */
async function copyOf(name: string, stream: 0 | 1, patienceMs: number): Promise<number> {
  const [mine, theirs] = socketpair()
  await server.client.copy(name, stream, { fd: theirs, patienceMs })
  closeSync(theirs)
  return mine
}

/** Reads until `bytes` have come, or to the end. */
async function receive(fd: number, bytes = Number.MAX_SAFE_INTEGER): Promise<string> {
  let text = ''
  const chunk = Buffer.alloc(65_536)
  await eventually('the copy', () => {
    for (;;) {
      const n = read(fd, chunk)
      if (n === 0) return true
      if (n < 0) return text.length >= bytes
      text += chunk.toString('latin1', 0, n)
    }
  })
  return text
}

const numbered = (from: number, to: number): string => {
  let text = ''
  for (let i = from; i < to; i++) text += `line ${i}\n`
  return text
}

test('a copy begins where it says, has every byte and ends with the stream', async () => {
  const path = monitor.path('copy.log')
  const [stdout, stderr] = await pumpTo(server, 'copy', path)
  writeAll(stdout, numbered(0, 100))
  await eventually('the log', () => statSync(path).size > 0 && readLog(path).length === 100)
  const copy = await copyOf('copy', 0, 400)
  const start = server.states.get('copy')?.streams[0]
  assert.equal(start?.copying, true)
  assert.equal(start?.copyFrom, numbered(0, 100).length)
  assert.equal(server.states.get('copy')?.streams[1].copying, false)
  const received = receive(copy)
  writeAll(stdout, numbered(100, 5000))
  writeAll(stderr, 'not this\n')
  closeSync(stdout)
  closeSync(stderr)
  assert.equal(await received, numbered(100, 5000))
  const state = await server.ended('copy')
  assert.equal(state.streams[0].copying, false)
  assert.equal(state.streams[0].lostAt, undefined)
  assert.equal(state.streams[0].bytes, numbered(0, 5000).length)
  closeSync(copy)
  await server.client.drop('copy')
})

test('a copy gets the raw bytes of an unfinished line at once', async () => {
  const path = monitor.path('raw.log')
  const [stdout, stderr] = await pumpTo(server, 'raw', path)
  const copy = await copyOf('raw', 0, 400)
  writeAll(stdout, 'a\0\xff prompt # ')
  assert.equal(await receive(copy, 12), 'a\0\xff prompt # ')
  closeSync(stdout)
  closeSync(stderr)
  await server.ended('raw')
  closeSync(copy)
  await server.client.drop('raw')
})

for (const patienceMs of [0, 50]) {
  test(`a copy that does not take it for ${patienceMs} ms is closed, its end told, and the log goes on`, async () => {
    const name = `slow-${patienceMs}`
    const path = monitor.path(`${name}.log`)
    const [stdout, stderr] = await pumpTo(server, name, path)
    closeSync(stderr)
    const copy = await copyOf(name, 0, patienceMs)
    // More than a send buffer of 1 MiB and a pipe hold; written by somebody who may block.
    const writer = spawn(
      'sh',
      ['-c', 'i=0; while [ $i -lt 3 ]; do head -c 1000000 /dev/zero | tr "\\0" x; echo; i=$((i+1)); done'],
      {
        stdio: ['ignore', stdout, 'inherit'],
      },
    )
    closeSync(stdout)
    const gone = new Promise((done) => writer.once('close', done))
    const lost = await server.until('the loss', () => server.states.get(name)?.streams[0].lostAt)
    const text = await receive(copy)
    assert.equal(text.length, lost)
    assert.ok(lost >= 1_000_000 - 400_000)
    await gone
    await server.ended(name)
    assert.equal(textOf(readLog(path)), `${'x'.repeat(1_000_000)}\n`.repeat(3))
    closeSync(copy)
    await server.client.drop(name)
  })
}

test('a receiver that is slow but within patience gets everything', async () => {
  const path = monitor.path('tolerated.log')
  const [stdout, stderr] = await pumpTo(server, 'tolerated', path)
  closeSync(stderr)
  const copy = await copyOf('tolerated', 0, 1000)
  const writer = spawn('sh', ['-c', 'head -c 6000000 /dev/zero | tr "\\0" y'], {
    stdio: ['ignore', stdout, 'inherit'],
  })
  closeSync(stdout)
  await eventually('a full socket', () => bytesReadable(copy) > 100_000)
  assert.equal((await receive(copy)).length, 6_000_000)
  const state = await server.ended('tolerated')
  assert.equal(state.streams[0].lostAt, undefined)
  await new Promise((done) => (writer.exitCode === null ? writer.once('close', done) : done(0)))
  closeSync(copy)
  await server.client.drop('tolerated')
})

test('a copy can be stopped and replaced, and the ranges fit', async () => {
  const path = monitor.path('ranges.log')
  const [stdout, stderr] = await pumpTo(server, 'ranges', path)
  let written = 0
  let sent = ''
  for (let round = 0; round < 20; round++) {
    const copy = await copyOf('ranges', 0, 400)
    const from = server.states.get('ranges')?.streams[0].copyFrom ?? -1
    const text = numbered(written, written + 50)
    written += 50
    writeAll(stdout, text)
    sent += text
    if (round % 2 === 0) {
      await eventually('the log', () => statSync(path).size > 0 && textOf(readLog(path)) === sent)
      await server.client.copy('ranges', 0, undefined)
    } else {
      closeSync(await copyOf('ranges', 0, 400))
    }
    const got = await receive(copy)
    assert.equal(sent.slice(from, from + got.length), got)
    closeSync(copy)
  }
  closeSync(stdout)
  closeSync(stderr)
  await server.ended('ranges')
  assert.equal(textOf(readLog(path)), sent)
  const [mine, theirs] = socketpair()
  await assert.rejects(server.client.copy('ranges', 0, { fd: theirs, patienceMs: 0 }), {
    code: 'failed-precondition',
  })
  closeSync(mine)
  closeSync(theirs)
  await server.client.drop('ranges')
})

test('a stream without a log is read only while a copy takes it, and nothing is lost between two copies', async () => {
  const [stdout, stderr] = await pumpTo(server, 'unlogged', undefined)
  closeSync(stderr)
  const text = numbered(0, 500_000)
  const [out, into] = pipe2()
  const writer = spawn('cat', { stdio: [out, stdout, 'inherit'] })
  closeSync(out)
  const feed = spawn('sh', ['-c', 'i=0; seq -f "line %.0f" 0 499999'], { stdio: ['ignore', into, 'inherit'] })
  closeSync(into)
  await eventually('a full pipe', () => bytesReadable(stdout) >= 60_000)
  assert.equal(server.states.get('unlogged'), undefined, 'nothing was read')
  closeSync(stdout)
  let got = ''
  for (let round = 0; round < 8; round++) {
    const copy = await copyOf('unlogged', 0, 0)
    assert.equal(server.states.get('unlogged')?.streams[0].copyFrom, got.length)
    await eventually('a full socket', () => bytesReadable(copy) > 200_000)
    // Whatever the patience: it waits. Stop in the middle, take what has arrived.
    await server.client.copy('unlogged', 0, undefined)
    got += await receive(copy)
    closeSync(copy)
  }
  const copy = await copyOf('unlogged', 0, 0)
  got += await receive(copy)
  closeSync(copy)
  assert.equal(got.length, text.length)
  assert.ok(got === text)
  const state = await server.until('its end', () => {
    const now = server.states.get('unlogged')
    return now?.streams[0].ended === true ? now : undefined
  })
  assert.equal(state.streams[1].ended, false, 'nobody reads stderr')
  assert.equal(state.streams[0].lostAt, undefined)
  await Promise.all(
    [writer, feed].map(
      (child) =>
        new Promise<unknown>((done) => (child.exitCode === null ? child.once('close', done) : done(0))),
    ),
  )
  await server.client.drop('unlogged')
})

test('output without a log waits for the next server', async () => {
  const [stdout, stderr] = await pumpTo(server, 'waits', undefined)
  closeSync(stderr)
  const [mine, theirs] = socketpair()
  await server.client.copy('waits', 0, { fd: theirs, patienceMs: 0 })
  closeSync(theirs)
  await server.client.hold('waits-copy', { fd: mine })
  closeSync(mine)
  writeAll(stdout, 'before the death\n')
  server.kill()
  writeAll(stdout, 'while nobody serves\n')
  closeSync(stdout)
  server = await monitor.readyServer()
  const fd = server.held('waits-copy')?.fd ?? -1
  assert.equal(await receive(fd), 'before the death\nwhile nobody serves\n')
  await server.client.drop('waits-copy')
  await server.client.drop('waits')
})

test('a stream that is to be discarded is read by nobody and never blocks', async () => {
  const [stdout, stderr] = await pumpTo(server, 'discard', undefined, { discard: true })
  closeSync(stderr)
  for (let i = 0; i < 40; i++) writeAll(stdout, Buffer.alloc(50_000, 'd'))
  const copy = await copyOf('discard', 0, 400)
  const from = server.states.get('discard')?.streams[0].copyFrom ?? -1
  writeAll(stdout, 'seen')
  closeSync(stdout)
  const state = await server.ended('discard')
  assert.equal((await receive(copy)).length, 2_000_004 - from)
  assert.equal(state.streams[0].bytes, 2_000_004)
  closeSync(copy)
  await server.client.drop('discard')
})

test('a copy must be a unix stream socket', async () => {
  const [stdout, stderr] = await pumpTo(server, 'kinds', monitor.path('kinds.log'))
  const [out, into] = pipe2()
  const file = openSync('/dev/null', 'w')
  for (const fd of [out, into, file]) {
    await assert.rejects(server.client.copy('kinds', 0, { fd, patienceMs: 0 }), { code: 'invalid-argument' })
    closeSync(fd)
  }
  await assert.rejects(server.client.copy('missing', 0, undefined), {
    code: 'not-found',
    message: 'copy missing: ENOENT',
  })
  closeSync(stdout)
  closeSync(stderr)
  await server.client.drop('kinds')
})

/** The terminal of a command: its master, and when the command ended. */
async function openTerminal(command: string): Promise<{ master: number; gone: Promise<unknown> }> {
  const program = join(repository, 'dist/test/keeper/open-pty')
  execFileSync('cc', ['-O1', '-o', program, join(repository, 'test/keeper/open-pty.c')])
  const [mine, theirs] = socketpair()
  const child = spawn(program, ['sh', '-c', command], { stdio: ['ignore', 'ignore', 'inherit', theirs] })
  closeSync(theirs)
  const gone = new Promise((done) => child.once('close', done))
  let master = -1
  await eventually('the master', () => (master = recvFds(mine)?.fds[0] ?? -1) >= 0)
  closeSync(mine)
  return { master, gone }
}

test('a terminal is read until its last slave is closed', async () => {
  for (const bytes of [100, 4096, 100_000, 458_640]) {
    const { master, gone } = await openTerminal(
      `stty -onlcr; head -c ${bytes} /dev/zero | tr '\\0' t; printf END`,
    )
    const log = openSync(monitor.path(`terminal-${bytes}.log`), 'a')
    await server.client.pump('terminal', { stdout: master, log, terminal: true })
    closeSync(log)
    closeSync(master)
    await gone
    const state = await server.ended('terminal')
    assert.equal(state.streams[0].bytes, bytes + 3)
    assert.equal(textOf(readLog(monitor.path(`terminal-${bytes}.log`))), `${'t'.repeat(bytes)}END\n`)
    await server.client.drop('terminal')
    server.states.delete('terminal')
  }
})
