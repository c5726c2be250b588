// Several writers, one input: whole chunks in order, nobody ahead of what the process reads, closed once.

import assert from 'node:assert/strict'
import { closeSync, fstatSync, readSync } from 'node:fs'
import { describe, test } from 'node:test'
import { pipe2, read, setNonblock } from '../../src/native/addon.ts'
import { WatchedFd } from '../../src/native/watched-fd.ts'
import { StdinMerge } from '../../src/stdio/stdin-merge.ts'
import { checkLeaks } from '../support/leak-check.ts'
import { startOnTerminal } from '../support/terminal-program.ts'

checkLeaks()

interface Subject {
  readonly merge: StdinMerge
  readonly reader: number
  closes: number
}

function onPipe(): Subject {
  const [reader, fd] = pipe2()
  setNonblock(reader)
  const subject: Subject = {
    merge: new StdinMerge({ fd, terminal: false, onClosed: () => subject.closes++ }),
    reader,
    closes: 0,
  }
  return subject
}

/** What lies in the pipe, then what follows in some turns of the loop. */
async function readMore(reader: number): Promise<string> {
  const buffer = Buffer.alloc(1_000_000)
  let text = ''
  for (let quiet = 0; quiet < 5;) {
    const length = read(reader, buffer)
    quiet = length > 0 ? 0 : quiet + 1
    if (length > 0) text += buffer.toString('latin1', 0, length)
    await new Promise((resolve) => setImmediate(resolve))
  }
  return text
}

function isOpen(fd: number): boolean {
  try {
    fstatSync(fd)
    return true
  } catch {
    return false
  }
}

describe('merged input', () => {
  test('passes chunks on in the order they came, each whole', async () => {
    const { merge, reader } = onPipe()
    const [a, b] = [merge.connect(), merge.connect()]
    assert.equal(a.write(Buffer.alloc(65_000, 'a')), true)
    assert.equal(b.write(Buffer.alloc(65_000, 'b')), false)
    assert.equal(a.write(Buffer.alloc(10, 'c')), false)
    assert.equal(b.write(Buffer.alloc(10, 'd')), false)
    assert.equal(
      await readMore(reader),
      `${'a'.repeat(65_000)}${'b'.repeat(65_000)}${'c'.repeat(10)}${'d'.repeat(10)}`,
    )
    assert.deepEqual([a.buffered, b.buffered], [0, 0])
    merge.close()
    closeSync(reader)
  })

  test('holds each writer back until its own chunks are written', async () => {
    const { merge, reader } = onPipe()
    const [big, small] = [merge.connect(), merge.connect()]
    const drains: string[] = []
    big.onDrain = () => drains.push('big')
    small.onDrain = () => drains.push('small')
    assert.equal(big.write(Buffer.alloc(200_000)), false)
    assert.equal(small.write(Buffer.from('x')), false)
    assert.deepEqual(drains, [])
    assert.equal((await readMore(reader)).length, 200_001)
    assert.deepEqual(drains, ['big', 'small'])
    assert.equal(small.write(Buffer.from('y')), true)
    merge.close()
    closeSync(reader)
  })

  test('says when the bytes of a writer that ended are written', async () => {
    const { merge, reader } = onPipe()
    const ended: string[] = []
    const idle = merge.connect(() => ended.push('idle'))
    const busy = merge.connect(() => ended.push('busy'))
    busy.write(Buffer.alloc(100_000))
    busy.end()
    busy.end()
    assert.equal(busy.write(Buffer.from('after the end')), true)
    idle.end()
    assert.deepEqual(ended, ['idle'])
    assert.equal((await readMore(reader)).length, 100_000)
    assert.deepEqual(ended, ['idle', 'busy'])
    merge.close()
    closeSync(reader)
  })

  test('closes when everything taken is written', async () => {
    const subject = onPipe()
    const writer = subject.merge.connect()
    writer.write(Buffer.alloc(100_000))
    subject.merge.closeWhenWritten()
    assert.equal(writer.write(Buffer.from('too late')), true)
    assert.equal(subject.closes, 0)
    assert.equal((await readMore(subject.reader)).length, 100_000)
    assert.deepEqual([subject.closes, subject.merge.closed], [1, true])
    assert.equal(readSync(subject.reader, Buffer.alloc(1)), 0)
    closeSync(subject.reader)
  })

  test('closes at once when asked, and lets its writers go on into nothing', () => {
    const subject = onPipe()
    const writer = subject.merge.connect()
    let drained = 0
    writer.onDrain = () => drained++
    writer.write(Buffer.alloc(100_000))
    subject.merge.close()
    subject.merge.close()
    subject.merge.closeWhenWritten()
    assert.deepEqual([subject.closes, drained, writer.buffered], [1, 1, 0])
    assert.equal(writer.write(Buffer.from('x')), true)
    closeSync(subject.reader)
  })

  test('takes a reader that is gone for the quiet end', () => {
    const subject = onPipe()
    closeSync(subject.reader)
    const writer = subject.merge.connect()
    assert.equal(writer.write(Buffer.from('x')), true)
    assert.deepEqual([subject.closes, subject.merge.closed], [1, true])
  })

  test('takes a reader that goes while input waits for the quiet end', async () => {
    const subject = onPipe()
    const writer = subject.merge.connect()
    const drained = new Promise<void>((resolve) => (writer.onDrain = resolve))
    assert.equal(writer.write(Buffer.alloc(100_000)), false)
    closeSync(subject.reader)
    await drained
    assert.deepEqual([subject.closes, writer.buffered], [1, 0])
  })

  test('keeps its order over thousands of waiting chunks, and when writers write as they drain', async () => {
    const { merge, reader } = onPipe()
    const writer = merge.connect()
    let expected = ''
    const send = (text: string): boolean => {
      expected += text
      return writer.write(Buffer.from(text))
    }
    let more = 3
    writer.onDrain = () => {
      if (more-- > 0) send('x'.repeat(100_000))
    }
    send('-'.repeat(70_000))
    for (let i = 0; i < 5000; i++) send(`${i},`)
    const got = await readMore(reader)
    assert.equal(got.length, expected.length)
    assert.ok(got === expected)
    merge.close()
    closeSync(reader)
  })

  test('leaves the descriptor of a terminal open', async () => {
    const { master, exited } = await startOnTerminal(['sh', '-c', 'read line; echo "got $line"'])
    const merge = new StdinMerge({ fd: master, terminal: true })
    merge.connect().write(Buffer.from('hello\n'))
    merge.close()
    assert.ok(isOpen(master))
    const terminal = new WatchedFd(master)
    const shared = new StdinMerge({ fd: terminal, terminal: true })
    await exited
    shared.connect().write(Buffer.from('nobody\n'))
    assert.ok(terminal.open)
    terminal.close()
    assert.ok(shared.closed)
    assert.ok(!isOpen(master))
  })

  test('into a terminal that nobody has open any more is thrown away, and the merge lives on', async () => {
    const { master, exited } = await startOnTerminal(['true'])
    await exited
    const merge = new StdinMerge({ fd: master, terminal: true })
    const writer = merge.connect()
    for (let i = 0; i < 3; i++) {
      const drained = new Promise<void>((resolve) => (writer.onDrain = resolve))
      if (!writer.write(Buffer.alloc(100_000))) await drained
      assert.equal(writer.buffered, 0)
    }
    assert.equal(merge.closed, false)
    merge.close()
    closeSync(master)
  })
})
