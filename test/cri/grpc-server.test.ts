import assert from 'node:assert/strict'
import { chmod, mkdtemp, rm, stat, writeFile } from 'node:fs/promises'
import { once } from 'node:events'
import { connect as connectHttp2 } from 'node:http2'
import { connect } from 'node:net'
import { tmpdir } from 'node:os'
import { dirname, join, resolve } from 'node:path'
import { after, before, describe, test } from 'node:test'
import { setImmediate } from 'node:timers/promises'
import { setFlagsFromString } from 'node:v8'
import { runInNewContext } from 'node:vm'
import { Client, credentials, loadPackageDefinition, status } from '@grpc/grpc-js'
import type { GrpcObject, ServiceError } from '@grpc/grpc-js'
import { loadSync } from '@grpc/proto-loader'
import { Diagnostics } from '../../src/base/diagnostics.ts'
import { MonitorError } from '../../src/base/errors.ts'
import { GrpcServer } from '../../src/cri/grpc-server.ts'
import type { Handler, Handlers } from '../../src/cri/grpc-server.ts'
import { checkLeaks } from '../support/leak-check.ts'

checkLeaks()

const proto = resolve(import.meta.dirname, '../../../proto/cri.proto')
const quiet = new Diagnostics(() => undefined, 'off')
const definition = loadSync(proto, { longs: String, enums: String, defaults: true })
const methods = Object.keys(definition['runtime.v1.RuntimeService'] ?? {})

setFlagsFromString('--expose-gc')
const collectGarbage = runInNewContext('gc') as () => void

let directory = ''
before(async () => {
  directory = await mkdtemp(join(tmpdir(), 'holdfast-grpc-'))
})
after(async () => {
  await rm(directory, { recursive: true, force: true })
})

/** A server whose other methods answer with nothing. */
async function serving(handlers: Handlers, path: string, use: () => Promise<void>): Promise<void> {
  const all = Object.fromEntries(methods.map((name) => [name, handlers[name] ?? ((): object => ({}))]))
  const server = new GrpcServer(proto, { 'runtime.v1.RuntimeService': all }, quiet)
  await server.listen(path)
  try {
    await use()
  } finally {
    await server.close()
  }
}

type Call = (request: object) => Promise<Record<string, unknown>>

async function calling<T>(
  path: string,
  options: object,
  use: (call: (method: string) => Call) => Promise<T>,
): Promise<T> {
  const root = loadPackageDefinition(definition)['runtime'] as GrpcObject
  const Service = (root['v1'] as GrpcObject)['RuntimeService'] as unknown as typeof Client
  const client = new Service(`unix:${path}`, credentials.createInsecure(), options)
  try {
    return await use((method) => async (request) => {
      return await new Promise((resolveCall, reject) => {
        const unary = (client as unknown as Record<string, (...args: unknown[]) => void>)[method]
        unary?.call(client, request, (error: ServiceError | null, answer: Record<string, unknown>) =>
          error === null ? resolveCall(answer) : reject(error),
        )
      })
    })
  } finally {
    client.close()
  }
}

async function failure(handler: Handler): Promise<ServiceError> {
  const path = join(directory, 'failure.sock')
  let error: unknown
  await serving({ Version: handler }, path, async () => {
    await calling(path, {}, async (call) => {
      error = await call('Version')({}).catch((reason: unknown) => reason)
    })
  })
  return error as ServiceError
}

