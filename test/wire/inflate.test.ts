// zlib itself is the referee.

import assert from 'node:assert/strict'
import { test } from 'node:test'
import { constants, deflateRawSync, inflateRawSync } from 'node:zlib'
import fc from 'fast-check'
import { Inflater } from '../../src/wire/inflate.ts'
import { spdyDictionary } from '../../src/wire/spdy-dictionary.ts'
import { checkLeaks } from '../support/leak-check.ts'

checkLeaks()

const maxOutput = 65_536
const strategies = [
  constants.Z_DEFAULT_STRATEGY,
  constants.Z_FILTERED,
  constants.Z_HUFFMAN_ONLY,
  constants.Z_RLE,
  constants.Z_FIXED,
]

interface Settings {
  readonly level: number
  readonly memLevel: number
  readonly strategy: number
}

const settings = fc.record({
  level: fc.integer({ min: 0, max: 9 }),
  memLevel: fc.integer({ min: 1, max: 9 }),
  strategy: fc.constantFrom(...strategies),
})

function deflate(plain: Buffer, options: Settings): Buffer {
  return deflateRawSync(plain, {
    ...options,
    dictionary: spdyDictionary,
    finishFlush: constants.Z_SYNC_FLUSH,
  })
}

/** Text with repetitions near and far, zeros, and noise. */
const plains = fc
  .array(
    fc.oneof(
      fc.string({ maxLength: 40 }).map((text) => Buffer.from(text)),
      fc.uint8Array({ maxLength: 300 }).map((bytes) => Buffer.from(bytes)),
      fc.nat(3000).map((length) => Buffer.alloc(length)),
      fc.constantFrom('streamtype', 'stdout', 'requestid', 'port').map((word) => Buffer.from(word)),
    ),
    { maxLength: 40 },
  )
  .map((parts) => Buffer.concat(parts).subarray(0, maxOutput))

test('inflates what zlib deflates, with every strategy', () => {
  fc.assert(
    fc.property(plains, settings, (plain, options) => {
      const inflater = new Inflater(spdyDictionary, maxOutput)
      assert.ok(inflater.inflate(deflate(plain, options)).equals(plain))
    }),
    { numRuns: 400, seed: 1 },
  )
})

test('inflates large blocks of all kinds', () => {
  const noise = Buffer.from(
    Array.from({ length: maxOutput }, (_, i) => (Math.imul(i, 2654435761) >>> 13) & 0xff),
  )
  const text = Buffer.from('the quick brown fox '.repeat(3276)).subarray(0, maxOutput)
  for (const plain of [noise, text, Buffer.alloc(maxOutput), noise.subarray(0, 40_000)]) {
    for (const strategy of strategies) {
      for (const level of [0, 1, 6, 9]) {
        const inflater = new Inflater(spdyDictionary, maxOutput)
        assert.ok(inflater.inflate(deflate(plain, { level, strategy, memLevel: 8 })).equals(plain))
      }
    }
  }
})

test('says of mutated blocks what zlib says, or refuses them', () => {
  const mutations = fc.array(fc.record({ at: fc.nat(), bit: fc.nat(7) }), { minLength: 1, maxLength: 4 })
  let same = 0
  let refused = 0
  fc.assert(
    fc.property(plains, settings, mutations, (plain, options, changes) => {
      const block = deflate(plain.subarray(0, 500), options)
      for (const { at, bit } of changes) {
        const index = at % block.length
        block[index] = (block[index] ?? 0) ^ (1 << bit)
      }
      let mine: Buffer
      try {
        mine = new Inflater(spdyDictionary, maxOutput).inflate(block)
      } catch (error) {
        assert.equal((error as { code?: unknown }).code, 'invalid-argument')
        refused++
        return
      }
      const theirs = inflateRawSync(block, {
        dictionary: spdyDictionary,
        finishFlush: constants.Z_SYNC_FLUSH,
      })
      assert.ok(mine.equals(theirs))
      same++
    }),
    { numRuns: 3000, seed: 1 },
  )
  assert.ok(same > 100 && refused > 100, `${same} same, ${refused} refused`)
})

test('refuses every block that is cut', () => {
  const plain = Buffer.from('streamtype stdout requestid 17 port 8080 '.repeat(5))
  for (const strategy of strategies) {
    const block = deflate(plain, { level: 9, strategy, memLevel: 8 })
    for (let length = 0; length < block.length; length++) {
      const cut = () => new Inflater(spdyDictionary, maxOutput).inflate(block.subarray(0, length))
      assert.throws(cut, { code: 'invalid-argument' }, `${length} of ${block.length} bytes`)
    }
  }
})

for (const [name, hex] of [
  ['a final block', '030000000000ffff'],
  ['block type 3', '06000000ffff'],
  ['a stored length without its complement', '0005000000'],
  ['a distance before the history', '62a6230600000000ffff'],
  ['too many literal codes', 'fcff00000000ffff'],
] as const) {
  test(`refuses ${name}`, () => {
    assert.throws(() => new Inflater(Buffer.alloc(0), maxOutput).inflate(Buffer.from(hex, 'hex')), {
      code: 'invalid-argument',
    })
  })
}
