import assert from 'node:assert/strict'
import { once } from 'node:events'
import { request, type IncomingMessage } from 'node:http'
import { connect } from 'node:net'
import { test } from 'node:test'
import { checkLeaks } from '../support/leak-check.ts'
import { SpdyClient } from './support/spdy-client.ts'
import { FakeClock } from './support/fake-clock.ts'
import { startServer } from './support/test-server.ts'

checkLeaks()

const spdy = { Connection: 'Upgrade', Upgrade: 'SPDY/3.1' }
const webSocket = {
  Connection: 'keep-alive, Upgrade',
  Upgrade: 'WebSocket',
  'Sec-WebSocket-Version': '13',
  'Sec-WebSocket-Key': 'dGhlIHNhbXBsZSBub25jZQ==',
}

interface Answer {
  readonly status: number | undefined
  readonly body: string
  readonly headers: IncomingMessage['headers']
  readonly rawHeaders: string[]
}

async function ask(url: string, headers: Record<string, string | string[]>, method = 'GET'): Promise<Answer> {
  const sent = request(url, { headers, method })
  sent.end()
  const [response] = (await once(sent, 'response')) as [IncomingMessage]
  response.setEncoding('utf8')
  let body = ''
  response.on('data', (text: string) => (body += text))
  await once(response, 'end')
  return { status: response.statusCode, body, headers: response.headers, rawHeaders: response.rawHeaders }
}

/** Sends bytes and reads to the end of the connection. */
async function raw(url: string, text: string): Promise<string> {
  const { port, pathname } = new URL(url)
  const socket = connect(Number(port), '127.0.0.1')
  socket.write(text.replaceAll('PATH', pathname))
  const chunks: Buffer[] = []
  socket.on('data', (chunk: Buffer) => chunks.push(chunk))
  await once(socket, 'end')
  socket.destroy()
  return Buffer.concat(chunks).toString('latin1')
}

test('gives out absolute loopback URLs with at least 128 random bits and nothing of the session', async (t) => {
  const { exec, attach, portForward } = startServer(t)
  const urls = [await exec(['secret']), await attach(), await portForward()]
  assert.match(urls[0] ?? '', /^http:\/\/127\.0\.0\.1:\d+\/exec\/[A-Za-z0-9_-]{22,}$/)
  assert.match(urls[1] ?? '', /^http:\/\/127\.0\.0\.1:\d+\/attach\/[A-Za-z0-9_-]{22,}$/)
  assert.match(urls[2] ?? '', /^http:\/\/127\.0\.0\.1:\d+\/portforward\/[A-Za-z0-9_-]{22,}$/)
  assert.equal(new Set(urls.map((url) => new URL(url).port)).size, 1)
})

const refusals: readonly (readonly [string, Record<string, string | string[]>, number, RegExp])[] = [
  [
    'without a protocol header',
    spdy,
    400,
    /^unable to upgrade: header X-Stream-Protocol-Version does not exist in request with \d+ headers\n$/,
  ],
  ['without anything', {}, 400, /does not exist in request/],
  [
    'with an empty protocol header',
    { ...spdy, 'X-Stream-Protocol-Version': ' , ' },
    400,
    /^unable to upgrade: header X-Stream-Protocol-Version contains \[.*\], but no valid protocols\n$/,
  ],
  [
    'with unknown protocols',
    { ...spdy, 'X-Stream-Protocol-Version': ['v9', 'v8, v7'] },
    403,
    /^unable to upgrade: unable to negotiate protocol: client supports \[v9 v8 v7\], server accepts \[v4\.channel\.k8s\.io v3\.channel\.k8s\.io v2\.channel\.k8s\.io channel\.k8s\.io\]\n$/,
  ],
  [
    'with a protocol and no upgrade',
    { 'X-Stream-Protocol-Version': 'v4.channel.k8s.io' },
    400,
    /^unable to upgrade: missing upgrade headers in request: /,
  ],
  [
    'with another upgrade',
    { Connection: 'Upgrade', Upgrade: 'h2c', 'X-Stream-Protocol-Version': 'v4.channel.k8s.io' },
    400,
    /^unable to upgrade: missing upgrade headers in request: /,
  ],
  [
    'with an unknown WebSocket protocol',
    { ...webSocket, 'Sec-WebSocket-Protocol': 'v3.channel.k8s.io' },
    403,
    /^$/,
  ],
  ['with a bad WebSocket version', { ...webSocket, 'Sec-WebSocket-Version': '9' }, 400, /./],
  ['with a bad WebSocket key', { ...webSocket, 'Sec-WebSocket-Key': 'x' }, 400, /./],
]

