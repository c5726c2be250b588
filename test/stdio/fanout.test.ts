// One stream, many clients: all get everything, and one that does not read is dropped alone.

import assert from 'node:assert/strict'
import { spawn } from 'node:child_process'
import { closeSync, writeSync } from 'node:fs'
import { afterEach, beforeEach, describe, mock, test } from 'node:test'
import type { MonitorError } from '../../src/base/errors.ts'
import { MAX_ATTACH_BUFFER_BYTES, STALL_LIMIT_MS } from '../../src/base/limits.ts'
import { pipe2, setNonblock, write } from '../../src/native/addon.ts'
import { Fanout } from '../../src/stdio/fanout.ts'
import { OutputPump } from '../../src/stdio/output-pump.ts'
import { checkLeaks } from '../support/leak-check.ts'
import { assertSame, emit, pattern } from '../support/pattern.ts'
import { TestSink, slowSink } from '../support/test-sinks.ts'

checkLeaks()

const unexpected = (error: MonitorError): void => assert.fail(error)

function pumpFrom([program = '', ...args]: readonly string[], sink: Fanout): OutputPump {
  const [readEnd, writeEnd] = pipe2()
  spawn(program, args, { stdio: ['ignore', writeEnd, 'inherit'] })
  closeSync(writeEnd)
  return new OutputPump({ fd: readEnd, terminal: false, sink })
}

describe('a fan-out of a process', () => {
  test('gives every client every byte, in order, and each its end', async () => {
    const fanout = new Fanout()
    const clients = [new TestSink(), slowSink(1), slowSink(5), new TestSink()]
    for (const client of clients) fanout.add(client, unexpected)
    await pumpFrom(emit(3_000_000), fanout).ended
    for (const client of clients) {
      assertSame(client.bytes, pattern(3_000_000))
      assert.equal(client.ends, 1)
    }
  })

  test('carries 500 MB from a pipe to two sinks with bounded buffers', async () => {
    const fanout = new Fanout()
    let fast = 0
    fanout.add(
      { write: (chunk) => (fast += chunk.length) > 0, end: () => undefined, buffered: 0, onDrain: undefined },
      unexpected,
    )
    let [slow, most] = [0, 0]
    const keeper = new TestSink(true)
    keeper.write = (chunk) => {
      slow += chunk.length
      keeper.buffered += chunk.length
      most = Math.max(most, keeper.buffered)
      if (keeper.buffered === chunk.length) setImmediate(() => keeper.drain())
      return false
    }
    fanout.add(keeper, unexpected)
    await pumpFrom(['head', '-c', '500000000', '/dev/zero'], fanout).ended
    assert.deepEqual([fast, slow], [500_000_000, 500_000_000])
    assert.ok(most <= MAX_ATTACH_BUFFER_BYTES + 65_536, `${most} bytes were pending`)
  })

  test('stops the process within four chunks when a client is full', async () => {
    const fanout = new Fanout()
    const client = new TestSink(true)
    client.buffered = MAX_ATTACH_BUFFER_BYTES - 1
    let dropped: MonitorError | undefined
    fanout.add(client, (error) => (dropped = error))
    const [readEnd, writeEnd] = pipe2()
    setNonblock(writeEnd)
    const pump = new OutputPump({ fd: readEnd, terminal: false, sink: fanout })
    let accepted = 0
    for (let turn = 0; turn < 20; turn++) {
      accepted += Math.max(0, write(writeEnd, Buffer.alloc(65_536)))
      await new Promise((resolve) => setImmediate(resolve))
    }
    assert.equal(dropped, undefined)
    assert.ok(accepted <= 4 * 65_536, `${accepted} bytes were taken from the process`)
    client.drain()
    closeSync(writeEnd)
    await pump.ended
    assert.equal(client.length, accepted)
  })

  test('drops a stalled client after its limit while the others receive all 1,000,000 bytes', async () => {
    const fanout = new Fanout()
    const good = [new TestSink(), slowSink()]
    for (const client of good) fanout.add(client, unexpected)
    const stalled = new TestSink(true)
    stalled.buffered = MAX_ATTACH_BUFFER_BYTES - 100_000
    const dropped: MonitorError[] = []
    fanout.add(stalled, (error) => dropped.push(error))
    await pumpFrom(emit(1_000_000), fanout).ended
    for (const client of good) assertSame(client.bytes, pattern(1_000_000))
    assert.equal(dropped.length, 1)
    assert.equal(dropped[0]!.code, 'resource-exhausted')
    assert.match(dropped[0]!.message, /did not read its output for 100 ms while 10\d{5} bytes were pending/)
    assert.equal(stalled.ends, 0)
  })

  test('with no client throws output away', async () => {
    await pumpFrom(emit(1_000_000), new Fanout()).ended
  })
})

