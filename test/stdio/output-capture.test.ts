// What exec sync keeps of an output.

import assert from 'node:assert/strict'
import { test } from 'node:test'
import { OutputCapture } from '../../src/stdio/output-capture.ts'
import { assertSame, pattern } from '../support/pattern.ts'

test('keeps bytes of many chunks, also when their memory is used again', () => {
  const capture = new OutputCapture()
  const expected = pattern(300_000)
  const shared = Buffer.alloc(7)
  for (let at = 0; at < expected.length; at += 7) {
    const length = expected.copy(shared, 0, at)
    assert.equal(capture.write(shared.subarray(0, length)), true)
  }
  capture.end()
  assertSame(capture.bytes, expected)
  assert.equal(capture.truncated, false)
})

test('keeps the first 16 MiB and throws the rest away', () => {
  const capture = new OutputCapture()
  const chunk = Buffer.alloc(1_000_000, 'a')
  for (let i = 0; i < 40; i++) assert.equal(capture.write(chunk), true)
  assert.equal(capture.bytes.length, 16 * 1024 * 1024)
  assert.equal(capture.truncated, true)
})

test('is empty without output, and not truncated by exactly its limit', () => {
  const capture = new OutputCapture(4)
  assert.equal(capture.bytes.length, 0)
  capture.write(Buffer.from('abcd'))
  assert.equal(capture.truncated, false)
  capture.write(Buffer.from('e'))
  assert.deepEqual([capture.bytes.toString(), capture.truncated], ['abcd', true])
})
