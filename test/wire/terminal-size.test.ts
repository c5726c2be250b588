import assert from 'node:assert/strict'
import { test } from 'node:test'
import { TerminalSizeReader } from '../../src/wire/terminal-size.ts'
import { checkLeaks } from '../support/leak-check.ts'

checkLeaks()

function read(...chunks: (string | Buffer)[]): string[] {
  const reader = new TerminalSizeReader()
  return chunks
    .flatMap((chunk) => reader.read(Buffer.from(chunk)))
    .map(({ width, height }) => `${width}x${height}`)
}

test('reads objects one after the other, with and without newlines', () => {
  const text = '{"Width":81,"Height":25}\n{"Width":82,"Height":26}{"height":1,"WIDTH":2, "x": {"y": "}"}}'
  assert.deepEqual(read(text), ['81x25', '82x26', '2x1'])
})

test('reads the same sizes wherever the bytes are split', () => {
  const text = Buffer.from('{"Width":81,"Height":25}\n\n{"Width":65535,"Height":65535}\n')
  for (let i = 0; i <= text.length; i++) {
    assert.deepEqual(read(text.subarray(0, i), text.subarray(i)), ['81x25', '65535x65535'], `split at ${i}`)
  }
  assert.deepEqual(read(...[...text].map((byte) => Buffer.from([byte]))), ['81x25', '65535x65535'])
})

test('skips values that no terminal can have, and goes on', () => {
  const bad = ['0', '-1', '1.5', '65536', 'null', '"80"', '[]'].map(
    (value) => `{"Width":${value},"Height":25}`,
  )
  assert.deepEqual(read(bad.join('\n'), '{"Width":1}', '{}', '{"Width":7,"Height":8}'), ['7x8'])
})

test('stops at the first syntax error', () => {
  const good = '{"Width":7,"Height":8}'
  for (const bad of ['x', '{x}', '[1]', '}', '7', '{"Width":7,}', '"']) {
    assert.deepEqual(read(good + bad, good), ['7x8'], bad)
  }
})

test('stops at an object without an end', () => {
  assert.deepEqual(read(`{"Width":"${'x'.repeat(5000)}`, '"}', '{"Width":7,"Height":8}'), [])
  assert.deepEqual(read(Buffer.alloc(70_000, '{"Width":7,"Height":8}')), [])
})
