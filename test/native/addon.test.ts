// The addon: each function does what addon.ts says.

import assert from 'node:assert/strict'
import { spawn } from 'node:child_process'
import {
  closeSync,
  cpSync,
  existsSync,
  mkdirSync,
  mkdtempSync,
  openSync,
  readFileSync,
  readSync,
  readdirSync,
  rmSync,
  writeFileSync,
  writeSync,
} from 'node:fs'
import { createServer, Socket } from 'node:net'
import type { AddressInfo } from 'node:net'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { once } from 'node:events'
import { after, describe, test } from 'node:test'
import { Worker } from 'node:worker_threads'
import * as addon from '../../src/native/addon.ts'
import type { PollHandle } from '../../src/native/addon.ts'
import { fixtureProgram } from '../support/fixture-program.ts'
import { checkLeaks } from '../support/leak-check.ts'

checkLeaks()

const directory = mkdtempSync(join(tmpdir(), 'holdfast-addon-'))
after(() => rmSync(directory, { recursive: true }))

function closeAll(...fds: number[]): void {
  for (const fd of fds) closeSync(fd)
}

function openCount(): number {
  return readdirSync('/proc/self/fd').length
}

function flagsOf(fd: number): number {
  return Number.parseInt(/flags:\s+(\d+)/.exec(readFileSync(`/proc/self/fdinfo/${fd}`, 'utf8'))?.[1] ?? '', 8)
}

const O_CLOEXEC = 0o2000000
const O_NONBLOCK = 0o4000

describe('descriptors in messages', () => {
  test('carry data and 253 descriptors in one message', () => {
    const [a, b] = addon.socketpair()
    const [readEnd, writeEnd] = addon.pipe2()
    const data = Buffer.alloc(100_000, 'x')
    assert.equal(addon.sendFds(a, data, Array(253).fill(writeEnd)), data.length)
    const fds: number[] = []
    let received = 0
    for (let m = addon.recvFds(b); m !== null; m = addon.recvFds(b)) {
      received += m.data.length
      fds.push(...m.fds)
    }
    assert.equal(received, data.length)
    assert.equal(fds.length, 253)
    assert.ok((flagsOf(fds[252]!) & O_CLOEXEC) !== 0)
    writeSync(fds[252]!, 'hello')
    const got = Buffer.alloc(10)
    assert.equal(readSync(readEnd, got), 5)
    closeAll(...fds, a, b, readEnd, writeEnd)
  })

  test('answer null when nothing is there and empty data at the end', () => {
    const [a, b] = addon.socketpair()
    assert.equal(addon.recvFds(a), null)
    closeSync(b)
    assert.deepEqual(addon.recvFds(a), { data: Buffer.alloc(0), fds: [] })
    assert.throws(() => addon.sendFds(a, Buffer.from('x'), []), { code: 'EPIPE', syscall: 'sendmsg' })
    closeSync(a)
  })

  test('close what came when a message is longer than the buffer', () => {
    const path = join(directory, 'long-message')
    const listener = addon.unixListen(path, 'seqpacket')
    const client = addon.unixConnect(path, 'seqpacket')
    const server = addon.acceptFd(listener)!
    const before = openCount()
    assert.equal(addon.sendFds(client, Buffer.alloc(128 * 1024 + 1), [client, client]), 128 * 1024 + 1)
    assert.throws(() => addon.recvFds(server), { code: 'EMSGSIZE' })
    assert.equal(openCount(), before)
    closeAll(listener, client, server)
  })

  test('answer -1 when the socket is full', () => {
    const [a, b] = addon.socketpair()
    const chunk = Buffer.alloc(65536)
    let sent = 0
    for (let n = addon.sendFds(a, chunk, []); n >= 0; n = addon.sendFds(a, chunk, [])) sent += n
    assert.ok(sent >= 100_000)
    closeAll(a, b)
  })
})

