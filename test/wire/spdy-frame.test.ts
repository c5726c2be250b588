import assert from 'node:assert/strict'
import { test } from 'node:test'
import fc from 'fast-check'
import {
  dataFrame,
  dataHeader,
  goAwayFrame,
  pingFrame,
  rstStreamFrame,
  SpdyReader,
  synReplyFrame,
  type SpdyFrameListener,
} from '../../src/wire/spdy-frame.ts'
import { checkLeaks } from '../support/leak-check.ts'

checkLeaks()

/** Writes down what frames say; pieces of one payload are joined. */
class Recorder implements SpdyFrameListener {
  readonly events: string[] = []
  readonly reader = new SpdyReader(this)
  #piece: { readonly id: number; text: string } | undefined

  read(...chunks: Buffer[]): string[] {
    for (const chunk of chunks) this.reader.read(chunk)
    this.#flush()
    return this.events
  }

  onData(id: number, piece: Buffer): void {
    assert.ok(piece.length > 0)
    if (this.#piece?.id === id) this.#piece.text += piece.toString('hex')
    else {
      this.#flush()
      this.#piece = { id, text: piece.toString('hex') }
    }
  }

  onFin = (id: number): void => this.#say(`fin ${id}`)
  onSynStream = (id: number, flags: number, block: Buffer): void =>
    this.#say(`syn ${id} ${flags} ${block.toString('hex')}`)
  onOtherBlock = (block: Buffer): void => this.#say(`block ${block.toString('hex')}`)
  onReset = (id: number): void => this.#say(`reset ${id}`)
  onPing = (id: number): void => this.#say(`ping ${id}`)
  onGoAway = (): void => this.#say('goaway')

  #say(event: string): void {
    this.#flush()
    this.events.push(event)
  }

  #flush(): void {
    if (this.#piece !== undefined) this.events.push(`data ${this.#piece.id} ${this.#piece.text}`)
    this.#piece = undefined
  }
}

const vectors: readonly (readonly [string, string, readonly string[]])[] = [
  ['SYN_STREAM', '80030001 0000000d 00000001 00000000 0000 aabbcc', ['syn 1 0 aabbcc']],
  ['SYN_STREAM with flags', '80030001 0300000a 80000003 00000000 e000', ['syn 3 3 ']],
  [
    'SYN_REPLY and HEADERS',
    '80030002 00000005 00000001 aa 80030008 00000005 00000001 bb',
    ['block aa', 'block bb'],
  ],
  ['RST_STREAM', '80030003 00000008 00000005 00000005', ['reset 5']],
  ['SETTINGS', '80030004 0000000c 00000001 04000000 00000064', []],
  ['PING', '80030006 00000004 00000003', ['ping 3']],
  ['PING of a server', '80030006 00000004 80000002', ['ping 2147483650']],
  ['GOAWAY', '80030007 00000008 00000000 00000000', ['goaway']],
  ['WINDOW_UPDATE', '80030009 00000008 00000001 7fffffff', []],
  ['an unknown frame', '80030042 00000003 010203', []],
  ['an unknown frame without payload', '80030042 00000000', []],
  ['DATA', '00000003 00000003 616263', ['data 3 616263']],
  ['DATA without bytes', '00000003 00000000', []],
  ['DATA with FIN', '00000003 01000003 616263', ['data 3 616263', 'fin 3']],
  ['FIN alone', '00000003 01000000', ['fin 3']],
  ['DATA of the highest stream', '7fffffff 01000001 00', ['data 2147483647 00', 'fin 2147483647']],
]

const bytes = (hex: string): Buffer => Buffer.from(hex.replaceAll(' ', ''), 'hex')

test('reads every frame, whole and split at every byte', () => {
  for (const [name, hex, events] of vectors) {
    const frame = bytes(hex)
    assert.deepEqual(new Recorder().read(frame), events, name)
    for (let i = 1; i < frame.length; i++) {
      assert.deepEqual(
        new Recorder().read(frame.subarray(0, i), frame.subarray(i)),
        events,
        `${name}, split at ${i}`,
      )
    }
    assert.deepEqual(
      new Recorder().read(...[...frame].map((byte) => Buffer.from([byte]))),
      events,
      `${name}, bytewise`,
    )
  }
})

