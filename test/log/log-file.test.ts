import assert from 'node:assert/strict'
import {
  closeSync,
  fstatSync,
  mkdirSync,
  mkdtempSync,
  readFileSync,
  renameSync,
  rmSync,
  writeFileSync,
  writeSync,
} from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { after, beforeEach, describe, test } from 'node:test'
import { closeLogFile, logPathNames, openLogFile, reopenLogFile } from '../../src/log/log-file.ts'
import { readLogTail } from '../../src/log/log-tail.ts'
import { checkLeaks } from '../support/leak-check.ts'

checkLeaks()

const directory = mkdtempSync(join(tmpdir(), 'holdfast-log-'))
after(() => rmSync(directory, { recursive: true }))
const path = join(directory, '0.log')

describe('a log file', () => {
  beforeEach(() => rmSync(path, { force: true }))

  test('is continued when it exists, never wiped', () => {
    writeFileSync(path, 'before\n')
    const log = openLogFile(path)
    writeSync(log.fd, 'after\n')
    assert.equal(log.name, '0.log')
    closeLogFile(log)
    assert.equal(readFileSync(path, 'utf8'), 'before\nafter\n')
  })

  test('is truncated by a reopen when nobody renamed it away', () => {
    writeFileSync(path, 'before\n')
    const log = openLogFile(path)
    closeSync(reopenLogFile(path, fstatSync(log.fd).ino, false))
    closeLogFile(log)
    assert.equal(readFileSync(path, 'utf8'), '')
  })

  test('is kept by a reopen after an automatic relog', () => {
    writeFileSync(path, 'before\n')
    const log = openLogFile(path)
    closeSync(reopenLogFile(path, fstatSync(log.fd).ino, true))
    closeLogFile(log)
    assert.equal(readFileSync(path, 'utf8'), 'before\n')
  })

  test('is a fresh one after a rename', () => {
    writeFileSync(path, 'before\n')
    const log = openLogFile(path)
    const { ino } = fstatSync(log.fd)
    assert.ok(logPathNames(path, ino))
    renameSync(path, `${path}.1`)
    assert.ok(!logPathNames(path, ino))
    const fd = reopenLogFile(path, ino, false)
    assert.ok(logPathNames(path, fstatSync(fd).ino))
    closeSync(fd)
    closeLogFile(log)
    assert.equal(readFileSync(`${path}.1`, 'utf8'), 'before\n')
  })

  test('that cannot be opened is named in the error', () => {
    assert.throws(
      () => openLogFile(join(directory, 'no/such/0.log')),
      /open log file path .*no\/such\/0\.log: ENOENT/,
    )
    mkdirSync(path)
    assert.throws(() => openLogFile(path), /open log file path .*0\.log: EISDIR/)
    rmSync(path, { recursive: true })
    assert.throws(() => openLogFile('/dev/null'), /open log file path \/dev\/null: not a regular file/)
  })
})

describe("a log's tail", () => {
  const entry = (stream: string, tag: string, text: string): string =>
    `2026-11-30T06:37:21.022626000+00:00 ${stream} ${tag} ${text}\n`

  test('is what the container said last, per stream, with partial lines joined', () => {
    writeFileSync(
      path,
      entry('stdout', 'F', 'one') +
        entry('stderr', 'F', 'bad') +
        entry('stdout', 'P', 'tw') +
        entry('stdout', 'F', 'o'),
    )
    const tail = readLogTail(path, 1000)
    assert.equal(tail.stdout.toString(), 'one\ntwo\n')
    assert.equal(tail.stderr.toString(), 'bad\n')
  })

  test('has whole entries only and at most as much as was asked for', () => {
    writeFileSync(path, Array.from({ length: 1000 }, (_, i) => entry('stdout', 'F', `line ${i}`)).join(''))
    const text = readLogTail(path, 100).stdout.toString()
    assert.ok(text.length <= 100 && text.length > 80)
    assert.match(text, /^line \d+\n(.*\n)*line 999\n$/)
  })

  test('is empty without a log', () => {
    const tail = readLogTail(join(directory, 'nothing'), 100)
    assert.equal(tail.stdout.length + tail.stderr.length, 0)
  })
})
