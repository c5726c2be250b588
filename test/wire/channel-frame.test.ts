import assert from 'node:assert/strict'
import { test } from 'node:test'
import {
  base64Frame,
  channelFrame,
  channelHeader,
  maxMessagePayload,
  parseChannelMessage,
} from '../../src/wire/channel-frame.ts'
import { checkLeaks } from '../support/leak-check.ts'

checkLeaks()

test('frames a message with the shortest length that fits', () => {
  assert.equal(channelFrame(1, Buffer.alloc(0)).toString('hex'), '820101')
  assert.equal(channelFrame(2, Buffer.from('hello')).toString('hex'), '82060268656c6c6f')
  assert.equal(channelHeader(1, 124).toString('hex'), '827d01')
  assert.equal(channelHeader(1, 125).toString('hex'), '827e007e01')
  assert.equal(channelHeader(1, maxMessagePayload).toString('hex'), '827e800101')
})

test('frames base64 as text', () => {
  assert.equal(
    base64Frame(1, Buffer.from('hello')).toString('hex'),
    `81093161${Buffer.from('GVsbG8=').toString('hex')}`,
  )
  assert.equal(base64Frame(3, Buffer.alloc(maxMessagePayload)).length, 4 + 1 + 43692)
})

const parse = (hex: string) => parseChannelMessage(Buffer.from(hex, 'hex'), false)
const parseText = (text: string) => parseChannelMessage(Buffer.from(text), true)

test('takes messages apart', () => {
  assert.equal(parse(''), undefined)
  assert.deepEqual(parse('00'), { channel: 0, payload: Buffer.alloc(0) })
  assert.deepEqual(parse('ff00'), { channel: 255, payload: Buffer.from([0]) })
  assert.deepEqual(parse('0461'), { channel: 4, payload: Buffer.from('a') })
})

test('takes base64 messages apart and drops what is none', () => {
  assert.deepEqual(parseText('0aGVsbG8='), { channel: 0, payload: Buffer.from('hello') })
  assert.deepEqual(parseText('4'), { channel: 4, payload: Buffer.alloc(0) })
  for (const bad of ['', '0aGVsbG8', '0a=Vs', '0aG-s', '0 aGVs', '0aGVs\n', 'xaGVs', '\xff']) {
    assert.equal(parseText(bad), undefined, bad)
  }
})
