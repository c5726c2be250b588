import assert from 'node:assert/strict'
import { describe, test } from 'node:test'
import { AuthorityRepair } from '../../src/cri/authority-repair.ts'
import { checkLeaks } from '../support/leak-check.ts'

checkLeaks()

const preface = '505249202a20485454502f322e300d0a0d0a534d0d0a0d0a'
const settings = '000000040000000000'
/** POST, http. */
const methodAndScheme = '8386'

function headers(block: string, flags = '04'): string {
  return `${(block.length / 2).toString(16).padStart(6, '0')}01${flags}00000001${block}`
}

function repaired(hex: string, split = hex.length): string {
  const repair = new AuthorityRepair()
  const bytes = Buffer.from(hex, 'hex')
  const out = [...repair.push(bytes.subarray(0, split)), ...repair.push(bytes.subarray(split))]
  return Buffer.concat(out).toString('hex')
}

/** `:authority: localhost`, in no table. */
const localhost = '01096c6f63616c686f7374'

/** `/run/mon.sock` and `.run.mon.sock`. */
const plain = { slashes: '2f72756e2f6d6f6e2e736f636b', dots: '2e72756e2e6d6f6e2e736f636b' }

const cases: { name: string; block: string; expected: string }[] = [
  {
    name: 'a socket path, plain and indexed',
    block: `${methodAndScheme}410d${plain.slashes}`,
    expected: `${methodAndScheme}410d${plain.dots}`,
  },
  {
    name: 'a socket path that is never indexed',
    block: `110d${plain.slashes}${methodAndScheme}`,
    expected: `110d${plain.dots}${methodAndScheme}`,
  },
  {
    name: 'a name that is right',
    block: `${methodAndScheme}41096c6f63616c686f7374`,
    expected: `${methodAndScheme}41096c6f63616c686f7374`,
  },
  {
    name: 'an empty one, replaced by a field of the same size',
    block: `${methodAndScheme}4100`,
    expected: `${localhost}${methodAndScheme}400a782d6e6f2d617574686f00`,
  },
  { name: 'an empty one of the static table', block: '838186', expected: `${localhost}8386` },
  { name: 'an empty one that is not indexed', block: '83010086', expected: `${localhost}8386` },
  {
    name: 'none, and a slash in other fields',
    block: `${methodAndScheme}04022f61400161022f62`,
    expected: `${localhost}${methodAndScheme}04022f61400161022f62`,
  },
  {
    name: 'a table size before it',
    block: `3fe11f410d${plain.slashes}`,
    expected: `3fe11f410d${plain.dots}`,
  },
  { name: 'a length beyond the block', block: `41ff7f${plain.slashes}`, expected: `41ff7f${plain.slashes}` },
  { name: 'a number without an end', block: '41ffffffffffffff', expected: '41ffffffffffffff' },
  { name: 'none after a table size', block: '3fe11f83', expected: `3fe11f${localhost}83` },
  { name: 'an empty block', block: '', expected: localhost },
]

describe('the repair of :authority', () => {
  for (const { name, block, expected } of cases) {
    test(`handles ${name}, split at every byte`, () => {
      const before = preface + settings + headers(block) + settings
      const after = preface + settings + headers(expected) + settings
      assert.equal(repaired(before), after)
      for (let split = 1; split < before.length / 2; split++) assert.equal(repaired(before, split), after)
    })
  }

  test('replaces slashes in the Huffman code without changing anything else', () => {
    // RFC 7541, appendix B: '/' 011000, 'r' 101100, 'u' 101101, 'n' 101010, '.' 010111, 's' 01000, '-' 010110
    const path = '01100010110010110110101001100001000010110'
    const fixed = '01011110110010110110101001011101000010110'
    const [before, after] = [path, fixed].map(bytesOfBits)
    const length = (0x80 + (before?.length ?? 0) / 2).toString(16)
    assert.equal(
      repaired(preface + headers(`41${length}${before}`)),
      preface + headers(`41${length}${after}`),
    )
  })

  test('sees past padding and priority', () => {
    const block = `020000000010410d${plain.slashes}0000`
    const expected = `020000000010410d${plain.dots}0000`
    assert.equal(repaired(preface + headers(block, '2c')), preface + headers(expected, '2c'))
  })

  test('supplies a name to every request of a client that names none, and to no other', () => {
    // The second request refers to the first one's fields in the table.
    assert.equal(
      repaired(preface + headers('8386') + headers('83be')),
      preface + headers(`${localhost}8386`) + headers(`${localhost}83be`),
    )
    const named = preface + headers('8341016c') + headers('83be')
    assert.equal(repaired(named), named)
  })

  test('leaves alone a block that goes on in the next frame', () => {
    const frames = preface + headers(`410d${plain.slashes}`, '00')
    assert.equal(repaired(frames), frames)
  })

  test('passes on a frame that is too long without keeping it', () => {
    const repair = new AuthorityRepair()
    repair.push(Buffer.from(preface, 'hex'))
    const frame = Buffer.from('ffffff010400000001410d', 'hex')
    assert.deepEqual(Buffer.concat(repair.push(frame)), frame)
    const more = Buffer.alloc(100_000)
    assert.deepEqual(Buffer.concat(repair.push(more)), more)
  })

  test('passes on what is no HTTP/2', () => {
    const hex = Buffer.from('GET / HTTP/1.1\r\n\r\n').toString('hex')
    assert.equal(repaired(hex), hex)
    for (let split = 1; split < 8; split++) assert.equal(repaired(hex, split), hex)
  })
})

/** Padded with ones, as HPACK wants it. */
function bytesOfBits(bits: string): string {
  const padded = bits.padEnd(Math.ceil(bits.length / 8) * 8, '1')
  return (padded.match(/.{8}/g) ?? []).map((byte) => parseInt(byte, 2).toString(16).padStart(2, '0')).join('')
}
