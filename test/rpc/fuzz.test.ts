import assert from 'node:assert/strict'
import { test } from 'node:test'
import { checkLeaks } from '../support/leak-check.ts'
import { fuzz, fuzzClient } from './fuzz.ts'

checkLeaks()

test('survives 8,000 mutated messages without a stall or a leak', { timeout: 300_000 }, async () => {
  const { worstMs, worst, grownBytes, connections } = await fuzz(8_000, 42)
  assert.ok(worstMs < 250, `${worstMs} ms of CPU for ${worst.toString('hex')}`)
  assert.ok(grownBytes < 8 * 2 ** 20, `${grownBytes} bytes kept`)
  assert.equal(connections, 0)
})

test('settles every call whose reply was mutated', { timeout: 300_000 }, async () => {
  const cases = 2_000
  const answered = await fuzzClient(cases, 42)
  assert.ok(answered > 0 && answered < cases, `${answered} answered`)
})
