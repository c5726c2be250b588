// Stream URLs and what is said before a session begins: tokens, protocols, streams in any order.

import assert from 'node:assert/strict'
import { once } from 'node:events'
import { connect } from 'node:net'
import { after, before, describe, test } from 'node:test'
import { setTimeout as sleep } from 'node:timers/promises'
import { SpdyClient, data } from '../streaming/support/spdy-client.ts'
import { cpuMs } from '../support/process-facts.ts'
import { Rig } from '../support/rig.ts'
import { openSession, transports } from '../support/session-client.ts'

const secret = 'very-secret-argument'
const streams = { tty: false, stdin: false, stdout: true, stderr: true }

describe('a stream url', () => {
  let rig: Rig
  before(async () => {
    rig = await Rig.start('crun')
    await rig.run({ id: 'main', args: ['sleep', '100000'] })
  })
  after(async () => {
    await rig.close()
  })

  const issue = (...command: string[]): Promise<string> => rig.client.serveExec({ id: 'main', command })

  test('holds a random token and nothing of the command (B42)', async () => {
    const urls = await Promise.all(Array.from({ length: 20 }, () => issue('echo', secret)))
    assert.equal(new Set(urls).size, 20)
    for (const url of urls) {
      assert.match(url, /^http:\/\/127\.0\.0\.1:\d+\/exec\/[\w-]{22,}$/)
      assert.ok(!url.includes(secret))
    }
    assert.ok(!rig.diagnostics().includes(secret))
  })

  test('works once, also when two come at the same instant, over either transport (B42)', async () => {
    for (const transport of transports) {
      const url = await issue('sh', '-c', 'echo >> /tmp/runs')
      const attempts = await Promise.allSettled([1, 2, 3].map(() => openSession(transport, url, streams)))
      const [winner, ...more] = attempts.flatMap((attempt) =>
        attempt.status === 'fulfilled' ? [attempt.value] : [],
      )
      assert.equal(more.length, 0, 'one wins')
      assert.deepEqual(await winner?.ended, { code: 0 })
      for (const attempt of attempts)
        if (attempt.status === 'rejected') assert.match(String(attempt.reason), /404/)
      await assert.rejects(openSession(transport, url, streams), /404/)
    }
    const { stdout } = await rig.client.execSync({ id: 'main', command: ['wc', '-l', '/tmp/runs'] })
    assert.match(stdout.toString(), /^2 /)
  })

  test('is spent on a wrong path, and not found in other letters or with another method (B42)', async () => {
    const wrongPath = await issue('true')
    await assert.rejects(openSession('spdy', wrongPath.replace('/exec/', '/attach/'), streams), /404/)
    await assert.rejects(openSession('spdy', wrongPath, streams), /404/)
    const letters = await issue('true')
    const token = new URL(letters).pathname.split('/')[2] ?? ''
    const swapped = token.replaceAll(/[a-z]/gi, (letter) =>
      letter < 'a' ? letter.toLowerCase() : letter.toUpperCase(),
    )
    await assert.rejects(openSession('spdy', letters.replace(token, swapped), streams), /404/)
    const method = await issue('true')
    assert.match(await rawRequest(method, 'PUT'), /^HTTP\/1\.1 405 /)
    assert.match(await rawRequest(method.replace('/exec/', '/other/'), 'GET'), /^HTTP\/1\.1 404 /)
  })

  test('is refused when a thousand are pending, and the others stay good (B42)', async () => {
    const attempts = await Promise.allSettled(Array.from({ length: 1001 }, () => issue('true')))
    const urls = attempts.flatMap((attempt) => (attempt.status === 'fulfilled' ? [attempt.value] : []))
    const refusals = attempts.flatMap((attempt) =>
      attempt.status === 'rejected' ? [attempt.reason as Error] : [],
    )
    assert.ok(refusals.length > 0 && urls.length + refusals.length === 1001)
    const [refusal] = refusals
    assert.match(String(refusal), /in-flight|too many|maximum/i)
    assert.equal((refusal as { code?: string }).code, 'resource-exhausted')
    const session = await openSession('websocket', urls.at(-1) ?? '', streams)
    assert.deepEqual(await session.ended, { code: 0 })
    // A server of its own clears them for the tests that follow.
    await rig.killServer()
  })

  test('serves the first protocol of the client that it knows, from lines and lists alike (B31, B69)', async () => {
    for (const protocols of [
      ['v4.channel.k8s.io', 'v3.channel.k8s.io', 'v2.channel.k8s.io', 'channel.k8s.io'],
      ['v4.channel.k8s.io, v3.channel.k8s.io,v2.channel.k8s.io , channel.k8s.io'],
      ['v9.channel.k8s.io', ', v4.channel.k8s.io,'],
      [...Array.from({ length: 200 }, (_, i) => `v${i + 100}.channel.k8s.io`), 'v4.channel.k8s.io'],
    ]) {
      const client = await SpdyClient.connect(await issue('sh', '-c', 'exit 42'), { protocols })
      assert.equal(
        client.status.match(/^X-Stream-Protocol-Version: .*$/gim)?.join(),
        'X-Stream-Protocol-Version: v4.channel.k8s.io',
      )
      const [error] = await client.openAll('error', 'stdout', 'stderr')
      await client.until(() => client.hasFin(error ?? 0))
      assert.match(client.bytesOf(error ?? 0).toString(), /"reason":"ExitCode","message":"42"/)
      client.socket.destroy()
      await client.closed()
    }
  })

  test('tells an old client its failure as text, and refuses one that knows nothing of ours (B31)', async () => {
    const old = await SpdyClient.connect(await issue('sh', '-c', 'exit 42'), {
      protocols: ['channel.k8s.io'],
    })
    const [error] = await old.openAll('error', 'stdout', 'stderr')
    await old.until(() => old.hasFin(error ?? 0))
    assert.match(old.bytesOf(error ?? 0).toString(), /^command terminated with non-zero exit code/)
    old.socket.destroy()
    await old.closed()
    const url = await issue('true')
    const unknown = await SpdyClient.connect(url, { protocols: ['v9.channel.k8s.io'] })
    assert.match(unknown.status, /^HTTP\/1\.1 403 /)
    assert.match(unknown.status, /X-Accepted-Stream-Protocol-Versions: v4\.channel\.k8s\.io/i)
    await unknown.closed()
    await assert.rejects(openSession('spdy', url, streams), /404/)
  })

  test('waits for streams that come late and in any order, and a terminal wants no stderr (B74)', async () => {
    const url = await rig.client.serveExec({ id: 'main', command: ['sh', '-c', 'cat; exit 3'], stdin: true })
    const client = await SpdyClient.connect(url)
    const ids = new Map<string, number>()
    for (const role of ['stderr', 'stdin', 'stdout', 'error']) {
      ids.set(role, await client.open(role))
      await sleep(200)
    }
    client.send(data(ids.get('stdin') ?? 0, 'text', true))
    await client.until(() => client.hasFin(ids.get('error') ?? 0))
    assert.equal(client.bytesOf(ids.get('stdout') ?? 0).toString(), 'text')
    client.socket.destroy()
    await client.closed()
    const tty = await rig.client.serveExec({ id: 'main', command: ['echo', 'hi'], tty: true, stdin: true })
    const terminal = await SpdyClient.connect(tty)
    const [error, , stdout] = await terminal.openAll('error', 'stdin', 'stdout', 'resize')
    await terminal.until(() => terminal.hasFin(error ?? 0))
    assert.equal(terminal.bytesOf(stdout ?? 0).toString(), 'hi\r\n')
    terminal.socket.destroy()
    await terminal.closed()
  })

  test('costs no work while nothing moves after the end of input (B74)', async () => {
    const sessions = await Promise.all(
      transports.map(async (transport) => {
        const flags = { ...streams, stdin: true }
        const url = await rig.client.serveExec({
          id: 'main',
          command: ['sh', '-c', 'cat; sleep 3; exit 2'],
          stdin: true,
        })
        return openSession(transport, url, flags)
      }),
    )
    for (const session of sessions) session.sendLast('text')
    for (const session of sessions) await session.until('text')
    const before = cpuMs(rig.serverPid())
    await sleep(2000)
    const used = cpuMs(rig.serverPid()) - before
    assert.ok(used < 200, `the server worked for ${used} ms`)
    for (const session of sessions) assert.deepEqual(await session.ended, { code: 2 })
  })
})