describe('the gRPC server', () => {
  test('answers, and lets only root in', async () => {
    const path = join(directory, 'plain.sock')
    await serving({ Version: () => ({ runtimeName: 'x' }) }, path, async () => {
      const answer = await calling(path, {}, async (call) => await call('Version')({}))
      assert.equal(answer['runtimeName'], 'x')
      assert.equal((await stat(path)).mode & 0o777, 0o600)
    })
    await assert.rejects(stat(path), { code: 'ENOENT' })
  })

  test('turns codes into gRPC codes, and names the object', async () => {
    const cases = [
      ['not-found', status.NOT_FOUND],
      ['invalid-argument', status.INVALID_ARGUMENT],
      ['failed-precondition', status.FAILED_PRECONDITION],
      ['deadline-exceeded', status.DEADLINE_EXCEEDED],
      ['resource-exhausted', status.RESOURCE_EXHAUSTED],
      ['unavailable', status.UNAVAILABLE],
    ] as const
    for (const [code, expected] of cases) {
      const error = await failure(() => {
        throw new MonitorError(code, `container c1: ${code}`)
      })
      assert.deepEqual([error.code, error.details], [expected, `container c1: ${code}`])
    }
  })

  test('calls anything else thrown internal', async () => {
    const error = await failure(async () => await Promise.reject(new TypeError('oops')))
    assert.deepEqual([error.code, error.details], [status.INTERNAL, 'oops'])
  })

  test('cuts a long text, and carries text that is not ASCII', async () => {
    const error = await failure(() => {
      throw new MonitorError('internal', `é${'x'.repeat(10_000)}`)
    })
    assert.ok(error.details.startsWith('éxxx') && error.details.endsWith('x…'))
    assert.ok(error.details.length < 5000)
  })

  test('says that a method it lacks is not implemented', async () => {
    const path = join(directory, 'lacking.sock')
    await serving({}, path, async () => {
      const client = new Client(`unix:${path}`, credentials.createInsecure())
      const error = await new Promise<ServiceError | null>((settle) => {
        const bytes = (value: Buffer): Buffer => value
        const method = '/runtime.v1.RuntimeService/ListContainerStats'
        client.makeUnaryRequest(method, bytes, bytes, Buffer.alloc(0), settle)
      })
      client.close()
      assert.equal(error?.code, status.UNIMPLEMENTED)
      assert.match(error?.details ?? '', /ListContainerStats/)
    })
  })

  test('tells the handler that the client gave up', async () => {
    const path = join(directory, 'gone.sock')
    const gone = new Promise<void>((told) => {
      const handler: Handler = async (_, signal) =>
        await new Promise((answer) => {
          signal.addEventListener('abort', () => {
            told()
            answer({})
          })
        })
      const socket = join(directory, 'gone.sock')
      void serving({ ExecSync: handler }, socket, async () => {
        const client = new Client(`unix:${path}`, credentials.createInsecure())
        const bytes = (value: Buffer): Buffer => value
        const method = '/runtime.v1.RuntimeService/ExecSync'
        await new Promise<void>((ended) => {
          const deadline = new Date(Date.now() + 300)
          client.makeUnaryRequest(method, bytes, bytes, Buffer.alloc(0), { deadline }, () => ended())
        })
        client.close()
        await gone
      })
    })
    await gone
  })

  for (const authority of [
    'localhost',
    '/run/mon.sock',
    '%2Frun%2Fmon.sock',
    'unix:/run/a b/c.sock'.replace(' ', '-'),
  ]) {
    test(`serves a client that calls it ${JSON.stringify(authority)}`, async () => {
      const path = join(directory, 'authority.sock')
      await serving({ Version: () => ({ runtimeName: 'x' }) }, path, async () => {
        const options = { 'grpc.default_authority': authority }
        await calling(path, options, async (call) => {
          // Later ones of a connection refer to the first through the compression's table.
          for (let i = 0; i < 3; i++) assert.equal((await call('Version')({}))['runtimeName'], 'x')
        })
      })
    })
  }

  test('serves a client that calls it nothing at all', async () => {
    const path = join(directory, 'empty.sock')
    await serving({ Version: () => ({ runtimeName: 'x' }) }, path, async () => {
      const session = connectHttp2('http://localhost', { createConnection: () => connect(path) })
      for (let i = 0; i < 2; i++) {
        const stream = session.request({
          ':method': 'POST',
          ':path': '/runtime.v1.RuntimeService/Version',
          ':scheme': 'http',
          ':authority': '',
          'content-type': 'application/grpc',
          te: 'trailers',
        })
        stream.end(Buffer.from([0, 0, 0, 0, 0]))
        const trailers = await new Promise<Record<string, unknown>>((settle, reject) => {
          stream.on('trailers', settle)
          stream.on('error', reject)
          stream.resume()
        })
        assert.equal(trailers['grpc-status'], '0')
      }
      await new Promise<void>((closed) => session.close(closed))
    })
  })

  test('takes over a socket that nobody answers on, and no other file', async () => {
    const path = join(directory, 'stale.sock')
    await serving({}, path, async () => {
      await assert.rejects(
        serving({}, path, async () => await Promise.resolve()),
        /another program listens there/,
      )
    })
    await writeFile(path, 'precious')
    await assert.rejects(
      serving({}, path, async () => await Promise.resolve()),
      /something that is no socket/,
    )
    await chmod(path, 0o600)
  })

  test('listens on a path that is longer than a socket address', async () => {
    const path = join(directory, 'd'.repeat(100), 'e'.repeat(40), 'long.sock')
    const umask = process.umask()
    await serving({ Version: () => ({ runtimeName: 'x' }) }, path, async () => {
      assert.ok((await stat(path)).isSocket())
      assert.equal((await stat(dirname(path))).mode & 0o777, 0o755 & ~umask)
    })
    await assert.rejects(stat(path), { code: 'ENOENT' })
  })

  test('is not held up by clients that say nothing or leave in the middle', async () => {
    const path = join(directory, 'silent.sock')
    await serving({ Version: () => ({ runtimeName: 'x' }) }, path, async () => {
      const silent = [connect(path), connect(path)]
      const rude = connect(path)
      rude.write('PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n')
      rude.destroy()
      assert.equal((await calling(path, {}, async (call) => await call('Version')({})))['runtimeName'], 'x')
      for (const socket of silent) socket.destroy()
    })
  })

  test('keeps nothing of clients that have gone', async () => {
    const path = join(directory, 'churn.sock')
    await serving({ Version: () => ({ runtimeName: 'x' }) }, path, async () => {
      const churn = async (rounds: number): Promise<number> => {
        for (let i = 0; i < rounds; i++) {
          const rude = connect(path)
          rude.write(Buffer.from('505249202a20485454502f322e300d0a0d0a534d0d0a0d0a000000040000000000', 'hex'))
          await once(rude, 'data')
          rude.destroy()
        }
        await calling(path, {}, async (call) => await call('Version')({}))
        // Sessions end some turns of the loop after their sockets.
        for (let i = 0; i < 20; i++) await setImmediate()
        collectGarbage()
        return process.memoryUsage().heapUsed
      }
      const first = await churn(100)
      const last = await churn(400)
      // grpc/grpc-node#2975 kept about 25 kB of each.
      assert.ok(last - first < 400 * 5_000, `${last - first} bytes for 400 clients`)
    })
  })

  test('is not built when a method has no handler', () => {
    assert.throws(
      () => new GrpcServer(proto, { 'runtime.v1.ImageService': {} }, quiet),
      /no handler for ListImages/,
    )
  })
})
