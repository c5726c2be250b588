// No argument crashes the process or leaves a descriptor open.

import assert from 'node:assert/strict'
import { closeSync, existsSync, mkdtempSync, readdirSync, rmSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { after, before, test } from 'node:test'
import * as addon from '../../src/native/addon.ts'
import { checkLeaks } from '../support/leak-check.ts'

checkLeaks()

// Good names among the bad arguments make sockets and files: here.
const directory = mkdtempSync(join(tmpdir(), 'holdfast-arguments-'))
const start = process.cwd()
before(() => process.chdir(directory))
after(() => {
  process.chdir(start)
  rmSync(directory, { recursive: true })
})

const bad: readonly unknown[] = [
  undefined,
  null,
  'text',
  '',
  'with\0nul',
  -1,
  1.5,
  NaN,
  Infinity,
  2 ** 31,
  999_999,
  10n,
  Symbol('s'),
  {},
  [],
  [1, 'x'],
  [-1],
  Array(254).fill(999_999),
  [Buffer.alloc(1), 3],
  () => undefined,
  Buffer.alloc(0),
  Buffer.alloc(8),
  new Uint16Array(4),
  new DataView(new ArrayBuffer(4)),
  new Proxy({}, { get: () => assert.fail('touched') }),
  Object.create(null),
]
const harmless = new Set(['dropText', 'mallocTrim', 'eventfd', 'pipe2', 'socketpair'])

for (const [name, call] of Object.entries(addon) as [string, (...args: unknown[]) => unknown][]) {
  if (harmless.has(name)) continue
  test(`${name} takes or refuses any argument and leaves no descriptor open`, () => {
    const before = readdirSync('/proc/self/fd').length
    for (const first of bad) {
      for (const second of bad) {
        for (const third of [undefined, -1, 'x', [], Buffer.alloc(1)]) attempt(call, [first, second, third])
      }
    }
    assert.equal(readdirSync('/proc/self/fd').length, before)
  })
}

test('a value of the wrong type is a TypeError, a number out of range a RangeError', () => {
  assert.throws(() => addon.read('3' as never, Buffer.alloc(1)), {
    name: 'TypeError',
    code: 'ERR_INVALID_ARG_TYPE',
  })
  assert.throws(() => addon.read(-1, Buffer.alloc(1)), { name: 'RangeError', code: 'ERR_OUT_OF_RANGE' })
  assert.throws(() => addon.write(999_999, Buffer.alloc(1), 2), { name: 'RangeError' })
  assert.throws(() => addon.unpoll({} as never), {
    name: 'TypeError',
    message: 'argument must be a poll handle',
  })
})

test('arguments that change while they are read do no harm', () => {
  const [a, b] = addon.socketpair()
  const data = new Uint8Array(new ArrayBuffer(1 << 20))
  const fds = [a]
  Object.defineProperty(fds, 0, {
    get: () => {
      structuredClone(data.buffer, { transfer: [data.buffer] })
      return a
    },
  })
  assert.equal(addon.sendFds(a, data, fds), 0)
  closeSync(a)
  closeSync(b)
})

function attempt(call: (...args: unknown[]) => unknown, args: readonly unknown[]): void {
  let result: unknown
  try {
    result = call(...args)
  } catch (error) {
    assert.ok(error instanceof Error)
    return
  }
  // A name or an empty list is a good argument to some: what was made is taken back.
  if (typeof result === 'number' && result > 2 && existsSync(`/proc/self/fd/${result}`)) closeSync(result)
  if (args[0] === 'text') rmSync('text', { force: true })
}
