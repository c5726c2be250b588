// Port-forward into a pod's network namespace: what one connection suffers is no other's business, each direction ends by
// itself, and the namespace is the pod's whatever its name has come to mean.

import assert from 'node:assert/strict'
import { execFileSync } from 'node:child_process'
import { writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { after, before, beforeEach, describe, afterEach, test } from 'node:test'
import { ForwardClient, type Forwarded } from '../support/forward-client.ts'
import { PodServers, type PodListener } from '../support/pod-servers.ts'
import { Rig, streamFds, waitFor } from '../support/rig.ts'

const mebibyte = 1024 * 1024
const podSandboxId = 'pod1'
const podAddress = '10.99.0.1'
const ports = {
  echo: 8000,
  reset: 8001,
  unread: 8002,
  answerEnd: 8003,
  sendFirst: 8004,
  tell: 8005,
  download: 8006,
  late: 8007,
  nobody: 8008,
  v6: 8080,
  v4: 8081,
  v6Only: 8082,
  podAddress: 8083,
}
const listeners: PodListener[] = [
  { port: ports.echo, does: 'echo' },
  { port: ports.reset, does: 'reset' },
  { port: ports.unread, does: 'answer-unread' },
  { port: ports.answerEnd, does: 'answer-end' },
  { port: ports.sendFirst, does: 'send-first' },
  { port: ports.tell, does: 'tell' },
  { port: ports.download, does: 'download' },
  { port: ports.late, does: 'answer-late' },
  { port: ports.v6, host: '::1', does: 'greet' },
  { port: ports.v4, does: 'greet' },
  { port: ports.v6Only, host: '::', does: 'greet' },
  { port: ports.podAddress, host: podAddress, does: 'greet' },
]

describe('a port-forward', () => {
  let rig: Rig
  let netnsPath: string
  let servers: PodServers
  let client: ForwardClient
  before(async () => {
    rig = await Rig.start('runc')
    netnsPath = await makePod(rig)
    inNamespace(netnsPath, 'ip', 'addr', 'add', `${podAddress}/32`, 'dev', 'lo')
    servers = await PodServers.start(netnsPath, listeners)
  })
  after(async () => {
    await servers.close()
    await rig.close()
  })
  beforeEach(async () => {
    client = await openClient(rig, netnsPath)
  })
  afterEach(async () => {
    client.close()
    await client.closed
  })

  test('carries bytes both ways (M04, B73)', async () => {
    const connection = await client.connect(ports.echo)
    const bytes = Buffer.alloc(10 * mebibyte, 'port')
    connection.send(bytes)
    connection.end()
    assert.equal(await connection.ended, 'fin')
    assert.ok(connection.received.equals(bytes))
    assert.equal(await connection.error, '')
  })

  test('goes on when the pod resets connections, closes without reading, or does not listen (B36)', async () => {
    const download = await client.connect(ports.download)
    for (let i = 0; i < 10; i++) {
      const reset = await client.connect(ports.reset)
      reset.send('hello')
      assert.notEqual(await reset.ended, 'session over')
      assert.equal(await reset.error, '', 'a reset is told by a reset alone: text would end the client')
    }
    const unread = await client.connect(ports.unread)
    for (let i = 0; i < 20; i++) unread.send(Buffer.alloc(mebibyte))
    await waitFor('the answer', () => unread.received.includes('ok'))
    assert.notEqual(await unread.ended, 'session over')
    assert.equal(await unread.error, '')
    await assertEcho(client)
    assert.equal(await download.ended, 'fin')
    assert.equal(download.received.length, 4 * mebibyte)
    // The text comes last: clients of kubectl's kind close the session when they see it.
    const refused = await client.connect(ports.nobody)
    assert.match(await refused.error, /error forwarding port 8008 to pod pod1, uid : .*ECONNREFUSED/)
    assert.equal(await refused.ended, 'reset')
    await assertEcho(client)
  })

  test('passes on the end of the client alone, and that of the pod alone (B38)', async () => {
    const asking = await client.connect(ports.answerEnd)
    asking.send('Input\n')
    asking.end()
    const first = await client.connect(ports.sendFirst)
    assert.equal(await first.ended, 'fin')
    assert.equal(first.received.length, mebibyte)
    for (let i = 0; i < 10; i++) first.send(Buffer.alloc(mebibyte))
    first.end()
    await waitFor('the whole upload', async () => (await ask(client, ports.tell)) === String(10 * mebibyte))
    assert.equal(await asking.ended, 'fin')
    assert.equal(asking.received.toString(), 'Reply')
  })

  test('reaches servers on either loopback address, and none that listens elsewhere (B40)', async () => {
    for (const port of [ports.v6, ports.v4, ports.v6Only]) assert.equal(await ask(client, port), String(port))
    const connection = await client.connect(ports.podAddress)
    assert.match(await connection.error, /IPv4 .*ECONNREFUSED.*IPv6 .*ECONNREFUSED/)
  })

  test('survives hundreds of connections that are given up, and keeps pairs apart (B41)', async () => {
    const fds = streamFds(rig.serverPid())
    const connections: Forwarded[] = []
    for (let i = 0; i < 300; i++) connections.push(await client.connect(ports.late))
    for (const connection of connections.slice(50)) connection.reset()
    assert.equal(await ask(client, ports.v4), String(ports.v4))
    for (const connection of connections.slice(0, 50)) {
      assert.equal(await connection.ended, 'fin')
      assert.equal(connection.received.toString(), 'late')
      connection.end()
    }
    const echoes = await Promise.all(Array.from({ length: 50 }, () => client.connect(ports.echo)))
    for (const [i, echo] of echoes.entries()) {
      echo.send(`pair ${i}`)
      echo.end()
    }
    for (const [i, echo] of echoes.entries()) {
      await echo.ended
      assert.equal(echo.received.toString(), `pair ${i}`)
    }
    await waitFor('the sockets to be closed', () => streamFds(rig.serverPid()) <= fds)
  })

  test('ends every connection in the pod when its client vanishes (B26, B41)', async () => {
    const fds = streamFds(rig.serverPid())
    for (let i = 0; i < 20; i++) (await client.connect(ports.echo)).send('hello')
    client.close()
    // The client's own socket is closed, too.
    await waitFor('the sockets to be closed', () => streamFds(rig.serverPid()) < fds)
  })
})

describe('a network namespace', () => {
  let rig: Rig
  let netnsPath: string
  let servers: PodServers
  before(async () => {
    rig = await Rig.start('crun')
    netnsPath = await makePod(rig)
    servers = await PodServers.start(netnsPath, [{ port: ports.v4, does: 'greet' }])
  })
  after(async () => {
    await servers.close()
    await rig.close()
  })

  test('whose loopback is down, or has no IPv6, gives a clear error (B40)', async () => {
    const client = await openClient(rig, netnsPath)
    inNamespace(netnsPath, 'sh', '-c', 'echo 1 > /proc/sys/net/ipv6/conf/all/disable_ipv6')
    assert.equal(await ask(client, ports.v4), String(ports.v4))
    assert.match(await (await client.connect(ports.nobody)).error, /IPv4 .*ECONNREFUSED.*IPv6 /)
    inNamespace(netnsPath, 'ip', 'link', 'set', 'lo', 'down')
    const down = await (await client.connect(ports.v4)).error
    assert.match(down, /IPv4 .*(is its loopback interface up|ENETUNREACH).*IPv6 /)
    inNamespace(netnsPath, 'ip', 'link', 'set', 'lo', 'up')
    assert.equal(await ask(client, ports.v4), String(ports.v4))
    client.close()
    await client.closed
  })

  test('is the pod’s also when its name means something else by now, and never another (B75)', async () => {
    const url = await rig.client.servePortForward({ podSandboxId, netnsPath })
    execFileSync('umount', ['--lazy', netnsPath])
    writeFileSync(netnsPath, 'an ordinary file\n')
    const client = await ForwardClient.open(url)
    assert.equal(await ask(client, ports.v4), String(ports.v4))
    client.close()
    await client.closed
    await assert.rejects(rig.client.servePortForward({ podSandboxId, netnsPath }), {
      code: 'failed-precondition',
      message: /not a namespace/,
    })
    await assert.rejects(rig.client.servePortForward({ podSandboxId, netnsPath: `${netnsPath}-gone` }), {
      code: 'not-found',
    })
    await rig.killServer()
    await assert.rejects(rig.client.servePortForward({ podSandboxId, netnsPath }), {
      code: 'failed-precondition',
    })
    // Teardown succeeds all the same: the rig checks that no mount stays.
  })
})

async function makePod(rig: Rig): Promise<string> {
  const basePath = join(rig.directory, 'ns')
  const paths = await rig.client.createNamespaces({ podId: podSandboxId, namespaces: ['net'], basePath })
  return paths.find(({ type }) => type === 'net')?.path ?? assert.fail('no network namespace')
}

async function openClient(rig: Rig, netnsPath: string): Promise<ForwardClient> {
  return ForwardClient.open(await rig.client.servePortForward({ podSandboxId, netnsPath }))
}

function inNamespace(netnsPath: string, ...command: string[]): void {
  execFileSync('nsenter', [`--net=${netnsPath}`, 'busybox', ...command], { stdio: 'pipe' })
}

/** Everything that a server says of itself. */
async function ask(client: ForwardClient, port: number): Promise<string> {
  const connection = await client.connect(port)
  assert.equal(await connection.ended, 'fin', await connection.error)
  connection.end()
  return connection.received.toString()
}

async function assertEcho(client: ForwardClient): Promise<void> {
  const connection = await client.connect(ports.echo)
  connection.send('still here')
  connection.end()
  assert.equal(await connection.ended, 'fin')
  assert.equal(connection.received.toString(), 'still here')
}