describe('the stall limit', () => {
  const full = Buffer.alloc(MAX_ATTACH_BUFFER_BYTES)
  let fanout: Fanout
  let drains: number
  let dropped: number

  afterEach(() => mock.timers.reset())
  beforeEach(() => {
    mock.timers.enable({ apis: ['setTimeout', 'setImmediate'] })
    fanout = new Fanout()
    drains = 0
    dropped = 0
    fanout.onDrain = () => drains++
  })

  function add(): TestSink {
    const sink = new TestSink(true)
    fanout.add(sink, () => dropped++)
    return sink
  }

  function pass(milliseconds: number): void {
    mock.timers.tick(milliseconds)
    mock.timers.tick(0)
  }

  test('does not concern a client that keeps less than its buffer: the writer goes on at once', () => {
    const client = add()
    assert.equal(fanout.write(Buffer.alloc(1000)), false)
    assert.equal(drains, 1)
    pass(STALL_LIMIT_MS * 10)
    assert.equal(dropped, 0)
    assert.equal(fanout.buffered, client.buffered)
  })

  test('spares a client that drains in time, however late', () => {
    const client = add()
    fanout.write(full)
    assert.equal(drains, 0)
    pass(STALL_LIMIT_MS - 1)
    client.drain()
    assert.equal(drains, 1)
    pass(STALL_LIMIT_MS)
    assert.equal(dropped, 0)
  })

  test('spares a client that has taken half of it', () => {
    const client = add()
    fanout.write(full)
    client.buffered = MAX_ATTACH_BUFFER_BYTES / 2
    pass(STALL_LIMIT_MS)
    assert.deepEqual([dropped, drains, fanout.size], [0, 1, 1])
  })

  test('drops one that has taken less, and lets the others go on', () => {
    const client = add()
    add()
    fanout.write(full.subarray(0, 10))
    client.buffered = MAX_ATTACH_BUFFER_BYTES
    fanout.write(full.subarray(0, 10))
    client.buffered -= 1000
    const before = drains
    pass(STALL_LIMIT_MS)
    assert.deepEqual([dropped, drains, fanout.size], [1, before + 1, 1])
    client.drain()
    assert.equal(drains, before + 1)
  })

  test('counts chunks as well as bytes', () => {
    add()
    let writes = 0
    for (const byte = Buffer.alloc(1); drains === writes; writes++) fanout.write(byte)
    assert.equal(writes, 4096)
    pass(STALL_LIMIT_MS)
    assert.equal(dropped, 1)
  })

  test('waits for all that are full', () => {
    const [first, second] = [add(), add()]
    fanout.write(full)
    first.drain()
    assert.equal(drains, 0)
    second.drain()
    assert.equal(drains, 1)
  })

  test('is over for a client that leaves', () => {
    const sink = new TestSink(true)
    const remove = fanout.add(sink, () => dropped++)
    fanout.write(full)
    remove()
    remove()
    assert.equal(drains, 1)
    pass(STALL_LIMIT_MS)
    assert.deepEqual([dropped, fanout.size], [0, 0])
    assert.equal(sink.onDrain, undefined)
  })
})

test('who comes late gets what comes from then on, and who comes after the end gets the end', async () => {
  const [readEnd, writeEnd] = pipe2()
  const fanout = new Fanout()
  const pump = new OutputPump({ fd: readEnd, terminal: false, sink: fanout })
  const [early, late, after] = [new TestSink(), new TestSink(), new TestSink()]
  fanout.add(early, unexpected)
  writeSync(writeEnd, 'one')
  await early.until(3)
  const leave = fanout.add(late, unexpected)
  writeSync(writeEnd, 'two')
  await late.until(3)
  leave()
  writeSync(writeEnd, 'three')
  closeSync(writeEnd)
  await pump.ended
  fanout.end()
  fanout.add(after, unexpected)()
  assert.deepEqual(
    [early, late, after].map((sink) => [sink.bytes.toString(), sink.ends]),
    [
      ['onetwothree', 1],
      ['two', 0],
      ['', 1],
    ],
  )
})
