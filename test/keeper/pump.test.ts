// What the keeper writes into CRI logs: format, partial lines, long lines, both streams.

import assert from 'node:assert/strict'
import { closeSync, existsSync, statSync, truncateSync } from 'node:fs'
import { after, before, test } from 'node:test'
import { checkLeaks } from '../support/leak-check.ts'
import { pumpTo, readLog, textOf, writeAll, type LogEntry } from './log-files.ts'
import { eventually, Monitor, type LentServer } from './monitor.ts'

let monitor: Monitor
let server: LentServer
after(() => monitor.stop()) // before the leak check looks
checkLeaks()
before(async () => {
  ;({ monitor, server } = await Monitor.start())
})

/** Gives the keeper these pieces of stdout and stderr, then their end. */
async function logOf(
  name: string,
  pieces: readonly { stdout?: string; stderr?: string }[],
): Promise<LogEntry[]> {
  const path = monitor.path(`${name}.log`)
  const [stdout, stderr] = await pumpTo(server, name, path)
  for (const piece of pieces) {
    if (piece.stdout !== undefined) writeAll(stdout, piece.stdout)
    if (piece.stderr !== undefined) writeAll(stderr, piece.stderr)
  }
  closeSync(stdout)
  closeSync(stderr)
  const state = await server.ended(name)
  assert.equal(state.errno, 0)
  assert.equal(state.size, statSync(path).size)
  await server.client.drop(name)
  return readLog(path)
}

const shapes: readonly [what: string, written: string, entries: string][] = [
  ['nothing', '', ''],
  ['text without a newline', 'blah', 'F blah|'],
  ['a line and a rest', 'a\nb', 'F a|F b|'],
  ['lines', 'a\nb\n', 'F a|F b|'],
  ['an empty line', '\n', 'F |'],
  ['empty lines', '\n\n\n', 'F |F |F |'],
  ['CRLF', 'a\r\nb\r\n', 'F a\r|F b\r|'],
  ['a NUL', 'a\0b\n\0', 'F a\0b|F \0|'],
  ['all bytes', '\x01\x7f\x80\xff\n', 'F \x01\x7f\x80\xff|'],
  ['blanks', '  a  \n \n', 'F   a  |F  |'],
]

for (const [what, written, expected] of shapes) {
  for (const stream of ['stdout', 'stderr'] as const) {
    test(`${what} on ${stream} becomes ${JSON.stringify(expected)}`, async () => {
      const entries = await logOf(`shape ${what} ${stream}`, [{ [stream]: written }])
      assert.deepEqual(
        entries.map((entry) => [entry.stream, `${entry.tag} ${entry.text}|`]),
        expected
          .split('|')
          .slice(0, -1)
          .map((entry) => [stream, `${entry}|`]),
      )
    })
  }
}

const lengths = [1023, 1024, 1025, 4095, 4096, 8191, 8192, 16383, 16384, 16385, 32768, 65536, 1_048_577]

for (const length of lengths) {
  test(`a line of ${length} bytes is cut into P entries and one F, and joins to itself`, async () => {
    const line = 'x'.repeat(length)
    const entries = await logOf(`long ${length}`, [{ stdout: `${line}\nafter\n` }])
    const pieces = Math.max(1, Math.ceil(length / 16384))
    assert.equal(entries.length, pieces + 1)
    assert.deepEqual(
      entries.slice(0, -2).map((entry) => [entry.tag, entry.text.length]),
      Array.from({ length: pieces - 1 }, () => ['P', 16384]),
    )
    assert.equal(entries.at(-2)?.tag, 'F')
    assert.equal(textOf(entries), `${line}\nafter\n`)
  })

  test(`a line of ${length} bytes without a newline ends on an F`, async () => {
    const entries = await logOf(`open ${length}`, [{ stderr: 'y'.repeat(length) }])
    assert.equal(entries.at(-1)?.tag, 'F')
    assert.equal(textOf(entries, 'stderr'), `${'y'.repeat(length)}\n`)
  })
}

test('two streams that take turns in mid-line are never joined', async () => {
  const total = 40_000
  const pieces = []
  for (let i = 0; i < total; i += 1000) pieces.push({ stdout: 'o'.repeat(1000), stderr: 'e'.repeat(1000) })
  const entries = await logOf('turns', pieces)
  assert.equal(textOf(entries, 'stdout'), `${'o'.repeat(total)}\n`)
  assert.equal(textOf(entries, 'stderr'), `${'e'.repeat(total)}\n`)
})

