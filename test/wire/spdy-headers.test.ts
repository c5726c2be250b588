import assert from 'node:assert/strict'
import { createHash } from 'node:crypto'
import { test } from 'node:test'
import { constants, createDeflate, createInflate, deflateRawSync, type Deflate } from 'node:zlib'
import fc from 'fast-check'
import { spdyDictionary } from '../../src/wire/spdy-dictionary.ts'
import { emptyHeaderBlock, HeaderInflater, parseHeaders } from '../../src/wire/spdy-headers.ts'
import { checkLeaks } from '../support/leak-check.ts'

checkLeaks()

function u32(number: number): Buffer {
  const buffer = Buffer.alloc(4)
  buffer.writeUInt32BE(number >>> 0)
  return buffer
}

function block(...pairs: (readonly [string, string])[]): Buffer {
  const text = (value: string) => [u32(Buffer.byteLength(value, 'latin1')), Buffer.from(value, 'latin1')]
  return Buffer.concat([
    u32(pairs.length),
    ...pairs.flatMap(([name, value]) => [...text(name), ...text(value)]),
  ])
}

/** Blocks of one real zlib stream with the dictionary, flushed after each. */
async function deflateAll(
  blocks: readonly Buffer[],
  options: { level?: number; memLevel?: number } = {},
): Promise<Buffer[]> {
  const deflate: Deflate = createDeflate({ dictionary: spdyDictionary, ...options })
  const result: Buffer[] = []
  for (const each of blocks) {
    const chunks: Buffer[] = []
    const collect = (chunk: Buffer) => chunks.push(chunk)
    deflate.on('data', collect)
    deflate.write(each)
    await new Promise<void>((resolve) => deflate.flush(constants.Z_SYNC_FLUSH, () => resolve()))
    deflate.off('data', collect)
    result.push(Buffer.concat(chunks))
  }
  deflate.close()
  return result
}

test('has the dictionary of the specification', () => {
  assert.equal(spdyDictionary.length, 1423)
  assert.equal(
    createHash('sha256').update(spdyDictionary).digest('hex'),
    '51d27341373f923f3cd88e1eb7162aeaa3723d7585ff2399201dc06498407f02',
  )
})

test('inflates what client-go sends', () => {
  const inflater = new HeaderInflater()
  const plain = block(['streamtype', 'error'])
  const first = Buffer.concat([
    Buffer.from('78f9e3c6a7c2', 'hex'),
    deflateRawSync(plain, { dictionary: spdyDictionary, level: 9, finishFlush: constants.Z_SYNC_FLUSH }),
  ])
  assert.ok(
    first.toString('hex').startsWith('78f9e3c6a7c26260606004a7b392a2d4c45c6851'),
    first.toString('hex'),
  )
  assert.deepEqual([...parseHeaders(inflater.inflate(first))], [['streamtype', 'error']])
  const second = inflater.inflate(Buffer.from('c22ac5565c92925f5a02000000ffff', 'hex'))
  assert.deepEqual([...parseHeaders(second)], [['streamtype', 'stdout']])
})

test('inflates any sequence of blocks as one zlib stream does', async () => {
  const text = fc.string({
    unit: fc.integer({ min: 0, max: 255 }).map((code) => String.fromCharCode(code)),
    maxLength: 300,
  })
  const name = fc.stringMatching(/^[a-z:-]{1,20}$/)
  const headers = fc.uniqueArray(fc.tuple(name, text), { selector: ([each]) => each, maxLength: 8 })
  const levels = fc.record({
    level: fc.integer({ min: 0, max: 9 }),
    memLevel: fc.integer({ min: 1, max: 9 }),
  })
  await fc.assert(
    fc.asyncProperty(fc.array(headers, { minLength: 1, maxLength: 30 }), levels, async (all, options) => {
      const inflater = new HeaderInflater()
      const blocks = await deflateAll(
        all.map((pairs) => block(...pairs)),
        options,
      )
      assert.deepEqual(
        blocks.map((each) => [...parseHeaders(inflater.inflate(each))]),
        all,
      )
    }),
    { numRuns: 60, seed: 1 },
  )
})

test('keeps up when the history is longer than the window', async () => {
  const all = Array.from(
    { length: 200 },
    (_, i) =>
      [
        ['requestid', String(i)],
        ['x', 'y'.repeat((i * 37) % 900)],
      ] as const,
  )
  const inflater = new HeaderInflater()
  const blocks = await deflateAll(all.map((pairs) => block(...pairs)))
  assert.deepEqual(
    blocks.map((each) => [...parseHeaders(inflater.inflate(each))]),
    all,
  )
})

for (const [name, hex] of [
  ['nothing', ''],
  ['no zlib', '00112233445566778899'],
  ['no dictionary', '789c000000ffff'],
  ['another dictionary', '78f9e3c6a7c3000000ffff'],
  ['a bad check', '78f8e3c6a7c2000000ffff'],
  ['no flush', '78f9e3c6a7c26260606004a7b3'],
  ['garbage before the flush', '78f9e3c6a7c2ffffffff0000ffff'],
] as const) {
  test(`refuses a first block with ${name}`, () => {
    assert.throws(() => new HeaderInflater().inflate(Buffer.from(hex, 'hex')), {
      code: 'invalid-argument',
    })
  })
}

test('refuses a block that inflates to more than 64 KiB', async () => {
  const blocks = await deflateAll([Buffer.alloc(65_536), Buffer.alloc(65_537)])
  const inflater = new HeaderInflater()
  const [fits = Buffer.alloc(0), bomb = Buffer.alloc(0)] = blocks
  assert.equal(inflater.inflate(fits).length, 65_536)
  assert.ok(bomb.length < 200)
  assert.throws(() => inflater.inflate(bomb), { code: 'invalid-argument' })
})

for (const [name, plain] of [
  ['no count', Buffer.alloc(3)],
  ['a count without headers', u32(1)],
  ['1001 headers', block(...Array.from({ length: 1001 }, (_, i) => [`n${i}`, ''] as const))],
  ['2^32-1 headers', Buffer.concat([u32(0xffffffff), u32(1), Buffer.from('a')])],
  ['a name that is longer than the block', Buffer.concat([u32(1), u32(0xffffffff), Buffer.from('a')])],
  ['a value that is cut', block(['a', 'bcd']).subarray(0, -1)],
  ['bytes too many', Buffer.concat([block(['a', 'b']), Buffer.from([0])])],
  ['a name twice', block(['a', 'b'], ['A', 'c'])],
  ['an empty name', block(['', 'b'])],
] as const) {
  test(`refuses headers with ${name}`, () => {
    assert.throws(() => parseHeaders(plain), { code: 'invalid-argument' })
  })
}

test('reads names in lower case and 1000 headers', () => {
  assert.equal(parseHeaders(block(['StreamType', 'stdin'])).get('streamtype'), 'stdin')
  assert.equal(
    parseHeaders(block(...Array.from({ length: 1000 }, (_, i) => [`n${i}`, ''] as const))).size,
    1000,
  )
})

test('sends reply blocks that a zlib reader takes for no headers', async () => {
  const inflate = createInflate({ dictionary: spdyDictionary })
  const chunks: Buffer[] = []
  inflate.on('data', (chunk: Buffer) => chunks.push(chunk))
  for (const each of [emptyHeaderBlock.first, emptyHeaderBlock.later, emptyHeaderBlock.later]) {
    await new Promise<void>((resolve) => inflate.write(each, () => resolve()))
  }
  assert.deepEqual(Buffer.concat(chunks), Buffer.alloc(12))
  inflate.close()
})
