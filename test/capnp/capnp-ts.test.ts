// capnp-ts's own connection as a second peer, both ways. Two rules keep its faults out of the way: it sees only
// messages that our reader has walked, and no pointer field of its structs is written twice.

import assert from 'node:assert/strict'
import { mkdtempSync, rmSync } from 'node:fs'
import type { Server as NetServer, Socket } from 'node:net'
import { createServer } from 'node:net'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { after, afterEach, before, beforeEach, describe, test } from 'node:test'
import * as capnp from 'capnp-ts'
import { MessageFramer } from '../../src/capnp/message-framing.ts'
import { Message as MessageTable } from '../../src/capnp/rpc-messages.ts'
import { StructReader } from '../../src/capnp/struct-reader.ts'
import { dialUnix } from '../../src/client/dial-unix.ts'
import { MonitorClient } from '../../src/client/monitor-client.ts'
import { Conmon } from '../../src/generated/conmon.ts'
import { TestServer } from '../rpc/serve.ts'
import { checkLeaks } from '../support/leak-check.ts'

checkLeaks()

/** Whole messages over a stream socket, for capnp-ts, which has only a WebSocket of its own. */
class StreamTransport implements capnp.Transport {
  readonly #socket: Socket
  readonly #framer = new MessageFramer(2 ** 26)
  #onMessage: (message: Uint8Array) => void = () => {}

  constructor(socket: Socket) {
    this.#socket = socket
    socket.on('error', () => {})
    socket.on('data', (chunk: Buffer) => {
      this.#framer.push(chunk)
      for (let segments = this.#framer.next(); segments !== undefined; segments = this.#framer.next()) {
        const reader = new StructReader(segments)
        reader.struct(MessageTable, reader.root())
        this.#onMessage(framed(segments))
      }
    })
  }

  onMessage(callback: (message: Uint8Array) => void): void {
    this.#onMessage = callback
  }

  onClose(callback: (error?: Error) => void): void {
    this.#socket.on('close', () => callback())
  }

  send(message: Uint8Array): void {
    this.#socket.write(message)
  }

  close(): void {
    this.#socket.destroy()
  }
}

function framed(segments: readonly Buffer[]): Buffer {
  const header = Buffer.alloc((4 + 4 * segments.length + 7) & ~7)
  header.writeUInt32LE(segments.length - 1, 0)
  segments.forEach((segment, i) => header.writeUInt32LE(segment.length / 8, 4 + 4 * i))
  return Buffer.concat([header, ...segments])
}

// What capnp-ts's compiler would make of the parts used here: `_capnp` says the sizes.

class VersionRequest extends capnp.Struct {
  static override readonly _capnp = {
    displayName: 'VersionRequest',
    id: '',
    size: new capnp.ObjectSize(8, 1),
  }
}
class VersionParams extends capnp.Struct {
  static override readonly _capnp = { displayName: 'VersionParams', id: '', size: new capnp.ObjectSize(0, 1) }
}
class VersionResponse extends capnp.Struct {
  static override readonly _capnp = {
    displayName: 'VersionResponse',
    id: '',
    size: new capnp.ObjectSize(8, 8),
  }
}
class VersionResults extends capnp.Struct {
  static override readonly _capnp = {
    displayName: 'VersionResults',
    id: '',
    size: new capnp.ObjectSize(0, 1),
  }
}
class ExecRequest extends capnp.Struct {
  static override readonly _capnp = { displayName: 'ExecRequest', id: '', size: new capnp.ObjectSize(16, 4) }
}
class ExecParams extends capnp.Struct {
  static override readonly _capnp = { displayName: 'ExecParams', id: '', size: new capnp.ObjectSize(0, 1) }
}
class ExecResponse extends capnp.Struct {
  static override readonly _capnp = { displayName: 'ExecResponse', id: '', size: new capnp.ObjectSize(8, 2) }
}
class ExecResults extends capnp.Struct {
  static override readonly _capnp = { displayName: 'ExecResults', id: '', size: new capnp.ObjectSize(0, 1) }
}

const version: capnp.Method<VersionParams, VersionResults> = {
  interfaceId: Conmon.id,
  interfaceName: 'Conmon',
  methodId: 0,
  methodName: 'version',
  ParamsClass: VersionParams,
  ResultsClass: VersionResults,
}
const execSync: capnp.Method<ExecParams, ExecResults> = {
  interfaceId: Conmon.id,
  interfaceName: 'Conmon',
  methodId: 2,
  methodName: 'execSyncContainer',
  ParamsClass: ExecParams,
  ResultsClass: ExecResults,
}