describe('a monitor that is told to end', () => {
  test('ends its sessions with a failure, not with success (B29)', async () => {
    const rig = await Rig.start('runc')
    try {
      await rig.run({ id: 'main', args: ['sleep', '100000'] })
      const flags = { ...streams, stdin: true }
      const sessions = await Promise.all(
        transports.map(async (transport) => {
          const command = ['sh', '-c', 'echo ready; cat; exit 28']
          return openSession(
            transport,
            await rig.client.serveExec({ id: 'main', command, stdin: true }),
            flags,
          )
        }),
      )
      for (const session of sessions) await session.until('ready')
      process.kill(rig.keeperPid, 'SIGTERM')
      for (const session of sessions) {
        const end = await session.ended
        assert.ok('failure' in end, JSON.stringify(end))
        assert.match(end.failure, /stopping/)
      }
      assert.equal(await rig.exitCode('main'), 137)
    } finally {
      await rig.close()
    }
  })
})

/** A request without an upgrade; the answer. */
async function rawRequest(url: string, method: string): Promise<string> {
  const { hostname, port, pathname } = new URL(url)
  const socket = connect(Number(port), hostname)
  socket.end(`${method} ${pathname} HTTP/1.1\r\nHost: node\r\nConnection: close\r\n\r\n`)
  let text = ''
  socket.on('data', (chunk: Buffer) => {
    text += chunk.toString()
  })
  await once(socket, 'close')
  return text
}
