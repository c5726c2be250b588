// The keeper's numbers are the client's.

import assert from 'node:assert/strict'
import { readFileSync } from 'node:fs'
import { join } from 'node:path'
import { test } from 'node:test'
import {
  decodeExit,
  decodeMessage,
  encodeMessage,
  flag,
  maskOf,
  signalsOf,
  state,
  toKeeper,
  toServer,
} from '../../src/keeper/channel-messages.ts'
import { repository } from './monitor.ts'

const source = readFileSync(join(repository, 'src/keeper/protocol.h'), 'utf8')
const drawn = readFileSync(join(repository, 'src/keeper/PROTOCOL.md'), 'utf8')
const numbers = new Map(
  [...source.matchAll(/^ {2}([A-Z_]+) = (\w+),$/gm)].map((match) => [match[1], Number(match[2])]),
)

for (const [prefix, table] of [
  ['', toKeeper],
  ['', toServer],
  ['FLAG_', flag],
  ['STATE_', state],
] as const) {
  for (const [name, value] of Object.entries(table)) {
    test(`${prefix}${name} is ${value} in protocol.h`, () => {
      assert.equal(numbers.get(`${prefix}${name}`), value)
    })
  }
}

test('protocol.h has no message and no flag that the client lacks', () => {
  const known = { ...toKeeper, ...toServer }
  for (const [name, value] of numbers) {
    if (name === undefined || /^(PROTOCOL|CHANNEL|MAX)_/.test(name)) continue
    if (name.startsWith('FLAG_')) assert.ok(name.slice(5) in flag, name)
    else if (name.startsWith('STATE_')) assert.ok(name.slice(6) in state, name)
    else assert.equal(known[name as keyof typeof known], value, name)
  }
})

test('PROTOCOL.md names every message with its number, and every flag', () => {
  for (const [name, value] of Object.entries({ ...toKeeper, ...toServer }))
    assert.match(drawn, new RegExp(`^\\| ${value} +\\| \`${name.toLowerCase()}\` `, 'm'))
  for (const value of Object.values(flag))
    assert.ok(drawn.includes(`0x${value.toString(16)}`), value.toString(16))
})

test('a message has its fields where PROTOCOL.md draws them', () => {
  const bytes = encodeMessage(
    {
      type: 4,
      flags: 0x1234,
      name: 'ab',
      c: 0x01020304,
      a: 5n,
      b: 0x0807060504030201n,
      payload: Buffer.from('xyz'),
      fds: [1, 2],
    },
    0x0a0b0c0d,
  )
  const hex = '0400 3412 0200 0200 0d0c0b0a 04030201 0500000000000000 0102030405060708 6162 78797a'
  assert.equal(bytes.toString('hex'), hex.replaceAll(' ', ''))
  const message = decodeMessage(bytes)
  assert.equal(message?.name, 'ab')
  assert.equal(message?.payload.toString(), 'xyz')
  assert.equal(message?.b, 0x0807060504030201n)
})

test('what is too short is no message', () => {
  const bytes = encodeMessage({ type: 1, name: 'name' }, 1)
  for (let length = 0; length < bytes.length; length++)
    assert.equal(decodeMessage(bytes.subarray(0, length)), undefined)
})

test('wait statuses are exit codes or signals', () => {
  for (const [status, expected] of [
    [0, { code: 0 }],
    [42 << 8, { code: 42 }],
    [255 << 8, { code: 255 }],
    [9, { signal: 9 }],
    [11 | 0x80, { signal: 11 }],
  ] as const) {
    const payload = Buffer.alloc(8)
    const exit = decodeExit({
      type: 65,
      flags: 0,
      tag: 0,
      c: 0,
      a: 1n,
      b: (BigInt(status) << 32n) | 77n,
      name: '',
      payload,
    })
    assert.deepEqual([exit.pid, exit.status], [77, expected])
  }
})

test('signals are a mask', () => {
  assert.deepEqual(signalsOf(maskOf([2, 15, 10])), [2, 10, 15])
})
