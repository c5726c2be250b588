// The reader on hand-made messages: what it must follow, and what it must refuse.

import assert from 'node:assert/strict'
import { describe, test } from 'node:test'
import { MonitorError } from '../../src/base/errors.ts'
import { MAX_MESSAGE_VALUES } from '../../src/base/limits.ts'
import type { StructTable } from '../../src/capnp/schema.ts'
import { StructReader } from '../../src/capnp/struct-reader.ts'
import { LogDriver, VersionRequest } from '../../src/generated/conmon.ts'

/** A message of these segments, each given as words of [low, high]. */
function message(...segments: (readonly [number, number])[][]): Buffer[] {
  return segments.map((words) => {
    const bytes = Buffer.alloc(words.length * 8)
    words.forEach(([low, high], i) => {
      bytes.writeUInt32LE(low >>> 0, i * 8)
      bytes.writeUInt32LE(high >>> 0, i * 8 + 4)
    })
    return bytes
  })
}

function read<T>(table: StructTable<T>, segments: Buffer[]): T {
  const reader = new StructReader(segments)
  return reader.struct(table, reader.root())
}

/** A struct pointer to the next word. */
const here = (dataWords: number, pointers: number): [number, number] => [0, dataWords | (pointers << 16)]
/** A list pointer `words` further on. */
const list = (words: number, size: number, count: number): [number, number] => [
  (words << 2) | 1,
  (count << 3) | size,
]
const far = (pad: number, segment: number, double = 0): [number, number] => [
  (pad << 3) | (double << 2) | 2,
  segment,
]
const ab: [number, number] = [0x6261, 0]

