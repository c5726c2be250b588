// The codec against the `capnp` command, against hand-made messages, and against itself.

import assert from 'node:assert/strict'
import { execFileSync } from 'node:child_process'
import { resolve } from 'node:path'
import { describe, test } from 'node:test'
import fc from 'fast-check'
import { MonitorError } from '../../src/base/errors.ts'
import { MAX_MESSAGE_VALUES } from '../../src/base/limits.ts'
import { MessageFramer } from '../../src/capnp/message-framing.ts'
import type { Init, StructTable } from '../../src/capnp/schema.ts'
import { encodeMessage } from '../../src/capnp/struct-builder.ts'
import { StructReader } from '../../src/capnp/struct-reader.ts'
import {
  CreateContainerRequest,
  CreateNamespacesRequest,
  ExecSyncContainerResponse,
  LogDriver,
  VersionRequest,
} from '../../src/generated/conmon.ts'
import {
  ContainerInfo,
  ListContainersResponse,
  ServePortForwardRequest,
} from '../../src/generated/holdfast.ts'

const proto = resolve(import.meta.dirname, '../../../proto')

function decode<T>(table: StructTable<T>, bytes: Buffer): T {
  const framer = new MessageFramer(2 ** 26)
  framer.push(bytes)
  const reader = new StructReader(framer.next() ?? [])
  return reader.struct(table, reader.root())
}

function encode<T>(table: StructTable<T>, value: Init<T>): Buffer {
  return Buffer.concat(encodeMessage(table, value))
}

/** The `capnp` command converts. */
function convert(formats: string, type: string, input: Buffer | string): Buffer {
  const file = type.startsWith('Holdfast') ? 'holdfast.capnp' : 'conmon.capnp'
  return execFileSync('capnp', ['convert', formats, `${proto}/${file}`, type], { input })
}

const fullRequest: CreateContainerRequest = {
  id: 'c \u2603 \u{1f600}',
  bundlePath: '/bundle',
  terminal: true,
  stdin: false,
  exitPaths: ['/e', '', 'x'.repeat(100)],
  oomExitPaths: [],
  logDrivers: [
    { type: 'journald', path: '', maxSize: 2n ** 64n - 1n },
    { type: 'containerRuntimeInterface', path: '/log', maxSize: 0n },
  ],
  cleanupCmd: ['a'],
  globalArgs: ['b', 'c'],
  commandArgs: [],
  metadata: [{ key: 'k', value: '' }],
  envVars: [{ key: '', value: 'v' }],
  cgroupManager: 'cgroupfs',
  additionalFds: [1n, 2n ** 63n],
  leakFds: [0n],
}

describe('the codec and the capnp command agree', () => {
  const requestJson = {
    ...fullRequest,
    logDrivers: fullRequest.logDrivers.map((driver) => ({ ...driver, maxSize: String(driver.maxSize) })),
    additionalFds: fullRequest.additionalFds.map(String),
    leakFds: ['0'],
  }

  test('on what we write', () => {
    const text = convert(
      'binary:json',
      'Conmon.CreateContainerRequest',
      encode(CreateContainerRequest, fullRequest),
    )
    // Empty lists are null pointers, which the command leaves out.
    const { oomExitPaths: _, commandArgs: __, ...present } = requestJson
    assert.deepEqual(JSON.parse(text.toString()), { ...present, metadataOld: null })
  })

  test('on what we read', () => {
    const bytes = convert('json:binary', 'Conmon.CreateContainerRequest', JSON.stringify(requestJson))
    assert.deepEqual(decode(CreateContainerRequest, bytes), fullRequest)
  })

  test('on lists of small numbers and of structs with holes', () => {
    const forward = { netnsPath: '/n', podSandboxId: '', ports: [1, 65535, 80] }
    const json = convert(
      'binary:json',
      'Holdfast.ServePortForwardRequest',
      encode(ServePortForwardRequest, forward),
    )
    assert.deepEqual(JSON.parse(json.toString()).ports, [1, 65535, 80])
    const containers: ContainerInfo[] = [
      { id: 'a', pid: 2 ** 32 - 1, state: 'exited', exitCode: -(2 ** 31), terminal: true, sessions: 3 },
      { id: 'b', pid: 0, state: 'creating', exitCode: 0, terminal: false, sessions: 0 },
    ]
    const text = JSON.stringify({ containers })
    assert.deepEqual(
      decode(ListContainersResponse, convert('json:binary', 'Holdfast.ListContainersResponse', text)),
      { containers },
    )
    const back = convert(
      'binary:json',
      'Holdfast.ListContainersResponse',
      encode(ListContainersResponse, { containers }),
    )
    assert.deepEqual(JSON.parse(back.toString()).containers[0], containers[0])
  })

  test('on a list of enums', () => {
    const namespaces = { namespaces: ['uts', 'ipc', 'user'] as const, podId: 'p' }
    const json = convert(
      'binary:json',
      'Conmon.CreateNamespacesRequest',
      encode(CreateNamespacesRequest, namespaces),
    )
    assert.deepEqual(JSON.parse(json.toString()).namespaces, namespaces.namespaces)
  })
})

