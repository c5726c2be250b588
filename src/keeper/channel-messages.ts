// The messages of the keeper's channel as bytes. PROTOCOL.md draws them; protocol.h has the same numbers (a test compares
// them). No I/O here.
//
//  0      2      4      6      8          12         16                  24                  32
//  ├──────┼──────┼──────┼──────┼──────────┼──────────┼───────────────────┼───────────────────┼──────┬─────────┐
//  │ type │flags │ nlen │ nfds │ tag      │ c        │ a                 │ b                 │ name │ payload │

import type { ExitStatus } from '../base/remote-stdio.ts'

/** Message types to the keeper. */
export const toKeeper = {
  HOLD: 1,
  RECORD: 2,
  DROP: 3,
  PUMP: 4,
  RELOG: 5,
  COPY: 6,
  WATCH: 7,
  CLAIMED: 8,
  READY: 9,
  FAILED: 10,
  SLEEP: 11,
  QUIT: 12,
  KILL: 13,
  SIGACK: 14,
  REPLACE: 15,
} as const

/** Message types to the server. */
export const toServer = {
  HELD: 64,
  EXITED: 65,
  SYNC: 66,
  PUMPED: 67,
  SIGNALLED: 68,
  DONE: 69,
} as const

/** Flags of the header. */
export const flag = {
  ACK: 0x1,
  WAKE: 0x2,
  PUMP: 0x4,
  OUT: 0x8,
  ERR: 0x10,
  LOG: 0x20,
  DIRECTORY: 0x40,
  TERMINAL: 0x80,
  OUT_ENDED: 0x100,
  ERR_ENDED: 0x200,
  OUT_LOST: 0x400,
  ERR_LOST: 0x800,
  OUT_COPYING: 0x1000,
  ERR_COPYING: 0x2000,
  DISCARD: 0x4000,
  KEEP_STDOUT: 0x8000,
} as const

/** Where the numbers of a pump's state are. */
export const state = {
  BYTES: 0,
  COPY_FROM: 2,
  LOST_AT: 4,
  DROPPED: 6,
  INODE: 7,
  DEVICE: 8,
  WORDS: 9,
} as const

const headerBytes = 32

/** One message to the keeper, without its tag. */
export interface Outgoing {
  readonly type: number
  readonly flags?: number
  readonly name?: string
  readonly c?: number
  readonly a?: number | bigint
  readonly b?: number | bigint
  readonly payload?: Uint8Array
  readonly fds?: readonly number[]
}

/** One message from the keeper. */
export interface Incoming {
  readonly type: number
  readonly flags: number
  readonly tag: number
  readonly c: number
  readonly a: bigint
  readonly b: bigint
  readonly name: string
  readonly payload: Buffer
}

/** One of a pump's streams. `lostAt` is set when the last copy was closed because it was too slow. */
export interface StreamState {
  readonly bytes: number
  readonly open: boolean
  readonly ended: boolean
  readonly copying: boolean
  readonly copyFrom: number
  readonly lostAt: number | undefined
}

/** What a pump has done so far; stdout (or the terminal), then stderr. */
export interface PumpState {
  readonly generation: number
  readonly errno: number
  readonly size: number
  readonly limit: number
  readonly dropped: number
  readonly inode: number
  readonly device: number
  readonly streams: readonly [StreamState, StreamState]
}

/** An exit that the keeper keeps until it is claimed. */
export interface KeeperExit {
  readonly number: number
  readonly pid: number
  readonly status: ExitStatus
  /** Nanoseconds since 1970. */
  readonly at: bigint
  /** Always true: the keeper tells no others. */
  readonly watched: boolean
}

/** The bytes of a message. */
export function encodeMessage(message: Outgoing, tag: number): Buffer {
  const name = Buffer.from(message.name ?? '')
  const payload = message.payload ?? new Uint8Array(0)
  const bytes = Buffer.alloc(headerBytes + name.length + payload.length)
  bytes.writeUInt16LE(message.type, 0)
  bytes.writeUInt16LE(message.flags ?? 0, 2)
  bytes.writeUInt16LE(name.length, 4)
  bytes.writeUInt16LE(message.fds?.length ?? 0, 6)
  bytes.writeUInt32LE(tag, 8)
  bytes.writeUInt32LE(message.c ?? 0, 12)
  bytes.writeBigUInt64LE(BigInt(message.a ?? 0), 16)
  bytes.writeBigUInt64LE(BigInt(message.b ?? 0), 24)
  name.copy(bytes, headerBytes)
  bytes.set(payload, headerBytes + name.length)
  return bytes
}

/** A message from its bytes; undefined: it is none. The payload shares memory with `bytes`. */
export function decodeMessage(bytes: Buffer): Incoming | undefined {
  if (bytes.length < headerBytes) return undefined
  const nameEnd = headerBytes + bytes.readUInt16LE(4)
  if (nameEnd > bytes.length) return undefined
  return {
    type: bytes.readUInt16LE(0),
    flags: bytes.readUInt16LE(2),
    tag: bytes.readUInt32LE(8),
    c: bytes.readUInt32LE(12),
    a: bytes.readBigUInt64LE(16),
    b: bytes.readBigUInt64LE(24),
    name: bytes.toString('utf8', headerBytes, nameEnd),
    payload: bytes.subarray(nameEnd),
  }
}

/** The pump's state in a `held` or `pumped` message. */
export function decodePumpState(message: Incoming): PumpState | undefined {
  const { flags, payload } = message
  if ((flags & flag.PUMP) === 0 || payload.length < 8 * state.WORDS) return undefined
  const word = (index: number): number => Number(payload.readBigUInt64LE(8 * index))
  const stream = (i: 0 | 1): StreamState => ({
    bytes: word(state.BYTES + i),
    open: (flags & (flag.OUT << i)) !== 0,
    ended: (flags & (flag.OUT_ENDED << i)) !== 0,
    copying: (flags & (flag.OUT_COPYING << i)) !== 0,
    copyFrom: word(state.COPY_FROM + i),
    lostAt: (flags & (flag.OUT_LOST << i)) === 0 ? undefined : word(state.LOST_AT + i),
  })
  return {
    generation: message.tag,
    errno: message.c,
    size: Number(message.a),
    limit: Number(message.b),
    dropped: word(state.DROPPED),
    inode: word(state.INODE),
    device: word(state.DEVICE),
    streams: [stream(0), stream(1)],
  }
}

/** The exit in an `exited` message. */
export function decodeExit(message: Incoming): KeeperExit {
  const wait = Number(message.b >> 32n)
  const signal = wait & 0x7f
  return {
    number: Number(message.a),
    pid: Number(message.b & 0xffff_ffffn),
    status: signal === 0 ? { code: (wait >> 8) & 0xff } : { signal },
    at: message.payload.readBigUInt64LE(0),
    watched: true,
  }
}

/** Signal numbers from a mask. */
export function signalsOf(mask: bigint): number[] {
  const signals = []
  for (let number = 1; number < 64; number++) if ((mask >> BigInt(number)) & 1n) signals.push(number)
  return signals
}

/** A mask from signal numbers. */
export function maskOf(signals: readonly number[]): bigint {
  return signals.reduce((mask, number) => mask | (1n << BigInt(number)), 0n)
}
