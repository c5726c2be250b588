import assert from 'node:assert/strict'
import { mock, test } from 'node:test'
import { DetachKeys, parseDetachKeys } from '../../src/cli/detach-keys.ts'
import { checkLeaks } from '../support/leak-check.ts'

checkLeaks()

/** Types chunks; a number in between lets that many milliseconds pass. Returns what arrived, in hex. */
function type(keys: Buffer, typed: readonly (string | number)[]): { arrived: string[]; detached: number } {
  mock.timers.enable({ apis: ['setTimeout'] })
  try {
    const arrived: string[] = []
    let detached = 0
    const filter = new DetachKeys(
      keys,
      (bytes) => arrived.push(bytes.toString('hex')),
      () => detached++,
    )
    for (const step of typed) {
      if (typeof step === 'number') mock.timers.tick(step)
      else filter.write(Buffer.from(step, 'hex'))
    }
    mock.timers.tick(100)
    return { arrived, detached }
  } finally {
    mock.timers.reset()
  }
}

const keys = parseDetachKeys('ctrl-p,ctrl-q')
const cases: [string, (string | number)[], string[], number][] = [
  ['ordinary keys pass', ['61', '6263'], ['61', '6263'], 0],
  ['a lone ctrl-p arrives within 100 ms', ['10', 100], ['10'], 0],
  ['two ctrl-p arrive as two', ['10', '10'], ['10', '10'], 0],
  ['ctrl-p and another key arrive in order', ['10', '61'], ['1061'], 0],
  ['ctrl-p and another key in one chunk', ['1061'], ['1061'], 0],
  ['the sequence detaches', ['1011'], [], 1],
  ['the sequence split over two chunks detaches', ['10', '11'], [], 1],
  ['the sequence a second apart detaches, its first key delivered', ['10', 1000, '11'], ['10'], 1],
  ['what was typed before the sequence arrives', ['61621011'], ['6162'], 1],
  ['what follows the sequence is swallowed', ['101161', '62'], [], 1],
  ['ctrl-p ctrl-p ctrl-q delivers the first', ['101011'], ['10'], 1],
  ['a lone ctrl-q passes', ['11'], ['11'], 0],
  ['ctrl-p, a, ctrl-q is no sequence', ['10', '61', '11'], ['1061', '11'], 0],
  ['the same key again after the wait is delivered once', ['10', 100, '10', 100], ['10', '10'], 0],
]
for (const [name, typed, arrived, detached] of cases) {
  test(name, () => {
    assert.deepEqual(type(keys, typed), { arrived, detached })
  })
}

test('without detach keys every byte passes', () => {
  assert.deepEqual(type(parseDetachKeys(''), ['1011', '10']), { arrived: ['1011', '10'], detached: 0 })
})

test('a sequence of three keys is found behind a false start', () => {
  assert.deepEqual(type(parseDetachKeys('a,b,c'), ['6162', '616263']), { arrived: ['6162'], detached: 1 })
})

test('keys are spelt as docker and kubectl do', () => {
  assert.equal(parseDetachKeys('ctrl-a,d').toString('hex'), '0164')
  assert.equal(parseDetachKeys('ctrl-[').toString('hex'), '1b')
  for (const bad of ['ctrl-', 'ctrl-ab', 'F1', 'a,', ','])
    assert.throws(() => parseDetachKeys(bad), /is no key/)
})
