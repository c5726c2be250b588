// The pattern of fixtures/emit.c, for comparison.

import assert from 'node:assert/strict'
import { fixtureProgram } from './fixture-program.ts'

/** The command that writes `bytes` of the pattern. */
export function emit(bytes: number): readonly string[] {
  return [fixtureProgram('emit'), String(bytes)]
}

/** The pattern itself. */
export function pattern(bytes: number): Buffer {
  const buffer = Buffer.alloc(bytes)
  for (let i = 0; i < bytes; i++) buffer[i] = (i % 251) * 7 + Math.floor(i / 65536)
  return buffer
}

/** Equal to the last byte; on failure says where they part instead of printing megabytes. */
export function assertSame(actual: Buffer, expected: Buffer): void {
  if (actual.equals(expected)) return
  let at = 0
  while (at < actual.length && actual[at] === expected[at]) at++
  assert.fail(`got ${actual.length} bytes, wanted ${expected.length}; they part at ${at}`)
}