describe('unix sockets', () => {
  for (const length of [60, 106, 107, 108, 109, 160, 4000]) {
    test(`listen and connect at a path of ${length} bytes`, () => {
      const path = pathOfLength(length)
      const listener = addon.unixListen(path)
      assert.ok(existsSync(path))
      assert.equal(addon.acceptFd(listener), null)
      const client = addon.unixConnect(path)
      const server = addon.acceptFd(listener)!
      assert.ok((flagsOf(server) & O_NONBLOCK) !== 0)
      assert.equal(addon.write(client, Buffer.from('ping')), 4)
      assert.equal(addon.read(server, Buffer.alloc(10)), 4)
      closeAll(client, server, listener)
    })
  }

  test('never bind a cut-off name', () => {
    const path = join(directory, 'n'.repeat(200))
    assert.throws(() => addon.unixListen(path), { code: 'ENAMETOOLONG' })
    assert.deepEqual(
      readdirSync(directory).filter((name) => name.startsWith('nnn')),
      [],
    )
  })

  test('name the call and the path in errors', () => {
    const path = join(directory, 'nobody')
    assert.throws(() => addon.unixConnect(path), {
      code: 'ENOENT',
      errno: -2,
      syscall: 'connect',
      message: `connect ${path}: No such file or directory`,
    })
  })

  test('send datagrams, with a sealed memory file as well', async () => {
    const path = join(directory, 'datagram')
    const child = spawn(fixtureProgram('datagram-sink'), [path, '2'], {
      stdio: ['ignore', 'pipe', 'inherit'],
    })
    let output = ''
    child.stdout.on('data', (chunk: Buffer) => {
      output += chunk.toString()
      if (output !== 'ready\n') return
      assert.equal(addon.unixDatagramSend(path, [Buffer.from('one '), Buffer.from('two')]), 7)
      const memory = addon.sealedMemfd([Buffer.from('sealed '), Buffer.from('bytes')])
      assert.throws(() => writeSync(memory, 'x'), { code: 'EPERM' })
      assert.equal(addon.unixDatagramSend(path, [], memory), 0)
      closeSync(memory)
    })
    await once(child, 'close')
    assert.equal(output, "ready\n7 bytes 'one two'\n0 bytes '' file 'sealed bytes'\n")
  })
})

describe('small calls', () => {
  test('make what they say, close-on-exec', () => {
    const fds = [
      ...addon.pipe2(),
      ...addon.socketpair(),
      addon.eventfd(),
      addon.memfd('m'),
      addon.sealedMemfd([]),
    ]
    const copy = addon.dupCloexec(fds[0]!)
    for (const fd of [...fds, copy]) assert.ok((flagsOf(fd) & O_CLOEXEC) !== 0)
    assert.equal(flagsOf(fds[0]!) & O_NONBLOCK, 0)
    addon.setNonblock(fds[0]!)
    assert.ok((flagsOf(copy) & O_NONBLOCK) !== 0, 'the flag belongs to the open file, not to the descriptor')
    closeAll(...fds, copy)
  })

  test('read and write without exceptions on the way', () => {
    const [readEnd, writeEnd] = addon.pipe2()
    addon.setNonblock(readEnd)
    addon.setNonblock(writeEnd)
    const buffer = Buffer.alloc(100_000)
    assert.equal(addon.read(readEnd, buffer), -1)
    assert.equal(addon.write(writeEnd, Buffer.from('abcdef'), 2), 4)
    assert.equal(addon.bytesReadable(readEnd), 4)
    assert.equal(addon.read(readEnd, buffer), 4)
    assert.equal(buffer.toString('latin1', 0, 4), 'cdef')
    assert.equal(addon.write(writeEnd, buffer), 65536)
    assert.equal(addon.write(writeEnd, buffer, 65536), -1)
    closeSync(writeEnd)
    assert.equal(addon.read(readEnd, buffer), 65536)
    assert.equal(addon.read(readEnd, buffer), 0)
    closeSync(readEnd)
  })

  test('tell a pipe whose other end is gone', () => {
    const [readEnd, writeEnd] = addon.pipe2()
    assert.deepEqual([addon.isHungUp(readEnd), addon.isHungUp(writeEnd)], [false, false])
    closeSync(readEnd)
    assert.equal(addon.isHungUp(writeEnd), true)
    closeSync(writeEnd)
    assert.throws(() => addon.isHungUp(writeEnd), { code: 'EBADF' })
  })

  test('lock a file for one open file only', () => {
    const path = join(directory, 'lock')
    const [first, second] = [openSync(path, 'w'), openSync(path, 'w')]
    assert.equal(addon.flock(first), true)
    assert.equal(addon.flock(second), false)
    closeSync(first)
    assert.equal(addon.flock(second), true)
    closeSync(second)
  })

  test('signal a process by its descriptor', async () => {
    const child = spawn('sleep', ['60'])
    const pidfd = addon.pidfdOpen(child.pid!)
    addon.pidfdSignal(pidfd, 15)
    assert.deepEqual(await once(child, 'exit'), [null, 'SIGTERM'])
    assert.throws(() => addon.pidfdSignal(pidfd, 15), { code: 'ESRCH' })
    closeSync(pidfd)
  })

  test('make a socket in a network namespace that connects there', async () => {
    const server = createServer((socket) => socket.end('from inside'))
    await once(server.listen(0, '127.0.0.1'), 'listening')
    const namespace = openSync('/proc/self/ns/net', 'r')
    const file = openSync(process.execPath, 'r')
    assert.equal(addon.isNsfs(namespace), true)
    assert.equal(addon.isNsfs(file), false)
    const socket = new Socket({
      fd: addon.netnsSocket(`/proc/self/fd/${namespace}`, 4),
      manualStart: true,
    } as object)
    socket.connect({ host: '127.0.0.1', port: (server.address() as AddressInfo).port })
    const chunks: Buffer[] = []
    for await (const chunk of socket) chunks.push(chunk as Buffer)
    assert.equal(Buffer.concat(chunks).toString(), 'from inside')
    assert.throws(() => addon.netnsSocket('/no/such', 4), { code: 'ENOENT' })
    assert.throws(() => addon.netnsSocket(process.execPath, 6), { code: 'EINVAL' })
    closeAll(namespace, file)
    server.close()
    await once(server, 'close')
  })

  test('give memory back', () => {
    assert.ok(addon.dropText() > 1_000_000)
    assert.ok([0, 1].includes(addon.mallocTrim()))
  })
})

