// The codec against the `capnp` command and against itself.

import assert from 'node:assert/strict'
import { execFileSync } from 'node:child_process'
import { resolve } from 'node:path'
import { describe, test } from 'node:test'
import * as fc from 'fast-check'
import { MonitorError } from '../../src/base/errors.ts'
import { MessageFramer } from '../../src/capnp/message-framing.ts'
import type { Init, StructTable } from '../../src/capnp/schema.ts'
import { encodeMessage } from '../../src/capnp/struct-builder.ts'
import { StructReader } from '../../src/capnp/struct-reader.ts'
import {
  CreateContainerRequest,
  CreateNamespacesRequest,
  ExecSyncContainerResponse,
  LogDriver,
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
    { type: 'journald', path: '/j', maxSize: 2n ** 64n - 1n },
    { type: 'containerRuntimeInterface', path: '/log', maxSize: 0n },
  ],
  cleanupCmd: ['a'],
  globalArgs: ['b', 'c'],
  commandArgs: [],
  metadata: [{ key: 'k', value: 'w' }],
  envVars: [{ key: 'K', value: 'v' }],
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

const anyText = fc.string({ unit: 'binary', maxLength: 40 }).map((text) => Buffer.from(text).toString())
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

function roundTrip(request: CreateContainerRequest): void {
  const plain = structuredClone(request)
  assert.deepEqual(decode(CreateContainerRequest, encode(CreateContainerRequest, request)), plain)
}

describe('the codec', () => {
  test('reads back what it wrote', () => {
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
