// Every byte of a pipe or terminal arrives, in order, once, before the end, whatever the consumer's pace.

import assert from 'node:assert/strict'
import { spawn } from 'node:child_process'
import { closeSync, openSync, writeSync } from 'node:fs'
import { describe, test } from 'node:test'
import { bytesReadable, pipe2, setNonblock, write } from '../../src/native/addon.ts'
import { OutputPump } from '../../src/stdio/output-pump.ts'
import { checkLeaks } from '../support/leak-check.ts'
import { assertSame, emit, pattern } from '../support/pattern.ts'
import { TestSink, slowSink } from '../support/test-sinks.ts'
import { startOnTerminal } from '../support/terminal-program.ts'

checkLeaks()

interface Source {
  readonly fd: number
  readonly exited: Promise<unknown>
}

async function fromTerminal(command: readonly string[]): Promise<Source> {
  const { master, exited } = await startOnTerminal(command)
  return { fd: master, exited }
}

function fromPipe([program = '', ...args]: readonly string[]): Promise<Source> {
  const [readEnd, writeEnd] = pipe2()
  const child = spawn(program, args, { stdio: ['ignore', writeEnd, 'inherit'] })
  closeSync(writeEnd)
  return Promise.resolve({ fd: readEnd, exited: new Promise((resolve) => child.on('exit', resolve)) })
}

async function turns(count: number): Promise<void> {
  for (let i = 0; i < count; i++) await new Promise((resolve) => setImmediate(resolve))
}

/** A terminal is closed by its owner, when the process is over. */
async function consumed(pump: OutputPump): Promise<void> {
  await pump.ended
  pump.close()
}

/** Each takes everything of a source that ends by itself. */
const consumers: Record<string, (source: Source, terminal: boolean) => Promise<TestSink>> = {
  'a fast consumer': async ({ fd }, terminal) => {
    const sink = new TestSink()
    await consumed(new OutputPump({ fd, terminal, sink }))
    return sink
  },
  'a slow consumer': async ({ fd }, terminal) => {
    const sink = slowSink()
    await consumed(new OutputPump({ fd, terminal, sink }))
    return sink
  },
  'a consumer that rests until the process is over or waits for it': async ({ fd, exited }, terminal) => {
    const sink = new TestSink(true)
    const pump = new OutputPump({ fd, terminal, sink })
    await sink.until(1)
    await Promise.race([exited, turns(200)])
    sink.onWrite = () => setImmediate(() => sink.drain())
    sink.drain()
    await consumed(pump)
    return sink
  },
}

for (const [kind, start, sizes, runs] of [
  ['a terminal', fromTerminal, [1, 100, 4095, 4096, 8192, 20_480, 100_000, 458_640], 4],
  ['a pipe', fromPipe, [1, 4096, 65_535, 65_536, 65_537, 1_000_000], 2],
] as const) {
  describe(`the output of ${kind} is whole`, () => {
    for (const [consumer, consume] of Object.entries(consumers)) {
      test(`for ${consumer}`, async () => {
        for (const size of sizes) {
          for (let run = 0; run < runs; run++) {
            const source = await start(emit(size))
            const sink = await consume(source, kind === 'a terminal')
            assertSame(sink.bytes, pattern(size))
            assert.equal(sink.ends, 1)
            await source.exited
          }
        }
      })
    }
  })
}