test('reads the same from any sequence of frames in any chunks', () => {
  const frames = fc.array(fc.constantFrom(...vectors), { minLength: 1, maxLength: 12 })
  const cuts = fc.array(fc.nat(), { maxLength: 20 })
  fc.assert(
    fc.property(frames, cuts, (chosen, positions) => {
      const stream = Buffer.concat(chosen.map(([, hex]) => bytes(hex)))
      const ends = positions.map((position) => position % (stream.length + 1)).toSorted((a, b) => a - b)
      const chunks = [...ends, stream.length].map((end, i) => stream.subarray(ends[i - 1] ?? 0, end))
      // Pieces of neighbouring DATA frames on one stream look like one.
      const join = (events: readonly string[]) =>
        events.join('\n').replaceAll(/(data (\d+) [0-9a-f]*)\ndata \2 /g, '$1')
      const whole = new Recorder().read(stream)
      assert.equal(join(new Recorder().read(...chunks)), join(whole))
    }),
    { numRuns: 500, seed: 1 },
  )
})

test('hands on a chunk that is all payload as it is', () => {
  const chunk = Buffer.alloc(1000)
  let got: Buffer | undefined
  const recorder = new Recorder()
  recorder.onData = (_id, piece) => (got = piece)
  recorder.reader.read(dataHeader(3, 3000))
  recorder.reader.read(chunk)
  assert.equal(got, chunk)
})

for (const [name, hex] of [
  ['DATA on stream 0', '00000000 00000003 616263'],
  ['version 2', '80020006 00000004 00000001'],
  ['version 4', '80040006 00000004 00000001'],
  ['a control frame of 65537 bytes', '80030042 00010001'],
  ['a control frame of 16 MiB', '80030008 00ffffff'],
  ['a SYN_STREAM without all its fields', '80030001 00000009 00000001 00000000 00'],
  ['a SYN_REPLY without a stream', '80030002 00000003 000000'],
  ['a RST_STREAM without a stream', '80030003 00000000'],
  ['a PING without an id', '80030006 00000003 000000'],
  ['a SETTINGS frame with a count and no entries', '80030004 00000004 00000001'],
  ['a SETTINGS frame with 2^32-1 entries', '80030004 0000000c ffffffff 00000001 00000002'],
] as const) {
  test(`stops at ${name}`, () => {
    const frame = bytes(hex)
    for (let i = 0; i < frame.length; i++) {
      const recorder = new Recorder()
      const feed = () =>
        recorder.read(frame.subarray(0, i), frame.subarray(i), bytes('80030006 00000004 00000001'))
      assert.throws(feed, { code: 'invalid-argument' }, `split at ${i}`)
      assert.deepEqual(recorder.read(bytes('80030006 00000004 00000001')), [], 'reads on after the error')
    }
  })
}

test('takes as many frames of a chunk as it is told, and whole payloads', () => {
  const chunk = bytes(
    '80030006 00000004 00000001 00000003 00000003 616263 80030006 00000004 00000003 00000003',
  )
  const recorder = new Recorder()
  assert.equal(recorder.reader.read(chunk, 2), 12 + 11)
  assert.deepEqual(recorder.read(), ['ping 1', 'data 3 616263'])
  assert.equal(recorder.reader.read(chunk.subarray(23), 1), 12)
  assert.equal(recorder.reader.read(chunk.subarray(35), 1), 4)
  assert.deepEqual(recorder.read(bytes('01000000')), ['ping 1', 'data 3 616263', 'ping 3', 'fin 3'])
})

test('stops where its listener throws, and when it is told to', () => {
  const recorder = new Recorder()
  recorder.onPing = () => {
    throw new Error('enough')
  }
  assert.throws(
    () => recorder.read(bytes('80030006 00000004 00000001 80030007 00000008 00000000 00000000')),
    /enough/,
  )
  assert.deepEqual(recorder.events, [])
  const stopped = new Recorder()
  stopped.onPing = () => stopped.reader.stop()
  assert.deepEqual(stopped.read(bytes('80030006 00000004 00000001 80030007 00000008 00000000 00000000')), [])
})

test('writes the frames of a server', () => {
  const hex = (frame: Buffer) => frame.toString('hex')
  assert.equal(hex(dataHeader(5, 0x12345)), '0000000500012345')
  assert.equal(hex(dataFrame(5, Buffer.from('abc'))), '0000000500000003616263')
  assert.equal(hex(dataFrame(5, Buffer.alloc(0), true)), '0000000501000000')
  assert.equal(hex(synReplyFrame(7, Buffer.from('aabb', 'hex'))), '800300020000000600000007aabb')
  assert.equal(hex(rstStreamFrame(3, 5)), '80030003000000080000000300000005')
  assert.equal(hex(pingFrame(0x80000001)), '800300060000000480000001')
  assert.equal(hex(goAwayFrame(9, 1)), '80030007000000080000000900000001')
})
