// Clients that join a container's own stdio: each gets everything, none can hold up the container, its log or another
// client, and what they do to stdin follows stdinOnce.

import assert from 'node:assert/strict'
import { after, before, describe, test } from 'node:test'
import { failureOf, finish, openAttach, runExec } from '../support/rig-sessions.ts'
import { Rig, runtimes, streamFds, waitFor } from '../support/rig.ts'
import { transports } from '../support/session-client.ts'

/**
 * Prints numbered lines once /tmp/go is there: in all, more than one client may leave unread; at once, less than would
 * count against a client that is only slow to be scheduled.
 */
const batches = 75
const batchLines = 1500
const lineOf = (i: number): string => `${i} ${'0'.repeat(100)}\n`
const awk = `BEGIN { for (b = 0; b < ${batches}; b++) {
  for (i = 0; i < ${batchLines}; i++) printf "%d %0100d\\n", b * ${batchLines} + i, 0
  fflush(); system("usleep 30000") } }`
const counter = ['sh', '-c', `until [ -e /tmp/go ]; do sleep 0.05; done; awk '${awk}'; sleep 1000`]
const printed = Array.from({ length: batches * batchLines }, (_, i) => lineOf(i)).join('')
const go = ['touch', '/tmp/go']

for (const runtime of runtimes) {
  describe(runtime, () => {
    let rig: Rig
    before(async () => {
      rig = await Rig.start(runtime)
    })
    after(async () => {
      await rig.close()
    })

    test('without stdin a container sees its end at once (B15)', async () => {
      await rig.run({ id: 'no-stdin', args: ['cat'] })
      assert.equal(await rig.exitCode('no-stdin'), 0)
    })

    for (const transport of transports) {
      // The SPDY client leaves by a reset, the WebSocket client by a FIN.
      test(`stdin stays open when a client leaves, over ${transport} (B15)`, async () => {
        const id = `open-${transport}`
        await rig.run({ id, args: ['cat'], stdin: true })
        const first = await openAttach(rig, { id, transport, stdin: true })
        first.send('hello\n')
        await first.until('hello')
        first.vanish()
        const second = await openAttach(rig, { id, transport, stdin: true })
        second.send('world\n')
        await second.until('world')
        second.closeStdin()
        assert.deepEqual(await second.ended, { code: 0 })
        assert.equal(rig.logText(id), 'hello\nworld\n')
        assert.equal(
          (await rig.client.listContainers()).find((container) => container.id === id)?.state,
          'running',
        )
      })

      test(`stdin of a stdinOnce container ends with its first client, over ${transport} (B15)`, async () => {
        const id = `once-${transport}`
        await rig.run({ id, args: ['cat'], stdin: true })
        const first = await openAttach(rig, { id, transport, stdin: true, stdinOnce: true })
        first.send('hello\n')
        await first.until('hello')
        first.vanish()
        assert.equal(await rig.exitCode(id), 0)
        assert.equal(rig.logText(id), 'hello\n')
      })

      test(`a later client of a stdinOnce container gets its output, over ${transport} (B15)`, async () => {
        const id = `late-${transport}`
        const script = 'cat; until [ -e /tmp/go ]; do sleep 0.05; done; echo late; exit 5'
        await rig.run({ id, args: ['sh', '-c', script], stdin: true })
        const first = await openAttach(rig, { id, transport, stdin: true, stdinOnce: true })
        first.sendLast('hello\n')
        await first.until('hello')
        const second = await openAttach(rig, { id, transport, stdin: true, stdinOnce: true })
        second.send('dropped\n')
        await rig.client.execSync({ id, command: go })
        for (const client of [first, second]) {
          assert.deepEqual(await client.ended, { code: 0 })
          assert.match(client.stdout().toString(), /late\n$/)
        }
        assert.equal(await rig.exitCode(id), 5)
        assert.equal(rig.logText(id), 'hello\nlate\n')
      })
    }

    test('control bytes pass through a terminal one by one, in order (B34)', async () => {
      await rig.run({
        id: 'raw',
        terminal: true,
        stdin: true,
        args: ['sh', '-c', 'stty raw -echo; echo ready; cat'],
      })
      await waitFor('the terminal to be raw', () => rig.logText('raw').includes('ready'))
      const client = await openAttach(rig, { id: 'raw', transport: 'websocket', tty: true, stdin: true })
      let sent = ''
      for (const keys of ['\x10', '\x10\x10', '\x10a', '\x10', '\x11', '\x03\x04']) {
        client.send(keys)
        sent += keys
        assert.equal(await client.until(sent), sent)
      }
      client.closeStdin()
      assert.deepEqual(await client.ended, { code: 0 })
    })
  })
}

