import assert from 'node:assert/strict'
import { test } from 'node:test'
import { conclude, type SessionEnd } from '../../src/cli/session-end.ts'
import { formatAge, formatTable } from '../../src/cli/table.ts'
import { parsePortPair } from '../../src/cli/port-forward-command.ts'

const ends: [string, SessionEnd, number, RegExp][] = [
  ['success', { kind: 'success' }, 0, /^$/],
  ['an exit code', { kind: 'exited', status: { code: 7 } }, 7, /^$/],
  ['a signal', { kind: 'exited', status: { signal: 9 } }, 137, /^$/],
  ['a detach', { kind: 'detached' }, 0, /^detached: exec x$/],
  ['a broken session', { kind: 'broken', message: 'cut' }, 121, /^error: exec x: the session broke: cut$/],
  [
    'a failure of the session',
    { kind: 'failed', message: 'Internal error occurred: stalled' },
    121,
    /^error: exec x: stalled$/,
  ],
  [
    'a command that runc does not find',
    { kind: 'failed', message: 'exec failed: exec: "x": executable file not found in $PATH: unknown' },
    127,
    /executable file not found/,
  ],
  [
    'a command that crun does not find',
    { kind: 'failed', message: 'executable file `x` not found in $PATH: No such file or directory' },
    127,
    /not found/,
  ],
  [
    'a path that is not there',
    { kind: 'failed', message: 'exec: "/x": stat /x: no such file or directory' },
    127,
    /stat/,
  ],
  [
    'a file that is no program',
    { kind: 'failed', message: 'exec: "/etc/x": permission denied' },
    126,
    /denied/,
  ],
]
for (const [name, end, code, said] of ends) {
  test(`${name} has its exit code and its sentence`, () => {
    const sentences: string[] = []
    assert.equal(
      conclude(end, 'exec x', (text) => sentences.push(text)),
      code,
    )
    assert.match(sentences.join('\n'), said)
  })
}

test('no end of a session but success, exit 0 and detach has exit code 0', () => {
  for (const [, end, code] of ends)
    assert.equal(code === 0, end.kind === 'success' || end.kind === 'detached')
})

test('columns are aligned', () => {
  assert.equal(
    formatTable([
      ['ID', 'NAME'],
      ['12345', 'web'],
      ['1', ''],
    ]),
    'ID     NAME\n12345  web\n1\n',
  )
})

test('ages show their largest unit', () => {
  assert.deepEqual([-5, 0, 59_999, 60_000, 3_600_000, 86_400_000 * 3].map(formatAge), [
    '0s',
    '0s',
    '59s',
    '1m',
    '1h',
    '3d',
  ])
})

test('pairs of ports are parsed', () => {
  assert.deepEqual(parsePortPair('8080'), { local: 8080, remote: 8080 })
  assert.deepEqual(parsePortPair('80:8080'), { local: 80, remote: 8080 })
  assert.deepEqual(parsePortPair(':8080'), { local: 0, remote: 8080 })
  assert.deepEqual(parsePortPair('0:65535'), { local: 0, remote: 65_535 })
  for (const bad of ['', ':', '0', '80:', '80:0', '65536', '99999:1', 'a:b', '1:2:3', '-1'])
    assert.throws(() => parsePortPair(bad), /no pair of ports/, bad)
})
