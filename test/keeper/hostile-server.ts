// A server that means harm: half-right and random messages with random descriptors, not reading for long stretches, dying
// at random. Run by a keeper; counts its lives in HOLDFAST_TEST_DIRECTORY/lives and quits after the last one.

import { spawn } from 'node:child_process'
import { closeSync, openSync, readFileSync, writeFileSync } from 'node:fs'
import { isErrno } from '../../src/base/errors.ts'
import { encodeMessage, flag, toKeeper } from '../../src/keeper/channel-messages.ts'
import {
  dupCloexec,
  memfd,
  pipe2,
  recvFds,
  sendFds,
  setNonblock,
  socketpair,
  write,
} from '../../src/native/addon.ts'

const directory = process.env['HOLDFAST_TEST_DIRECTORY'] ?? '/nonexistent'
const [lives = 1, messages = 100, seed = 1] = (process.env['HOLDFAST_TEST_HOSTILE'] ?? '')
  .split(' ')
  .map(Number)
const life = Number(readFileSync(`${directory}/lives`, 'utf8')) + 1
writeFileSync(`${directory}/lives`, String(life))

let dice = (seed * 1_000_003 + life * 7919) >>> 0
/** 0 … below - 1, the same for the same seed. */
function random(below: number): number {
  dice = (Math.imul(dice, 1_664_525) + 1_013_904_223) >>> 0
  return Math.floor((dice / 2 ** 32) * below)
}
function oneOf<T>(things: readonly T[]): T {
  return things[random(things.length)] as T
}
const chance = (percent: number): boolean => random(100) < percent

const kept: number[] = []
function pairEnd([mine, other]: [number, number], text: Buffer | undefined): number {
  setNonblock(other)
  if (text !== undefined) stir(other, text)
  if (chance(30)) closeSync(other)
  else kept.push(other)
  return mine
}

/** Something for the keeper to read, or nothing. */
function stir(fd: number, text: Buffer): void {
  try {
    write(fd, text)
  } catch {
    // Full or closed: as good.
  }
}

function descriptor(): number {
  switch (random(9)) {
    case 0:
    case 1:
    case 2:
      return pairEnd(pipe2(), Buffer.alloc(oneOf([1, 500, 60_000]), oneOf(['x', '\n', 'abc\n', '\0'])))
    case 3:
      return openSync(`${directory}/log.${random(3)}`, oneOf(['a', 'r+', 'w+', 'a+']))
    case 4:
      return pairEnd(socketpair(), Buffer.from('x'))
    case 5:
      return openSync(oneOf(['/dev/full', '/dev/null', '/dev/zero']), 'r+')
    case 6:
      return openSync(directory, 'r')
    case 7:
      return chance(50) ? dupCloexec(3) : memfd('hostile')
    default:
      return openSync('/dev/ptmx', 'r+')
  }
}

let heard = 0
function drain(): void {
  for (let i = 0; i < 500; i++) {
    try {
      const message = recvFds(3)
      if (message === null) return
      heard++
      if (message.data.length === 0) process.exit(0)
      for (const fd of message.fds) closeSync(fd)
    } catch (error) {
      // A descriptor too many for us: go on.
      if (!isErrno(error, 'EMSGSIZE')) process.exit(0)
    }
  }
}

const sleeper = new Int32Array(new SharedArrayBuffer(4))
function send(bytes: Buffer, fds: number[]): void {
  for (let tries = 0; tries < 400; tries++) {
    try {
      if (sendFds(3, bytes, fds) >= 0) return
    } catch {
      return
    }
    if (chance(50)) drain()
    Atomics.wait(sleeper, 0, 0, 1)
  }
}

const bits = [flag.OUT, flag.ERR, flag.LOG, flag.DIRECTORY]

/** A pump whose descriptors are mostly of the right number and kind. */
function pumpDescriptors(flags: number): number[] {
  return bits
    .filter((bit) => (flags & bit) !== 0)
    .map((bit) => {
      if (chance(20)) return descriptor()
      if (bit === flag.LOG) return openSync(`${directory}/log.${random(3)}`, 'a')
      if (bit === flag.DIRECTORY) return openSync(directory, 'r')
      return pairEnd(pipe2(), Buffer.from('some\nlines\nand a rest'))
    })
}

