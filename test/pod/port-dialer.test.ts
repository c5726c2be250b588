import assert from 'node:assert/strict'
import { closeSync, mkdtempSync, rmSync, writeFileSync } from 'node:fs'
import { createServer, type Server } from 'node:net'
import { once } from 'node:events'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { describe, test } from 'node:test'
import { NetworkNamespaces, openNamespace } from '../../src/pod/network-namespaces.ts'
import { dialPort } from '../../src/pod/port-dialer.ts'
import { checkLeaks } from '../support/leak-check.ts'

checkLeaks()

async function listen(host: string): Promise<{ server: Server; port: number }> {
  const server = createServer((socket) => socket.pipe(socket))
  server.listen({ host, port: 0, ipv6Only: true })
  await once(server, 'listening')
  const address = server.address()
  return { server, port: typeof address === 'object' && address !== null ? address.port : 0 }
}

const own = '/proc/self/ns/net'

describe('dialling', () => {
  for (const host of ['127.0.0.1', '::1']) {
    test(`reaches a listener on ${host} only (B40)`, async () => {
      const { server, port } = await listen(host)
      const socket = await dialPort(own, port, new AbortController().signal)
      socket.end('hello')
      const chunks: Buffer[] = []
      for await (const chunk of socket) chunks.push(chunk as Buffer)
      assert.equal(Buffer.concat(chunks).toString(), 'hello')
      server.close()
      await once(server, 'close')
    })
  }

  test('tells the reasons of both families when nobody listens', async () => {
    const { server, port } = await listen('127.0.0.1')
    server.close()
    await once(server, 'close')
    await assert.rejects(
      dialPort(own, port, new AbortController().signal),
      new RegExp(`connect to localhost:${port} .*IPv4 .*ECONNREFUSED.*IPv6 `),
    )
  })

  test('ends at once when it is given up', async () => {
    await assert.rejects(dialPort(own, 9, AbortSignal.abort()))
  })
})

describe('a network namespace', () => {
  test('is refused unless it is one (B75)', () => {
    const directory = mkdtempSync(join(tmpdir(), 'holdfast-netns-'))
    writeFileSync(join(directory, 'file'), '')
    assert.throws(() => openNamespace(join(directory, 'file')), /not a namespace/)
    assert.throws(() => openNamespace(join(directory, 'none')), /ENOENT/)
    rmSync(directory, { recursive: true })
  })

  test('is opened once however often it is named', () => {
    const networks = new NetworkNamespaces()
    const handle = networks.open('')
    assert.equal(networks.open('/proc/self/ns/net'), handle)
    closeSync(openNamespace(handle))
    networks.close()
  })
})
