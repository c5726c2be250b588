// The console socket: every way in which an OCI runtime sends a terminal, or does not.

import assert from 'node:assert/strict'
import { closeSync, mkdtempSync, mkdirSync, readdirSync, rmSync } from 'node:fs'
import { spawn } from 'node:child_process'
import { once } from 'node:events'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { after, test } from 'node:test'
import { read, sendFds, unixConnect } from '../../src/native/addon.ts'
import { ConsoleSocket } from '../../src/native/terminal.ts'
import { WatchedFd } from '../../src/native/watched-fd.ts'
import { fixtureProgram } from '../support/fixture-program.ts'
import { checkLeaks } from '../support/leak-check.ts'

checkLeaks()

const directory = mkdtempSync(join(tmpdir(), 'holdfast-console-'))
after(() => rmSync(directory, { recursive: true }))
const never = new AbortController().signal

function run(socket: ConsoleSocket, command: readonly string[], options = ['-r']): Promise<unknown> {
  return once(spawn(fixtureProgram('terminal'), [...options, socket.path, ...command]), 'exit')
}

async function readAll(master: number): Promise<string> {
  let text = ''
  const buffer = Buffer.alloc(4096)
  const terminal = new WatchedFd(master)
  await new Promise<void>((resolve) => {
    terminal.watchReadable(() => {
      const n = read(master, buffer)
      if (n === 0) resolve()
      if (n > 0) text += buffer.toString('latin1', 0, n)
    })
  })
  terminal.close()
  terminal.close()
  return text
}

for (const [title, options] of [
  ['at once', []],
  ['some time after connecting, as runc does', ['-d', '150']],
] as const) {
  test(`a terminal that is sent ${title} is received, and its socket goes away`, async () => {
    const socket = ConsoleSocket.listen(directory)
    const exited = run(socket, ['echo', 'hello'], [...options, '-r'])
    const master = await socket.receive(never)
    assert.deepEqual(readdirSync(directory), [])
    assert.equal(await readAll(master), 'hello\n')
    await exited
  })
}

test('the output of a program that is over before its terminal was taken is there', async () => {
  const socket = ConsoleSocket.listen(directory)
  await run(socket, ['sh', '-c', "printf 'x%.0s' $(seq 3000)"])
  assert.equal(await readAll(await socket.receive(never)), 'x'.repeat(3000))
})

test('a sender that leaves without a terminal is an error, not a wait', async () => {
  const socket = ConsoleSocket.listen(directory)
  const exited = run(socket, ['true'], ['-n'])
  await assert.rejects(socket.receive(never), { code: 'internal', message: /closed the console socket/ })
  assert.deepEqual(readdirSync(directory), [])
  await exited
})

test('a descriptor that is no terminal is refused and closed', async () => {
  const socket = ConsoleSocket.listen(directory)
  const sender = unixConnect(socket.path)
  sendFds(sender, Buffer.from('x'), [sender, sender])
  await assert.rejects(socket.receive(never), { message: /is no terminal/ })
  closeSync(sender)
})

test('the signal ends the wait, also one that has fired before', async () => {
  const socket = ConsoleSocket.listen(directory)
  const abort = new AbortController()
  const received = socket.receive(abort.signal)
  abort.abort(new Error('runc exited with 1'))
  await assert.rejects(received, { code: 'canceled', message: 'receive terminal: runc exited with 1' })
  await assert.rejects(ConsoleSocket.listen(directory).receive(abort.signal), { code: 'canceled' })
  assert.deepEqual(readdirSync(directory), [])
})

test('a terminal that lies in the socket when the signal fires is taken', async () => {
  const socket = ConsoleSocket.listen(directory)
  await run(socket, ['echo', 'late'])
  assert.equal(await readAll(await socket.receive(AbortSignal.abort())), 'late\n')
})

test('closing ends the wait', async () => {
  const socket = ConsoleSocket.listen(directory)
  const received = socket.receive(never)
  socket.close()
  socket.close()
  await assert.rejects(received, { code: 'canceled' })
  await assert.rejects(socket.receive(never), { code: 'canceled' })
})

test('a directory of 300 bytes gives a path that a runtime can dial', async () => {
  const deep = join(directory, 'd'.repeat(150), 'e'.repeat(150))
  mkdirSync(deep, { recursive: true })
  const socket = ConsoleSocket.listen(deep)
  assert.ok(socket.path.length < 108)
  const exited = run(socket, ['echo', 'deep'])
  assert.equal(await readAll(await socket.receive(never)), 'deep\n')
  assert.deepEqual(readdirSync(deep), [])
  await exited
  rmSync(join(directory, 'd'.repeat(150)), { recursive: true })
})