class Stub {
  readonly client: capnp.Client
  constructor(client: capnp.Client) {
    this.client = client
  }
}
const ConmonStub = { Client: Stub, _capnp: { displayName: 'Conmon', id: Conmon.id.toString(16) } }

describe('capnp-ts as a client of our server', () => {
  let server: TestServer
  let connection: capnp.Conn
  let monitor: Stub
  beforeEach(async () => {
    server = new TestServer()
    connection = new capnp.Conn(new StreamTransport(await dialUnix(server.path)))
    monitor = connection.bootstrap(ConmonStub)
  })
  afterEach(() => {
    connection.close()
    server.close()
  })

  async function exec(id: string): Promise<ExecResponse> {
    const results = await monitor.client.call(execSync, (params) => {
      capnp.Struct.setText(0, id, capnp.Struct.initStructAt(0, ExecRequest, params))
    })
    return capnp.Struct.getStruct(0, ExecResponse, results)
  }

  test('calls on its bootstrap promise', async () => {
    const results = await monitor.client.call(version, (params) => {
      capnp.Struct.setBit(0, true, capnp.Struct.initStructAt(0, VersionRequest, params))
    })
    const response = capnp.Struct.getStruct(0, VersionResponse, results)
    assert.equal(capnp.Struct.getUint32(0, response), 4242)
    assert.equal(capnp.Struct.getText(7, response), 'verbose-tree \u2603')
  })

  for (const bytes of [1, 32767, 32768, 1_000_001]) {
    test(`reads ${bytes} bytes of output`, async () => {
      const response = await exec(`big:${bytes}`)
      const output = Buffer.from(capnp.Struct.getData(0, response).toUint8Array())
      assert.ok(output.equals(Buffer.alloc(bytes, 'a')))
    })
  }

  test('gets the text of an exception', async () => {
    await assert.rejects(exec('missing'), /exec in container missing: no such container/)
  })

  test('has 64 calls under way', async () => {
    const replies = await Promise.all(Array.from({ length: 64 }, (_, i) => exec(`sleep:${100 - i}`)))
    assert.equal(replies.length, 64)
  })
})

describe('capnp-ts as a server of our client', () => {
  const directory = mkdtempSync(join(tmpdir(), 'holdfast-capnp-ts-'))
  const path = join(directory, 'conmon.sock')
  const sockets: Socket[] = []
  let listener: NetServer
  let client: MonitorClient
  before(async () => {
    listener = createServer((socket) => {
      sockets.push(socket)
      const main = new capnp.Server([
        { ...version, impl: answerVersion },
        { ...execSync, impl: answerExec },
      ])
      void new capnp.Conn(new StreamTransport(socket), { main })
    })
    await new Promise<void>((resolve) => listener.listen(path, resolve))
    client = await MonitorClient.connect(path)
  })
  after(() => {
    client.close()
    for (const socket of sockets) socket.destroy()
    listener.close()
    rmSync(directory, { recursive: true })
  })

  test('answers what it was asked', async () => {
    assert.equal((await client.version({ verbose: true })).cargoTree, 'tree')
    assert.equal((await client.version()).cargoTree, '')
  })

  test('returns output', async () => {
    const { exitCode, stdout } = await client.execSync({ id: 'echo', command: ['a', 'b', 'c'] })
    assert.deepEqual({ exitCode, stdout: stdout.toString() }, { exitCode: 3, stdout: 'echo' })
  })

  test('throws', async () => {
    await assert.rejects(client.execSync({ id: 'throw', command: [] }), /thrown/)
  })
})

function answerVersion(params: VersionParams, results: VersionResults): void {
  const verbose = capnp.Struct.getBit(0, capnp.Struct.getStruct(0, VersionRequest, params))
  const response = capnp.Struct.initStructAt(0, VersionResponse, results)
  if (verbose) capnp.Struct.setText(7, 'tree', response)
}

function answerExec(params: ExecParams, results: ExecResults): void {
  const request = capnp.Struct.getStruct(0, ExecRequest, params)
  const id = capnp.Struct.getText(0, request)
  if (id === 'throw') throw new Error('thrown')
  const response = capnp.Struct.initStructAt(0, ExecResponse, results)
  capnp.Struct.setInt32(0, capnp.Struct.getList(1, capnp.TextList, request).getLength(), response)
  capnp.Struct.initData(0, id.length, response).copyBuffer(Buffer.from(id))
}