for (const [name, headers, status, body] of refusals) {
  test(`refuses a request ${name}, runs nothing and spends the token`, async (t) => {
    const { exec, backend } = startServer(t)
    for (const method of [
      'Upgrade' in headers && headers['Upgrade'] === 'WebSocket' ? 'GET' : 'POST',
      'GET',
    ]) {
      const url = await exec(['exit'])
      const answer = await ask(url, headers, method)
      assert.equal(answer.status, status)
      assert.match(answer.body, body)
      const again = await ask(url, headers, method)
      assert.equal(again.status, 404)
      assert.equal(again.body, '404 page not found\n')
      assert.equal(again.headers['content-type'], 'text/plain; charset=utf-8')
      assert.equal(again.headers['x-content-type-options'], 'nosniff')
    }
    assert.equal(backend.runs.length, 0)
  })
}

test('lists its protocols, one line each, when none is common', async (t) => {
  const { exec, portForward } = startServer(t)
  const headers = { ...spdy, 'X-Stream-Protocol-Version': 'v9' }
  const lines = async (url: string) => {
    const { rawHeaders } = await ask(url, headers)
    return rawHeaders.filter((_, i) => rawHeaders[i - 1] === 'X-Accepted-Stream-Protocol-Versions')
  }
  assert.deepEqual(await lines(await exec(['exit'])), [
    'v4.channel.k8s.io',
    'v3.channel.k8s.io',
    'v2.channel.k8s.io',
    'channel.k8s.io',
  ])
  assert.deepEqual(await lines(await portForward()), ['portforward.k8s.io'])
})

test('answers 404 to unknown paths and to tokens of another kind, which are spent', async (t) => {
  const { exec } = startServer(t)
  const url = await exec(['exit'])
  const headers = { ...spdy, 'X-Stream-Protocol-Version': 'v4.channel.k8s.io' }
  assert.equal((await ask(url.replace('/exec/', '/exex/'), headers)).status, 404)
  assert.equal((await ask(`${url}/x`, headers)).status, 404)
  assert.equal((await ask(url.replace('/exec/', '/attach/'), headers)).status, 404)
  assert.equal((await ask(url, headers)).status, 404)
})

test('answers 405 to other methods, without spending the token', async (t) => {
  const { exec, backend } = startServer(t)
  const url = await exec(['exit'])
  for (const method of ['PUT', 'DELETE', 'OPTIONS']) assert.equal((await ask(url, spdy, method)).status, 405)
  const client = await SpdyClient.connect(url)
  await client.openAll('error', 'stdout')
  await client.until(() => client.ended)
  assert.equal(backend.runs.length, 1)
})

test('answers 405 to a WebSocket handshake that is not a GET', async (t) => {
  const { exec } = startServer(t)
  const headers = { ...webSocket, 'Sec-WebSocket-Protocol': 'v4.channel.k8s.io' }
  assert.equal((await ask(await exec(['exit']), headers, 'POST')).status, 405)
})

test('lets exactly one of two requests at the same instant win', async (t) => {
  const { exec, backend } = startServer(t)
  const url = await exec(['exit'])
  const clients = await Promise.all([SpdyClient.connect(url), SpdyClient.connect(url)])
  const statuses = clients.map(({ status }) => status.slice(9, 12)).toSorted()
  assert.deepEqual(statuses, ['101', '404'])
  for (const client of clients) client.socket.destroy()
  for (const client of clients) await client.closed()
  assert.equal(backend.runs.length, 0)
})

test('refuses the request after the last that may wait, and tokens older than a minute', async (t) => {
  const clock = new FakeClock()
  const { exec } = startServer(t, { clock, limits: { maxPending: 2 } })
  const url = await exec(['exit'])
  await exec(['exit'])
  await assert.rejects(exec(['exit']), { code: 'resource-exhausted' })
  clock.advance(60_001)
  assert.equal((await ask(url, spdy)).status, 404)
  await exec(['exit'])
})

test('refuses an upgrade with a body', async (t) => {
  const { exec } = startServer(t)
  const head = 'POST PATH HTTP/1.1\r\nHost: x\r\nConnection: Upgrade\r\nUpgrade: SPDY/3.1\r\n'
  const version = 'X-Stream-Protocol-Version: v4.channel.k8s.io\r\n'
  assert.match(
    await raw(await exec(['exit']), `${head}${version}Content-Length: 5\r\n\r\nhello`),
    /^HTTP\/1\.1 400 /,
  )
  const chunked = `${head}${version}Transfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n0\r\n\r\n`
  assert.match(await raw(await exec(['exit']), chunked), /^HTTP\/1\.1 400 /)
})

test('survives what is no HTTP', async (t) => {
  const { exec } = startServer(t)
  const url = await exec(['exit'])
  assert.match(await raw(url, 'hello\r\n\r\n'), /^HTTP\/1\.1 400 /)
  assert.match(await raw(url, `GET PATH HTTP/1.1\r\nX: ${'x'.repeat(20_000)}\r\n\r\n`), /^HTTP\/1\.1 431 /)
  assert.match(await raw(url, 'GET / HTTP/1.0\r\n\r\n'), /^HTTP\/1\.1 404 /)
  const client = await SpdyClient.connect(url)
  assert.match(client.status, /^HTTP\/1\.1 101 /)
  client.socket.destroy()
  await client.closed()
})
