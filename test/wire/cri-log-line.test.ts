import assert from 'node:assert/strict'
import { describe, test } from 'node:test'
import { parseCriLogLine } from '../../src/wire/cri-log-line.ts'

const time = '2026-11-30T06:37:21.022626000+00:00'

describe('a line of a CRI log', () => {
  for (const [line, stream, partial, content] of [
    [`${time} stdout F hello world`, 'stdout', false, 'hello world'],
    [`${time} stderr P cut`, 'stderr', true, 'cut'],
    [`${time} stdout F `, 'stdout', false, ''],
    [`${time} stdout F  two spaces `, 'stdout', false, ' two spaces '],
    [`2026-11-30T06:37:21.02Z stdout F \xff\x00`, 'stdout', false, '\xff\x00'],
  ] as const) {
    test(`${JSON.stringify(line)} is read`, () => {
      const entry = parseCriLogLine(Buffer.from(line, 'latin1'))
      assert.deepEqual(entry && { ...entry, content: entry.content.toString('latin1') }, {
        stream,
        partial,
        content,
      })
    })
  }

  for (const line of [
    '',
    'word',
    time,
    `${time} stdout`,
    `${time} stdout F`,
    `${time} stdin F x`,
    `${time} stdout X x`,
    ' stdout F x',
  ]) {
    test(`${JSON.stringify(line)} is none`, () => {
      assert.equal(parseCriLogLine(Buffer.from(line)), undefined)
    })
  }
})
