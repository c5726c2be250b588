import assert from 'node:assert/strict'
import { test } from 'node:test'
import { decodeStatus, encodeStatus, type SessionOutcome } from '../../src/wire/remote-status.ts'
import { checkLeaks } from '../support/leak-check.ts'

checkLeaks()

const json = (outcome: SessionOutcome) => encodeStatus(outcome, true).toString()
const read = (text: string) => decodeStatus(Buffer.from(text))
const exit7 = { kind: 'exited', status: { code: 7 } } as const

test('writes the JSON of k8s.io/cri-streaming', () => {
  assert.equal(json({ kind: 'success' }), '{"status":"Success"}')
  assert.equal(json({ kind: 'exited', status: { code: 0 } }), '{"status":"Success"}')
  assert.equal(
    json(exit7),
    '{"status":"Failure","message":"command terminated with non-zero exit code: exit status 7",' +
      '"reason":"NonZeroExitCode","details":{"causes":[{"reason":"ExitCode","message":"7"}]}}',
  )
  assert.equal(
    json({ kind: 'failed', message: 'error executing command in container: no' }),
    '{"status":"Failure","message":"Internal error occurred: error executing command in container: no",' +
      '"reason":"InternalError","code":500}',
  )
})

test('shows a death by signal as 128 and the signal', () => {
  const payload = encodeStatus({ kind: 'exited', status: { signal: 9 } }, true)
  assert.deepEqual(decodeStatus(payload), { kind: 'exited', status: { code: 137 } })
})

test('writes nothing for a success, and the message alone for a failure, as text', () => {
  assert.equal(encodeStatus({ kind: 'success' }, false).length, 0)
  assert.equal(
    encodeStatus(exit7, false).toString(),
    'command terminated with non-zero exit code: exit status 7',
  )
})

test('cuts long messages and replaces what is not Unicode', () => {
  const message = `${'x'.repeat(4000)}\ud800${'\ud83d\ude00'.repeat(5000)}`
  const text = encodeStatus({ kind: 'failed', message }, true).toString()
  assert.ok(text.length < 4300)
  const parsed = JSON.parse(text) as { message: string }
  assert.ok(!/[\ud800-\udbff](?![\udc00-\udfff])|(?<![\ud800-\udbff])[\udc00-\udfff]/.test(parsed.message))
  assert.ok(parsed.message.includes('x\ufffd'))
})

test('reads statuses of all writers', () => {
  assert.deepEqual(read(' {"metadata":{},"status":"Success"}'), { kind: 'success' })
  assert.deepEqual(read(` ${encodeStatus(exit7, true).toString()}\n`), exit7)
  for (const bad of ['256', '-1', '', '1e1', 'x']) {
    const status = {
      status: 'Failure',
      message: 'm',
      reason: 'NonZeroExitCode',
      details: { causes: [{ reason: 'ExitCode', message: bad }] },
    }
    assert.deepEqual(read(JSON.stringify(status)), { kind: 'failed', message: 'm' }, bad)
  }
})

test('takes a cut or empty status for a failure', () => {
  for (const text of [
    '',
    ' ',
    ' {"status":"Suc',
    'null',
    '7',
    '{}',
    '{"status":"Failure","details":{"causes":7}}',
  ]) {
    assert.equal(decodeStatus(Buffer.from(text)).kind, 'failed', text)
  }
})