describe('the reader', () => {
  test('follows far and double-far pointers, backwards too', () => {
    const direct = message([here(2, 1), [2, 0], [7, 0], list(0, 2, 3), ab])
    const expected: LogDriver = { type: 'journald', maxSize: 7n, path: 'ab' }
    assert.deepEqual(read(LogDriver, direct), expected)
    const single = message(
      [far(3, 1)],
      [[2, 0], [7, 0], far(0, 2), [(-4 << 2) | 0, 2 | (1 << 16)]],
      [list(0, 2, 3), ab],
    )
    assert.deepEqual(read(LogDriver, single), expected)
    const double = message(
      [far(0, 1, 1)],
      [far(0, 2), here(2, 1)],
      [[2, 0], [7, 0], far(0, 3, 1)],
      [far(2, 3), [1, (3 << 3) | 2], ab],
    )
    assert.deepEqual(read(LogDriver, double), expected)
  })

  test('gives defaults where an older writer stopped', () => {
    assert.deepEqual(read(LogDriver, message([here(1, 0), [1, 0]])), { type: 'json', path: '', maxSize: 0n })
    assert.deepEqual(read(LogDriver, message([[0, 0]])), {
      type: 'containerRuntimeInterface',
      path: '',
      maxSize: 0n,
    })
  })

  test('ignores what a newer writer added', () => {
    const newer = message([here(3, 2), [1, 0], [5, 0], [9, 9], list(1, 2, 3), list(9, 7, 9), ab])
    assert.deepEqual(read(LogDriver, newer), { type: 'json', path: 'ab', maxSize: 5n })
  })

  test('skips the pointer that the older layout has', () => {
    const old = message([here(1, 2), [1, 0], list(2, 2, 8), list(2, 7, 0), [0, 0], [0, 0], [0, 2 << 16]])
    assert.deepEqual(read(VersionRequest, old), { verbose: true, metadata: [] })
  })

  const malformed: { title: string; table?: StructTable<unknown>; segments: Buffer[]; message: RegExp }[] = [
    { title: 'no root', segments: message([]), message: /outside its segment/ },
    {
      title: 'a struct beyond its segment',
      segments: message([here(2, 1), [0, 0]]),
      message: /leaves its segment/,
    },
    {
      title: 'a struct before its segment',
      segments: message([[(-9 << 2) | 0, 1]]),
      message: /leaves its segment/,
    },
    {
      title: 'a list where a struct is due',
      segments: message([list(0, 2, 8), [0, 0]]),
      message: /not a struct/,
    },
    { title: 'a capability where a struct is due', segments: message([[3, 0]]), message: /not a struct/ },
    { title: 'a pointer of an unknown kind', segments: message([[7, 0]]), message: /unknown kind/ },
    { title: 'a far pointer to no segment', segments: message([far(0, 1)]), message: /not there/ },
    {
      title: 'a far pointer beyond its segment',
      segments: message([far(1, 1)], [[0, 0]]),
      message: /outside/,
    },
    {
      title: 'a far pointer to a far pointer',
      segments: message([far(0, 1)], [far(0, 0)]),
      message: /far pointer/,
    },
    { title: 'a far pointer to itself', segments: message([far(0, 0)]), message: /far pointer/ },
    {
      title: 'a double-far pad that is none',
      segments: message(
        [far(0, 1, 1)],
        [
          [1, 0],
          [0, 0],
        ],
      ),
      message: /landing pad/,
    },
    {
      title: 'a double-far tag with an offset',
      segments: message([far(0, 1, 1)], [far(0, 1), [4, 0]]),
      message: /landing pad/,
    },
    {
      title: 'a text without its NUL',
      segments: message([here(2, 1), [0, 0], [0, 0], list(0, 2, 2), ab]),
      message: /NUL/,
    },
    {
      title: 'a text of no bytes',
      segments: message([here(2, 1), [0, 0], [0, 0], list(0, 2, 0)]),
      message: /NUL/,
    },
    {
      title: 'a text that is a struct',
      segments: message([here(2, 1), [0, 0], [0, 0], here(1, 0), ab]),
      message: /path is not a list of bytes/,
    },
    {
      title: 'a text of words',
      segments: message([here(2, 1), [0, 0], [0, 0], list(0, 5, 1), ab]),
      message: /not a list of bytes/,
    },
    {
      title: 'a text that is not UTF-8',
      segments: message([here(2, 1), [0, 0], [0, 0], list(0, 2, 3), [0x28c3, 0]]),
      message: /path is not valid UTF-8/,
    },
    {
      title: 'a text beyond its segment',
      segments: message([here(2, 1), [0, 0], [0, 0], list(0, 2, 9), ab]),
      message: /leaves/,
    },
    {
      title: 'an enum that is not there',
      segments: message([here(1, 0), [9, 0]]),
      message: /type has the unknown value 9/,
    },
    {
      title: 'a list of bytes where structs are due',
      table: VersionRequest,
      segments: message([here(1, 1), [0, 0], list(0, 2, 8), ab]),
      message: /metadata is not a list of structs/,
    },
    {
      title: 'a tag that claims more than the list has',
      table: VersionRequest,
      segments: message([here(1, 1), [0, 0], list(0, 7, 1), [2 << 2, 1 << 16], [0, 0]]),
      message: /list tag/,
    },
    {
      title: 'a tag of another kind',
      table: VersionRequest,
      segments: message([here(1, 1), [0, 0], list(0, 7, 0), [1, 0]]),
      message: /list tag/,
    },
    {
      title: '2^28 elements of no size',
      table: VersionRequest,
      segments: message([here(1, 1), [0, 0], list(0, 7, 0), [(2 ** 28) << 2, 0]]),
      message: /more than \d+ values/,
    },
    {
      title: 'objects that are one',
      table: { name: 'Aliases', dataWords: 0, pointers: 64, fields: aliases(64) },
      segments: message([
        here(0, 64),
        ...Array.from({ length: 64 }, (_, i) => list(63 - i, 2, 800)),
        ...zeros(100),
      ]),
      message: /overlap/,
    },
  ]
  for (const { title, table = LogDriver, segments, message: pattern } of malformed) {
    test(`refuses ${title}`, () => {
      assert.throws(
        () => read(table, segments),
        (error) => {
          assert.ok(error instanceof MonitorError)
          assert.equal(error.code, 'invalid-argument')
          assert.match(error.message, pattern)
          return true
        },
      )
    })
  }

  test('bounds the number of values, not only of bytes', () => {
    const elements = MAX_MESSAGE_VALUES + 1
    const segments = message([here(1, 1), [0, 0], list(0, 7, 0), [elements << 2, 0]])
    assert.throws(() => read(VersionRequest, segments), /more than/)
  })
})

function aliases(count: number): StructTable<unknown>['fields'] {
  return Array.from({ length: count }, (_, offset) => ({ name: `f${offset}`, kind: 'data' as const, offset }))
}

function zeros(count: number): [number, number][] {
  return Array.from({ length: count }, () => [0, 0])
}
