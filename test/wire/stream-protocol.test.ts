import assert from 'node:assert/strict'
import { test } from 'node:test'
import { chooseProtocol, spdyProtocols, splitHeader } from '../../src/wire/stream-protocol.ts'
import { checkLeaks } from '../support/leak-check.ts'

checkLeaks()

test('reads header lines and lists as one list in order', () => {
  assert.deepEqual(splitHeader(undefined), [])
  assert.deepEqual(splitHeader(['', ' , ,']), [])
  assert.deepEqual(
    splitHeader(['v4.channel.k8s.io, v3.channel.k8s.io,v2.channel.k8s.io ,', 'channel.k8s.io']),
    ['v4.channel.k8s.io', 'v3.channel.k8s.io', 'v2.channel.k8s.io', 'channel.k8s.io'],
  )
})

const choose = (...names: string[]) => chooseProtocol(names, spdyProtocols)?.name

test('chooses the first of the client that the server has', () => {
  assert.equal(choose('v5.channel.k8s.io', 'v4.channel.k8s.io', 'v3.channel.k8s.io'), 'v4.channel.k8s.io')
  assert.equal(choose('channel.k8s.io', 'v4.channel.k8s.io'), 'channel.k8s.io')
  assert.equal(choose('v9', 'V4.CHANNEL.K8S.IO'), undefined)
  assert.equal(choose(), undefined)
})
