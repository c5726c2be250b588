// A stand-in for API server and kubelet, as much of them as kubectl needs for exec, attach, cp and port-forward: discovery,
// GET of a pod, and upgrades, which it hands to the URL that the CRI endpoint gives, as raw bytes both ways. It never
// looks into a stream.

import { createServer } from 'node:http'
import type { IncomingMessage, Server } from 'node:http'
import { connect } from 'node:net'
import type { Duplex } from 'node:stream'
import { messageOf } from '../../src/base/errors.ts'
import { closeServer, listenLocal, portOf } from './control.ts'
import type { Container, CriClient, PodSandbox } from './cri-client.ts'

/** Serves the pods of one CRI endpoint on 127.0.0.1. */
export class ApiFront {
  readonly #cri: CriClient
  readonly #server: Server
  readonly #streams = new Set<Duplex>()
  /** The sub-protocols or protocol versions that upgrade requests named, in order. */
  readonly upgrades: string[] = []

  private constructor(cri: CriClient) {
    this.#cri = cri
    this.#server = createServer((request, response) => {
      this.#answer(new URL(request.url ?? '/', 'http://front')).then(
        (body) => {
          response.writeHead(body === undefined ? 404 : 200, { 'content-type': 'application/json' })
          response.end(JSON.stringify(body ?? failure(404, `no ${request.url}`)))
        },
        (error: unknown) => response.writeHead(500).end(JSON.stringify(failure(500, messageOf(error)))),
      )
    })
    this.#server.on('upgrade', (request: IncomingMessage, client: Duplex, head: Buffer) => {
      this.#track(client)
      this.#upgrade(request, client, head).catch((error: unknown) => {
        const body = JSON.stringify(failure(500, messageOf(error)))
        client.end(
          `HTTP/1.1 500 Internal Server Error\r\nContent-Type: application/json\r\nContent-Length: ${Buffer.byteLength(body)}\r\nConnection: close\r\n\r\n${body}`,
        )
      })
    })
  }

  static async start(cri: CriClient): Promise<ApiFront> {
    const front = new ApiFront(cri)
    await listenLocal(front.#server)
    return front
  }

  /** For kubectl's --server. */
  get address(): string {
    return `http://127.0.0.1:${portOf(this.#server)}`
  }

  async close(): Promise<void> {
    for (const stream of this.#streams) stream.destroy()
    await closeServer(this.#server)
  }

  async #answer(url: URL): Promise<object | undefined> {
    switch (url.pathname) {
      case '/version':
        return { major: '1', minor: '37', gitVersion: 'v1.37.0' }
      case '/api':
        return { kind: 'APIVersions', versions: ['v1'] }
      case '/apis':
        return { kind: 'APIGroupList', apiVersion: 'v1', groups: [] }
      case '/api/v1':
        return resources
    }
    const name = /^\/api\/v1\/namespaces\/default\/pods\/([^/]+)$/.exec(url.pathname)?.[1]
    if (name === undefined) return undefined
    const pod = await this.#pod(name)
    return pod === undefined ? undefined : podObject(pod, await this.#containers(pod))
  }

  async #upgrade(request: IncomingMessage, client: Duplex, head: Buffer): Promise<void> {
    const url = new URL(request.url ?? '/', 'http://front')
    const [, name = '', verb = ''] =
      /^\/api\/v1\/namespaces\/default\/pods\/([^/]+)\/(\w+)$/.exec(url.pathname) ?? []
    this.upgrades.push(String(request.headers.upgrade))
    const pod = await this.#pod(name)
    if (pod === undefined) throw new Error(`pod ${name} not found`)
    const target = new URL(await this.#streamUrl(verb, pod, url.searchParams))
    const server = connect({ host: target.hostname, port: Number(target.port), allowHalfOpen: false })
    this.#track(server)
    const lines = [`${request.method} ${target.pathname} HTTP/1.1`]
    for (let i = 0; i < request.rawHeaders.length; i += 2) {
      lines.push(`${request.rawHeaders[i]}: ${request.rawHeaders[i + 1]}`)
    }
    server.write(`${lines.join('\r\n')}\r\n\r\n`)
    server.write(head)
    // Like the kubelet's proxy: the end of either side is the end of both.
    client.pipe(server)
    server.pipe(client)
    client.once('close', () => server.destroy())
    server.once('close', () => client.end())
  }

  async #streamUrl(verb: string, pod: PodSandbox, query: URLSearchParams): Promise<string> {
    if (verb === 'portforward') {
      return await this.#cri.url('PortForward', { podSandboxId: pod.id, port: [] })
    }
    const containers = await this.#containers(pod)
    const wanted = query.get('container')
    const container = containers.find(({ metadata }) => wanted === null || metadata.name === wanted)
    if (container === undefined) throw new Error(`container ${wanted} not found in pod ${pod.metadata.name}`)
    const flag = (name: string): boolean => query.get(name) === 'true'
    const tty = flag('tty')
    // The kubelet asks for no stderr beside a terminal.
    const streams = { tty, stdin: flag('stdin'), stdout: flag('stdout'), stderr: flag('stderr') && !tty }
    if (verb === 'exec') {
      return await this.#cri.url('Exec', {
        containerId: container.id,
        cmd: query.getAll('command'),
        ...streams,
      })
    }
    if (verb === 'attach') return await this.#cri.url('Attach', { containerId: container.id, ...streams })
    throw new Error(`no ${verb} here`)
  }

  async #pod(name: string): Promise<PodSandbox | undefined> {
    return (await this.#cri.pods()).find(({ metadata }) => metadata.name === name)
  }

  async #containers(pod: PodSandbox): Promise<readonly Container[]> {
    return (await this.#cri.containers()).filter(
      ({ podSandboxId, state }) => podSandboxId === pod.id && state === 'CONTAINER_RUNNING',
    )
  }

  #track(stream: Duplex): void {
    this.#streams.add(stream)
    stream.on('error', () => undefined) // either side may be gone at any moment
    stream.once('close', () => this.#streams.delete(stream))
  }
}

function podObject(pod: PodSandbox, containers: readonly Container[]): object {
  const names = containers.map(({ metadata }) => metadata.name)
  return {
    kind: 'Pod',
    apiVersion: 'v1',
    metadata: { name: pod.metadata.name, namespace: 'default', uid: pod.metadata.uid },
    spec: { containers: names.map((name) => ({ name, image: 'busybox', stdin: true })) },
    status: {
      phase: pod.state === 'SANDBOX_READY' ? 'Running' : 'Succeeded',
      containerStatuses: names.map((name) => ({ name, ready: true, started: true, state: { running: {} } })),
    },
  }
}

function failure(code: number, message: string): object {
  return { kind: 'Status', apiVersion: 'v1', metadata: {}, status: 'Failure', message, code }
}

const resources = {
  kind: 'APIResourceList',
  groupVersion: 'v1',
  resources: [
    { name: 'pods', singularName: 'pod', namespaced: true, kind: 'Pod', verbs: ['get'] },
    { name: 'pods/exec', namespaced: true, kind: 'PodExecOptions', verbs: ['create', 'get'] },
    { name: 'pods/attach', namespaced: true, kind: 'PodAttachOptions', verbs: ['create', 'get'] },
    { name: 'pods/portforward', namespaced: true, kind: 'PodPortForwardOptions', verbs: ['create', 'get'] },
  ],
}
