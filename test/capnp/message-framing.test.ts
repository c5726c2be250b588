import assert from 'node:assert/strict'
import { describe, test } from 'node:test'
import { MonitorError } from '../../src/base/errors.ts'
import { MessageFramer } from '../../src/capnp/message-framing.ts'

const maxBytes = 1024

function hex(text: string): Buffer {
  return Buffer.from(text.replaceAll(/\s/g, ''), 'hex')
}

/** All messages in the bytes, each segment as hex. */
function messages(...chunks: Buffer[]): string[][] {
  const framer = new MessageFramer(maxBytes)
  const found: string[][] = []
  for (const chunk of chunks) {
    framer.push(chunk)
    for (let segments = framer.next(); segments !== undefined; segments = framer.next()) {
      found.push(segments.map((segment) => segment.toString('hex')))
    }
  }
  return found
}

const one = '0102030405060708'
const two = '1112131415161718'
const vectors = [
  { title: 'one segment', bytes: `00000000 01000000 ${one}`, expected: [[one]] },
  {
    title: 'two segments',
    bytes: `01000000 01000000 01000000 00000000 ${one} ${two}`,
    expected: [[one, two]],
  },
  {
    title: 'three segments, one empty',
    bytes: `02000000 01000000 00000000 01000000 ${one} ${two}`,
    expected: [[one, '', two]],
  },
  { title: 'an empty message', bytes: '00000000 00000000', expected: [['']] },
  {
    title: 'several messages',
    bytes: `00000000 01000000 ${one} 00000000 02000000 ${one} ${two} 00000000 01000000 ${two}`,
    expected: [[one], [one + two], [two]],
  },
]

describe('the framer', () => {
  for (const { title, bytes, expected } of vectors) {
    test(`cuts ${title}, split at every byte`, () => {
      const all = hex(bytes)
      assert.deepEqual(messages(all), expected)
      for (let at = 1; at < all.length; at++) {
        assert.deepEqual(messages(all.subarray(0, at), all.subarray(at)), expected, `split at ${at}`)
      }
      assert.deepEqual(messages(...Array.from(all, (_, i) => all.subarray(i, i + 1))), expected)
    })
  }

  const malformed = [
    { title: 'too many segments', bytes: 'ffffffff' },
    { title: 'one segment more than allowed', bytes: '00020000' },
    { title: 'a segment of 4 GiB', bytes: '00000000 00000020' },
    { title: 'a segment of 32 GiB', bytes: '00000000 ffffffff' },
    { title: 'segments that are too large together', bytes: '01000000 50000000 50000000 00000000' },
  ]
  for (const { title, bytes } of malformed) {
    test(`refuses ${title} before it comes`, () => {
      assert.throws(() => messages(hex(bytes)), MonitorError)
    })
  }

  test('takes a message of exactly the limit', () => {
    const bytes = Buffer.alloc(8 + maxBytes)
    bytes.writeUInt32LE(maxBytes / 8, 4)
    assert.equal(messages(bytes).length, 1)
    bytes.writeUInt32LE(maxBytes / 8 + 1, 4)
    assert.throws(() => messages(bytes), /1032 bytes exceeds the limit/)
  })

  test('knows how many bytes are no message yet', () => {
    const framer = new MessageFramer(maxBytes)
    framer.push(hex(`00000000 01000000 ${one} 0000`))
    assert.equal(framer.buffered, 18)
    framer.next()
    assert.equal(framer.buffered, 2)
    assert.equal(framer.next(), undefined)
  })
})