describe('polls', () => {
  test('report readable and writable, as asked', async () => {
    const [a, b] = addon.socketpair()
    const seen: number[] = []
    let wake: (() => void) | undefined
    const handle = addon.poll(a, (status, events) => {
      seen.push(status, events)
      addon.pollSet(handle, 0)
      wake?.()
    })
    const next = (): Promise<void> => new Promise((resolve) => (wake = resolve))
    addon.write(b, Buffer.from('x'))
    await next()
    addon.pollSet(handle, 3)
    await next()
    addon.read(a, Buffer.alloc(1))
    addon.pollSet(handle, 2)
    await next()
    addon.pollSet(handle, 4)
    closeSync(b)
    await next()
    assert.deepEqual(seen, [0, 1, 0, 3, 0, 2, 0, 4])
    addon.unpoll(handle)
    closeSync(a)
  })

  test('can be ended twice, inside the callback, and never used again', async () => {
    const [a, b] = addon.socketpair()
    addon.write(b, Buffer.from('x'))
    const handle = await new Promise<PollHandle>((resolve) => {
      const live = addon.poll(a, () => {
        addon.unpoll(live)
        addon.unpoll(live)
        resolve(live)
      })
    })
    addon.unpoll(handle)
    assert.throws(() => addon.pollSet(handle, 1), { code: 'EBADF' })
    const again = addon.poll(a, () => undefined)
    assert.throws(() => addon.poll(a, () => undefined), { code: 'EEXIST' })
    addon.unpoll(again)
    closeAll(a, b)
  })

  test('survive ten thousand beginnings and ends and their collection', async () => {
    const [a, b] = addon.socketpair()
    for (let i = 0; i < 10_000; i++) addon.unpoll(addon.poll(a, () => undefined))
    await new Promise((resolve) => setImmediate(resolve))
    closeAll(a, b)
  })

  test('let a worker end while they are live', async () => {
    const worker = new Worker(
      `const addon = require(require('node:worker_threads').workerData)
       const fds = []
       for (let i = 0; i < 20; i++) {
         const [a, b] = addon.socketpair()
         fds.push(a, b)
         const handle = addon.poll(a, () => {})
         if (i % 3 === 0) addon.unpoll(handle)
       }
       require('node:worker_threads').parentPort.postMessage(fds)
       process.exit(7)`,
      { eval: true, workerData: join(import.meta.dirname, '../../lib/holdfast/addon.node') },
    )
    const [[fds], exit] = await Promise.all([once(worker, 'message'), once(worker, 'exit')])
    assert.deepEqual(exit, [7])
    closeAll(...(fds as number[]))
  })
})

test('a failed load names every path it tried', async () => {
  const native = join(directory, 'dist/src/native')
  mkdirSync(native, { recursive: true })
  const compiled = join(import.meta.dirname, '../../src')
  cpSync(join(compiled, 'base'), join(directory, 'dist/src/base'), { recursive: true })
  cpSync(join(compiled, 'native/addon.js'), join(native, 'addon.js'))
  writeFileSync(join(directory, 'package.json'), '{"type":"module"}')
  await assert.rejects(import(join(native, 'addon.js')), (error: Error) => {
    assert.equal(error.name, 'MonitorError')
    assert.ok(error.message.includes(`${native}/addon.node: `), error.message)
    assert.ok(error.message.includes(`${directory}/dist/lib/holdfast/addon.node: `), error.message)
    return true
  })
})

function pathOfLength(length: number): string {
  let path = directory
  while (length - path.length > 120) path = join(path, 'd'.repeat(Math.min(100, length - path.length - 20)))
  mkdirSync(path, { recursive: true })
  return `${path}/${'s'.repeat(length - path.length - 1)}`
}
