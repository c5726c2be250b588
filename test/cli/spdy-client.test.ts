import assert from 'node:assert/strict'
import { createHash, randomBytes } from 'node:crypto'
import { once } from 'node:events'
import { connect, createServer, type AddressInfo, type Server, type Socket } from 'node:net'
import { after, before, test } from 'node:test'
import { Diagnostics } from '../../src/base/diagnostics.ts'
import { MonitorError } from '../../src/base/errors.ts'
import { SpdyForwarder } from '../../src/cli/spdy-client.ts'
import { StreamingServer } from '../../src/streaming/streaming-server.ts'
import { checkLeaks } from '../support/leak-check.ts'

// Against our own streaming server, which real kubectl and crictl speak to in test/interop; the pod is a server here.
let pod: Server
let streaming: StreamingServer
let onPodConnection: (socket: Socket) => void
before(async () => {
  pod = createServer({ allowHalfOpen: true }, (socket) => onPodConnection(socket.on('error', () => {})))
  await once(pod.listen(0, '127.0.0.1'), 'listening')
  streaming = new StreamingServer({
    diagnostics: new Diagnostics(() => {}),
    backend: {
      exec: () => Promise.reject(new Error('not here')),
      attach: () => Promise.reject(new Error('not here')),
      dial: async (_, port) => {
        if (port === 81) throw new MonitorError('unavailable', 'connection refused')
        const socket = connect({ port: (pod.address() as AddressInfo).port, allowHalfOpen: true })
        socket.pause()
        await once(socket, 'connect')
        return socket
      },
    },
  })
})
after(async () => {
  await streaming.close()
  pod.close()
})
checkLeaks()

/** A forwarder, and a function that makes a local connection through it. */
async function open(onError: (port: number, text: string) => void = () => {}) {
  const session = { kind: 'portforward', podSandboxId: 'p', netnsPath: '', ports: [] } as const
  const forwarder = await SpdyForwarder.open(await streaming.issue(session), onError)
  const dial = async (port: number): Promise<Socket> => {
    const local = createServer({ allowHalfOpen: true }, (socket) => forwarder.forward(socket, port))
    await once(local.listen(0, '127.0.0.1'), 'listening')
    const client = connect({ port: (local.address() as AddressInfo).port, allowHalfOpen: true })
    client.on('error', () => {})
    await once(client, 'connect')
    local.close()
    return client
  }
  return { forwarder, dial }
}

async function everything(socket: Socket): Promise<Buffer> {
  const parts: Buffer[] = []
  socket.on('data', (chunk: Buffer) => parts.push(chunk)).on('end', () => socket.end())
  await once(socket, 'close')
  return Buffer.concat(parts)
}

function digest(bytes: Buffer): string {
  return createHash('sha256').update(bytes).digest('hex')
}

test('many connections at once carry their own bytes both ways', async () => {
  onPodConnection = (socket) => socket.pipe(socket)
  const { forwarder, dial } = await open()
  await Promise.all(
    Array.from({ length: 20 }, async () => {
      const bytes = randomBytes(300_000)
      const client = await dial(80)
      const answer = everything(client)
      client.end(bytes)
      assert.equal(digest(await answer), digest(bytes))
    }),
  )
  forwarder.close()
  await forwarder.ended
})

test('the end of one direction is not the end of the other', async () => {
  onPodConnection = (socket) => {
    let text = ''
    socket.on('data', (chunk: Buffer) => (text += String(chunk)))
    socket.on('end', () => socket.end(`got ${text}`))
  }
  const { forwarder, dial } = await open()
  const client = await dial(80)
  client.end('all of it')
  assert.equal(String(await everything(client)), 'got all of it')

  // The other way round: the pod has said everything, and hears the rest.
  const heard = new Promise<string>((resolve) => {
    onPodConnection = (socket) => {
      socket.end('first')
      void everything(socket).then((bytes) => resolve(String(bytes)))
    }
  })
  const second = await dial(80)
  await once(second.resume(), 'end')
  second.end('afterwards')
  assert.equal(await heard, 'afterwards')
  forwarder.close()
  await forwarder.ended
})

test('a connection that is refused ends alone, with its reason', async () => {
  onPodConnection = (socket) => socket.end('fine')
  const errors: [number, string][] = []
  const { forwarder, dial } = await open((port, text) => errors.push([port, text]))
  await everything(await dial(81))
  assert.equal(String(await everything(await dial(80))), 'fine')
  assert.equal(errors.length, 1)
  assert.equal(errors[0]?.[0], 81)
  assert.match(errors[0]?.[1] ?? '', /connection refused/)
  forwarder.close()
  await forwarder.ended
})

test('a client that goes away takes its connection in the pod with it', async () => {
  const podSocket = new Promise<Socket>((resolve) => (onPodConnection = resolve))
  const { forwarder, dial } = await open()
  const client = await dial(80)
  client.write('x')
  const socket = await podSocket
  const gone = everything(socket)
  client.resetAndDestroy()
  await gone
  forwarder.close()
  await forwarder.ended
})

test('a client that does not read does not stop the others', async () => {
  onPodConnection = (socket) =>
    void socket.once('data', (what: Buffer) => socket.end(Buffer.alloc(Number(what))))
  const { forwarder, dial } = await open()
  const slow = await dial(80)
  slow.pause()
  slow.write('3000000')
  const fast = await dial(80)
  fast.write('1000000')
  assert.equal((await everything(fast)).length, 1_000_000)
  const late = everything(slow)
  slow.resume()
  assert.equal((await late).length, 3_000_000)
  forwarder.close()
  await forwarder.ended
})

test('the end of the connection ends every local one, and is told', async () => {
  onPodConnection = (socket) => void everything(socket)
  const { forwarder, dial } = await open()
  const client = everything(await dial(80))
  forwarder.close()
  assert.match(await forwarder.ended, /closed/)
  await client
})

test('a URL that is used up is refused', async () => {
  const url = new URL(
    await streaming.issue({ kind: 'portforward', podSandboxId: 'p', netnsPath: '', ports: [] }),
  )
  url.pathname = '/portforward/unknown'
  await assert.rejects(
    SpdyForwarder.open(url.href, () => {}),
    /open port-forward: the server answered 404/,
  )
})