describe('a pump', () => {
  test('ends at once on empty output', async () => {
    const sink = new TestSink()
    await new OutputPump({ fd: (await fromPipe(['true'])).fd, terminal: false, sink }).ended
    assert.deepEqual([sink.writes, sink.ends], [0, 1])
  })

  test('stops the process when its sink is full', async () => {
    const [readEnd, writeEnd] = pipe2()
    setNonblock(writeEnd)
    const sink = new TestSink(true)
    const pump = new OutputPump({ fd: readEnd, terminal: false, sink })
    const chunk = Buffer.alloc(65_536)
    let accepted = 0
    for (let turn = 0; turn < 20; turn++) {
      accepted += Math.max(0, write(writeEnd, chunk))
      await turns(1)
    }
    assert.equal(sink.writes, 1)
    assert.ok(accepted <= 4 * 65_536, `${accepted} bytes were taken from the process`)
    closeSync(writeEnd)
    sink.onWrite = () => setImmediate(() => sink.drain())
    sink.drain()
    await pump.ended
    assert.equal(sink.length, accepted)
  })

  test('goes on when a sink drains inside its write', async () => {
    const sink = new TestSink(true)
    sink.onWrite = () => sink.drain()
    const source = await fromPipe(emit(1_000_000))
    await new OutputPump({ fd: source.fd, terminal: false, sink }).ended
    assertSame(sink.bytes, pattern(1_000_000))
  })

  test('never writes again into what a sink keeps', async () => {
    // Chunks of all sizes, kept by one and passed on by the other in turn, share the read buffer.
    const sinks = [new TestSink(true), new TestSink(), new TestSink(true)]
    const sources = await Promise.all(
      sinks.map(() => fromPipe(['sh', '-c', `for i in $(seq 300); do echo $i; done`])),
    )
    const pumps = sources.map(({ fd }, i) => new OutputPump({ fd, terminal: false, sink: sinks[i] }))
    for (const sink of sinks) if (sink.keeping) sink.onWrite = () => setImmediate(() => sink.drain())
    await Promise.all(pumps.map((pump) => pump.ended))
    const expected = Array.from({ length: 300 }, (_, i) => `${i + 1}\n`).join('')
    for (const sink of sinks) assert.equal(sink.bytes.toString(), expected)
  })

  test('throws output away without a sink, and gives a new sink what comes from then on', async () => {
    const [readEnd, writeEnd] = pipe2()
    const pump = new OutputPump({ fd: readEnd, terminal: false, sink: undefined })
    writeSync(writeEnd, 'lost')
    while (bytesReadable(readEnd) > 0) await turns(1)
    const full = new TestSink(true)
    pump.setSink(full)
    writeSync(writeEnd, 'first')
    await full.until(5)
    const second = new TestSink()
    pump.setSink(second)
    writeSync(writeEnd, 'second')
    closeSync(writeEnd)
    await pump.ended
    assert.equal(full.bytes.toString(), 'first')
    assert.equal(second.bytes.toString(), 'second')
    assert.deepEqual([full.ends, second.ends], [0, 1])
    const late = new TestSink()
    pump.setSink(late)
    assert.equal(late.ends, 1)
  })

  test('can be closed twice, in the middle, and tells its sink the end once', async () => {
    const [readEnd, writeEnd] = pipe2()
    const sink = new TestSink(true)
    const pump = new OutputPump({ fd: readEnd, terminal: false, sink })
    writeSync(writeEnd, 'x')
    await sink.until(1)
    pump.close()
    pump.close()
    pump.takeRest()
    await pump.ended
    assert.equal(sink.ends, 1)
    assert.throws(() => writeSync(writeEnd, 'y'), { code: 'EPIPE' })
    closeSync(writeEnd)
  })

  test('can be closed from inside a write', async () => {
    const [readEnd, writeEnd] = pipe2()
    writeSync(writeEnd, 'xyz')
    const sink = new TestSink()
    const pump = new OutputPump({ fd: readEnd, terminal: false, sink })
    sink.onWrite = () => pump.close()
    await pump.ended
    assert.deepEqual([sink.writes, sink.ends], [1, 1])
    closeSync(writeEnd)
  })

  test('refuses what cannot be watched, and closes it', () => {
    const file = openSync(process.execPath, 'r')
    assert.throws(() => new OutputPump({ fd: file, terminal: false, sink: undefined }), {
      name: 'MonitorError',
    })
    assert.throws(() => closeSync(file), { code: 'EBADF' })
  })
})

describe('taking the rest', () => {
  for (const [name, makeSink] of [
    ['a fast', () => new TestSink()],
    ['a slow', slowSink],
  ] as const) {
    test(`delivers what lies in the pipe to ${name} consumer, and no more`, async () => {
      const [readEnd, writeEnd] = pipe2()
      setNonblock(writeEnd)
      const sink = makeSink()
      const full = new TestSink(true)
      const pump = new OutputPump({ fd: readEnd, terminal: false, sink: full })
      // The consumer is full, the pipe is full, and a left-over process holds its other end.
      let accepted = 0
      const chunk = pattern(65_536)
      for (let turn = 0; turn < 5; turn++) {
        accepted += Math.max(0, write(writeEnd, chunk))
        await turns(1)
      }
      pump.setSink(sink)
      pump.takeRest()
      assert.throws(() => write(writeEnd, chunk), { code: 'EPIPE' })
      await pump.ended
      assert.equal(full.length + sink.length, accepted)
      assert.equal(sink.ends, 1)
      closeSync(writeEnd)
    })
  }

  test('waits for a consumer that rests, and can be given up', async () => {
    const [readEnd, writeEnd] = pipe2()
    const sink = new TestSink(true)
    const pump = new OutputPump({ fd: readEnd, terminal: false, sink })
    writeSync(writeEnd, 'one')
    await sink.until(3)
    writeSync(writeEnd, 'two')
    pump.takeRest()
    let ended = false
    void pump.ended.then(() => (ended = true))
    await turns(1)
    assert.equal(ended, false)
    pump.close()
    await pump.ended
    assert.equal(sink.bytes.toString(), 'one')
    closeSync(writeEnd)
  })

  test('of a terminal that a background process keeps open', async () => {
    const { master, exited, pid } = await startOnTerminal([
      'sh',
      '-c',
      'trap "" HUP; echo hi; sleep 60 & echo $!',
    ])
    assert.ok(pid > 0)
    await exited
    const sink = new TestSink()
    const pump = new OutputPump({ fd: master, terminal: true, sink })
    await sink.until(5)
    pump.takeRest()
    await pump.ended
    const [hi, sleeper] = sink.bytes.toString().split('\n')
    assert.equal(hi, 'hi')
    process.kill(Number(sleeper), 'SIGKILL')
  })
})
