import assert from 'node:assert/strict'
import { test } from 'node:test'
import fc from 'fast-check'
import { MAX_PENDING_STDIN_BYTES } from '../../src/base/limits.ts'
import { ChunkQueue } from '../../src/streaming/chunk-queue.ts'
import { StdinRelay } from '../../src/streaming/stdin-relay.ts'
import { checkLeaks } from '../support/leak-check.ts'
import { CollectingSink, pattern } from './support/fake-backend.ts'

checkLeaks()

function createRelay(): { relay: StdinRelay; held: boolean[] } {
  const held: boolean[] = []
  return { held, relay: new StdinRelay((each) => held.push(each)) }
}

test('keeps input until somebody connects, holds the client above the limit, and loses nothing', async () => {
  const { relay, held } = createRelay()
  const bytes = pattern(MAX_PENDING_STDIN_BYTES + 1)
  relay.push(bytes.subarray(0, 10))
  relay.push(bytes.subarray(10, MAX_PENDING_STDIN_BYTES))
  assert.deepEqual(held, [])
  relay.push(bytes.subarray(MAX_PENDING_STDIN_BYTES))
  assert.deepEqual(held, [true])
  relay.end()
  const sink = new CollectingSink()
  relay.connect(sink)
  await sink.ended.promise
  assert.ok(Buffer.concat(sink.chunks).equals(bytes))
  assert.deepEqual(held, [true, false])
})

test('waits for a full sink, then gives it what has come meanwhile', async () => {
  const { relay } = createRelay()
  const sink = new CollectingSink()
  relay.connect(sink)
  sink.stuck = true
  relay.push(Buffer.from('a'))
  relay.push(Buffer.from('b'))
  relay.push(Buffer.from('c'))
  assert.equal(sink.bytes, 1)
  sink.drain()
  assert.equal(Buffer.concat(sink.chunks).toString(), 'abc')
  relay.push(Buffer.from('d'))
  relay.end()
  await sink.ended.promise
  assert.equal(Buffer.concat(sink.chunks).toString(), 'abcd')
})

test('ends the sink after what waits, and once', () => {
  const { relay } = createRelay()
  const sink = new CollectingSink()
  let ends = 0
  sink.end = () => ends++
  relay.connect(sink)
  sink.stuck = true
  relay.push(Buffer.from('a'))
  relay.push(Buffer.from('b'))
  relay.end()
  relay.end()
  relay.push(Buffer.from('late'))
  assert.equal(ends, 0)
  sink.drain()
  assert.equal(ends, 1)
  assert.equal(sink.bytes, 2)
  relay.end()
  assert.equal(ends, 1)
})

test('throws input away once the session is over, and lets the client go on', () => {
  const { relay, held } = createRelay()
  relay.push(Buffer.alloc(MAX_PENDING_STDIN_BYTES + 1))
  relay.discard()
  assert.deepEqual(held, [true, false])
  relay.push(Buffer.alloc(MAX_PENDING_STDIN_BYTES + 1))
  const sink = new CollectingSink()
  relay.connect(sink)
  relay.end()
  assert.equal(sink.bytes, 0)
  assert.deepEqual(held, [true, false])
})

test('queues any chunks and gives the same bytes back', () => {
  const operation = fc.oneof(
    fc.record({ push: fc.nat(70_000), of: fc.nat(200_000) }),
    fc.constant('take' as const),
  )
  fc.assert(
    fc.property(fc.array(operation, { maxLength: 60 }), (operations) => {
      const queue = new ChunkQueue()
      const given: Buffer[] = []
      const taken: Buffer[] = []
      let seed = 0
      for (const each of operations) {
        if (each === 'take') taken.push(...queue.takeAll())
        else {
          const chunk = pattern(each.push + each.of, ++seed).subarray(each.of)
          given.push(chunk)
          queue.push(chunk)
        }
        const waiting = given.reduce((sum, { length }) => sum + length, 0)
        assert.equal(queue.bytes, waiting - taken.reduce((sum, { length }) => sum + length, 0))
      }
      taken.push(...queue.takeAll())
      assert.ok(Buffer.concat(taken).equals(Buffer.concat(given)))
      assert.equal(queue.bytes, 0)
    }),
    { numRuns: 60, seed: 1 },
  )
})

test('keeps little memory for small pieces of large chunks', () => {
  const queue = new ChunkQueue()
  for (let i = 0; i < 1000; i++) queue.push(Buffer.alloc(65_536).subarray(0, 1))
  const chunks = queue.takeAll()
  const kept = chunks.reduce((sum, { buffer }) => sum + buffer.byteLength, 0)
  assert.ok(kept < 32_768, `${kept} bytes kept for 1000`)
  assert.ok(chunks.length < 10)
})

test('keeps large chunks as they are', () => {
  const queue = new ChunkQueue()
  const chunk = Buffer.alloc(65_536)
  queue.push(chunk)
  assert.equal(queue.takeAll()[0], chunk)
})