test('the edge of a read never cuts a line', async () => {
  const line = `${'abcdefghijklmnopqrstuvwxyz'.repeat(3)}!\n`
  const entries = await logOf('edges', [{ stdout: line.repeat(40_000) }])
  assert.equal(entries.length, 40_000)
  assert.ok(entries.every((entry) => entry.tag === 'F' && `${entry.text}\n` === line))
})

test('lines of every length up to 2100 keep their bytes', async () => {
  let text = ''
  for (let i = 0; i < 2100; i++) text += `${String.fromCharCode(97 + (i % 26)).repeat(i)}\n`
  assert.equal(textOf(await logOf('lengths', [{ stdout: text }])), text)
})

test('time stamps have nine digits and never decrease', async () => {
  const path = monitor.path('time.log')
  const [stdout, stderr] = await pumpTo(server, 'time', path)
  for (let i = 0; i < 500; i++) writeAll(i % 3 === 0 ? stderr : stdout, `line ${i}\n`)
  for (let i = 0; i < 20; i++) {
    writeAll(stdout, `slow ${i}\n`)
    await new Promise((done) => setTimeout(done, 1))
  }
  closeSync(stdout)
  closeSync(stderr)
  await server.ended('time')
  for (const stream of ['stdout', 'stderr']) {
    const times = readLog(path)
      .filter((entry) => entry.stream === stream)
      .map((entry) => entry.time)
    assert.deepEqual(times, times.toSorted())
    assert.ok(Math.abs(Date.parse(times.at(-1) ?? '') - Date.now()) < 20_000)
  }
  await server.client.drop('time')
})

test('an unfinished line is written as P after a pause, and its end as F', async () => {
  const path = monitor.path('pause.log')
  const [stdout, stderr] = await pumpTo(server, 'pause', path)
  closeSync(stderr)
  writeAll(stdout, 'whole\n/ # ')
  await eventually('a P entry', () => readLog(path).length === 2)
  writeAll(stdout, 'ls\nnext')
  await eventually('another P entry', () => readLog(path).length === 4)
  closeSync(stdout)
  await server.ended('pause')
  assert.deepEqual(
    readLog(path).map((entry) => `${entry.tag} ${entry.text}`),
    ['F whole', 'P / # ', 'F ls', 'P next', 'F '],
  )
  await server.client.drop('pause')
})

test('a dropped pump writes its unfinished line as F', async () => {
  const path = monitor.path('dropped.log')
  const [stdout, stderr] = await pumpTo(server, 'dropped', path)
  writeAll(stdout, 'x'.repeat(3000))
  await eventually('the P', () => readLog(path).length === 1)
  writeAll(stdout, 'rest')
  await eventually('the second P', () => readLog(path).length === 2)
  await server.client.drop('dropped')
  assert.deepEqual(
    readLog(path).map((entry) => entry.tag),
    ['P', 'P', 'F'],
  )
  closeSync(stdout)
  closeSync(stderr)
})

test('a file that somebody truncates goes on without a hole', async () => {
  const path = monitor.path('truncated.log')
  const [stdout, stderr] = await pumpTo(server, 'truncated', path)
  writeAll(stdout, 'before\n')
  await eventually('the first entry', () => statSync(path).size > 0)
  truncateSync(path)
  writeAll(stdout, 'after\n')
  closeSync(stdout)
  closeSync(stderr)
  await server.ended('truncated')
  assert.deepEqual(
    readLog(path).map((entry) => entry.text),
    ['after'],
  )
  await server.client.drop('truncated')
})

test('an existing log is continued', async () => {
  const path = monitor.path('again.log')
  for (const text of ['one\n', 'two\n']) {
    const [stdout, stderr] = await pumpTo(server, 'again', path)
    writeAll(stdout, text)
    closeSync(stdout)
    closeSync(stderr)
    await server.ended('again')
    await server.client.drop('again')
    server.states.delete('again')
  }
  assert.ok(existsSync(path))
  assert.equal(textOf(readLog(path)), 'one\ntwo\n')
})