const anyText = fc.string({ unit: 'binary', maxLength: 40 }).map((text) => text.toWellFormed())
const anyEntry = fc.record({ key: anyText, value: anyText })
const anyUint64 = fc.bigInt({ min: 0n, max: 2n ** 64n - 1n })
const anyRequest: fc.Arbitrary<CreateContainerRequest> = fc.record({
  id: anyText,
  bundlePath: anyText,
  terminal: fc.boolean(),
  stdin: fc.boolean(),
  exitPaths: fc.array(anyText),
  oomExitPaths: fc.array(anyText),
  logDrivers: fc.array(
    fc.record({
      type: fc.constantFrom('containerRuntimeInterface', 'json', 'journald'),
      path: anyText,
      maxSize: anyUint64,
    }),
  ),
  cleanupCmd: fc.array(anyText),
  globalArgs: fc.array(anyText),
  commandArgs: fc.array(anyText),
  metadata: fc.array(anyEntry),
  envVars: fc.array(anyEntry),
  cgroupManager: fc.constantFrom('systemd', 'cgroupfs'),
  additionalFds: fc.array(anyUint64),
  leakFds: fc.array(anyUint64),
})

describe('the codec', () => {
  test('reads back what it wrote', () => {
    const roundTrip = (request: CreateContainerRequest): void =>
      assert.deepEqual(decode(CreateContainerRequest, encode(CreateContainerRequest, request)), request)
    fc.assert(fc.property(anyRequest, roundTrip), { seed: 1, numRuns: 300 })
  })

  test('gives large data a segment of its own, without a copy', () => {
    const stdout = Buffer.alloc(100_001, 'o')
    const stderr = Buffer.alloc(32 * 1024, 'e')
    const parts = encodeMessage(ExecSyncContainerResponse, { exitCode: 1, stdout, stderr })
    assert.ok(parts.some((part) => part.buffer === stdout.buffer && part.byteOffset === stdout.byteOffset))
    const expected = { exitCode: 1, timedOut: false, stdout, stderr }
    assert.deepEqual(decode(ExecSyncContainerResponse, Buffer.concat(parts)), expected)
  })

  test('writes an empty struct as a pointer that is not null', () => {
    const bytes = encode({ name: 'Empty', dataWords: 0, pointers: 0, fields: [] }, {})
    assert.equal(bytes.toString('hex'), '0000000001000000fcffffff00000000')
  })

  test('leaves empty texts, data and lists null', () => {
    const bytes = encode(LogDriver, { type: 'containerRuntimeInterface', path: '', maxSize: 0n })
    assert.equal(
      bytes.subarray(8).toString('hex'),
      `00000000 02000100 ${'00'.repeat(24)}`.replaceAll(' ', ''),
    )
  })

  const unwritable = [
    { title: 'a pid below zero', write: () => encode(ContainerInfo, { pid: -1 }) },
    { title: 'a fraction', write: () => encode(ContainerInfo, { exitCode: 0.5 }) },
    { title: 'not a number', write: () => encode(ContainerInfo, { sessions: NaN }) },
    { title: 'a number beyond 64 bits', write: () => encode(LogDriver, { maxSize: 2n ** 64n }) },
    { title: 'a bigint below zero', write: () => encode(LogDriver, { maxSize: -1n }) },
    { title: 'a name that the enum has not', write: () => encode(LogDriver, { type: 'syslog' as 'json' }) },
    { title: 'a port beyond 16 bits', write: () => encode(ServePortForwardRequest, { ports: [65536] }) },
  ]
  for (const { title, write } of unwritable) {
    test(`refuses to write ${title}`, () => {
      assert.throws(write, (error) => error instanceof MonitorError && error.code === 'invalid-argument')
    })
  }
})

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
      segments: message([here(2, 1), [0, 0], [0, 0], here(0, 0)]),
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