/** A socket for a copy: empty, or so full that nothing fits any more. */
function copyEnd(): number {
  const [mine, other] = socketpair()
  kept.push(other)
  if (chance(70)) for (let i = 0; i < 40; i++) stir(mine, Buffer.alloc(60_000))
  return mine
}

function mutate(bytes: Buffer): Buffer {
  if (chance(3)) return bytes.subarray(0, random(bytes.length))
  for (let i = 0; chance(10) && i < 5; i++) bytes[random(Math.min(bytes.length, 40))] = random(256)
  return bytes
}

const texts = ['x', '\n', 'abc\n', '\0', 'a line of some length, as they are\n']
/** The keeper's children: some of them are there to be watched and killed. */
function children(): number[] {
  return readFileSync(`/proc/${process.ppid}/task/${process.ppid}/children`, 'utf8')
    .split(' ')
    .map(Number)
    .filter((pid) => pid > 0 && pid !== process.pid)
}

const types = [1, 1, 2, 3, 4, 4, 4, 4, 5, 5, 6, 6, 6, 7, 8, 9, 10, 13, 14, 15, 16, 64, 65_535]
const names = ['a', 'a', 'a', 'b', 'c1', 'x'.repeat(200), 'x'.repeat(201), '/..', '', 'last-words']
const numbers = [0, 1, 2, 3, 100, 1000, process.pid, 2n ** 31n, 2n ** 32n - 1n, 2n ** 63n, 2n ** 64n - 1n]
const sizes = [0, 1, 10, 300, 3000, 32_768, 32_769, 60_000]

function argument(type: number): number | bigint {
  if (chance(20)) return oneOf(numbers)
  if (type === toKeeper.COPY) return random(2)
  if (type === toKeeper.CLAIMED) return random(30)
  return type === toKeeper.WATCH || type === toKeeper.KILL ? oneOf([...children(), 1]) : 0
}

function once(index: number): void {
  const type = oneOf(types)
  const flags = chance(70) ? oneOf([0, 1, 2, 8, 16, 24, 40, 56, 120, 96, 72, 0x80a8, 0x4008]) : random(65_536)
  const fds =
    type === toKeeper.PUMP && chance(90)
      ? pumpDescriptors(flags)
      : type === toKeeper.COPY && chance(70)
        ? [copyEnd()]
        : Array.from({ length: oneOf([0, 0, 1, 1, 1, 2, 3, 4, 5, 6, 16, 17, 40]) }, descriptor)
  const payload = chance(50) ? Buffer.from('log.0') : Buffer.alloc(oneOf(sizes), oneOf(['r', '\0', 'log.0']))
  const message = {
    type,
    flags,
    name: oneOf(names),
    c: oneOf([0, 5, 5, 5, payload.length, 250, 251, 2 ** 32 - 1]),
    a: argument(type),
    b: chance(50) ? oneOf([0, 50, 200, 1000, 5000]) : oneOf(numbers),
    payload,
    fds,
  }
  send(mutate(encodeMessage(message, index)), fds)
  for (const fd of fds) closeSync(fd)
  if (chance(10)) drain()
  if (chance(60) && kept.length > 0)
    stir(oneOf(kept), Buffer.alloc(oneOf([1, 100, 5000, 60_000]), oneOf(texts)))
  while (kept.length > 100) closeSync(kept.splice(random(kept.length), 1)[0] as number)
  if (chance(1))
    spawn('sh', ['-c', `(exit ${random(256)}) & (sleep 0.2; exit 1) & exit 0`], {
      stdio: 'ignore',
      detached: true,
    })
}

// A first server that fails would be the end of all.
if (life === 1) send(encodeMessage({ type: toKeeper.READY }, 1), [])
for (let i = 0; i < messages; i++) once(i)
send(encodeMessage({ type: toKeeper.READY }, 1), [])
if (life >= lives) {
  send(encodeMessage({ type: toKeeper.QUIT, a: 0 }, 1), [])
  drain()
  process.exit(0)
}
if (chance(30)) {
  drain()
  send(encodeMessage({ type: toKeeper.SLEEP, a: chance(30) ? 0 : heard }, 1), [])
  process.exit(0)
}
if (chance(50)) process.kill(process.pid, 'SIGKILL')
process.exit(random(256))