describe('the server', () => {
  let rig: Rig
  before(async () => {
    rig = await Rig.start('runc')
    await rig.run({ id: 'silent', args: ['sleep', '100000'] })
  })
  after(async () => {
    await rig.close()
  })

  test('every client that reads gets every line; one that does not is dropped alone (B16, B18, M12)', async () => {
    await rig.run({ id: 'counter', args: counter })
    const readers = await Promise.all(
      [...transports, ...transports].map((transport) => openAttach(rig, { id: 'counter', transport })),
    )
    const [stopped, leaving, ...staying] = readers
    assert.ok(stopped !== undefined && leaving !== undefined && staying.length === 2)
    stopped.pause()
    const received = staying.map(() => [] as Buffer[])
    for (const [i, client] of staying.entries()) client.consume((chunk) => received[i]?.push(chunk))
    await rig.client.execSync({ id: 'counter', command: go })
    await waitFor('some output', () => leaving.stdout().length > 0)
    leaving.vanish()
    const length = (chunks: readonly Buffer[]): number => chunks.reduce((sum, chunk) => sum + chunk.length, 0)
    for (const chunks of received) await waitFor('every line', () => length(chunks) >= printed.length, 30_000)
    for (const chunks of received) {
      assert.ok(Buffer.concat(chunks).equals(Buffer.from(printed)), 'every line, once, in order')
    }
    assertLog(rig, 'counter', printed)
    stopped.resume()
    assert.match(failureOf(await stopped.ended), /slow|keep up|did not/)
    for (const client of staying) client.vanish()
    await waitFor('the sessions to end', async () => (await rig.sessions('counter')) === 0)
    // Without clients it prints on.
    await rig.run({ id: 'alone', args: ['sh', '-c', 'seq 1 100000; exit 3'] })
    assert.equal(await rig.exitCode('alone'), 3)
    assertLog(rig, 'alone', Array.from({ length: 100_000 }, (_, i) => `${i + 1}\n`).join(''))
  })

  test('input of a client that asked for no output flows on, also past one that does not read (B18)', async () => {
    await rig.run({ id: 'copy', args: ['cat'], stdin: true })
    const stopped = await openAttach(rig, { id: 'copy', transport: 'websocket' })
    stopped.pause()
    const text = `${'x'.repeat(1023)}\n`.repeat(8192)
    for (const transport of transports) {
      const writer = await openAttach(rig, {
        id: 'copy',
        transport,
        stdin: true,
        stdout: false,
        stdinOnce: false,
      })
      writer.sendLast(text)
      assert.deepEqual(await writer.ended, { code: 0 })
    }
    await waitFor('the log to have it all', () => rig.logText('copy').length >= 2 * text.length, 20_000)
    assertLog(rig, 'copy', text + text)
    stopped.vanish()
  })

  test('clients of a silent container that leave are forgotten at once (B25)', async () => {
    const fds = streamFds(rig.serverPid())
    for (let round = 0; round < 5; round++) {
      const clients = await Promise.all(
        [...transports, ...transports].map((transport) => openAttach(rig, { id: 'silent', transport })),
      )
      assert.equal(await rig.sessions('silent'), 4)
      for (const client of clients) client.vanish()
      await waitFor('the sessions to end', async () => (await rig.sessions('silent')) === 0, 5000)
    }
    await waitFor('the descriptors to be closed', () => streamFds(rig.serverPid()) <= fds + 1)
  })

  test('non-terminal input is never looked at for detach keys (B34)', async () => {
    await rig.run({ id: 'plain', args: ['sleep', '1000'] })
    for (const transport of transports) {
      const { stdout } = await runExec(
        rig,
        { id: 'plain', command: ['od', '-An', '-tx1'], transport },
        '\x10\x11\x10',
      )
      assert.equal(stdout.toString().trim(), '10 11 10')
    }
  })

  test('an attach that does not match the container is refused at once (B80)', async () => {
    await assert.rejects(rig.client.serveAttach({ id: 'silent', tty: true }), /tty must match/)
    await assert.rejects(rig.client.serveAttach({ id: 'nobody' }), /container "nobody" not found/)
    await rig.run({ id: 'over', args: ['true'] })
    await rig.exitCode('over')
    await assert.rejects(rig.client.serveAttach({ id: 'over' }), /not running/)
  })

  test('a container that ends ends its attached clients with success, after all it said (B06)', async () => {
    for (const transport of transports) {
      const id = `ends-${transport}`
      await rig.run({ id, args: ['sh', '-c', 'cat; head -c 200000 /dev/zero; exit 7'], stdin: true })
      const client = await openAttach(rig, { id, transport, stdin: true, stdinOnce: true })
      client.closeStdin()
      const { end, stdout } = await finish(client)
      assert.deepEqual({ ...end, bytes: stdout.length }, { code: 0, bytes: 200_000 })
      assert.equal(await rig.exitCode(id), 7)
    }
  })
})

/** Without printing megabytes when it fails. */
function assertLog(rig: Rig, id: string, expected: string): void {
  const text = rig.logText(id)
  assert.ok(text === expected, `the log holds ${text.length} bytes, wanted ${expected.length}`)
}
