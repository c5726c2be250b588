// MonitorCalls without a monitor: remembers what it was asked, and answers by the container id.

import { setTimeout as sleep } from 'node:timers/promises'
import { MonitorError } from '../../src/base/errors.ts'
import type { TerminalSize } from '../../src/base/remote-stdio.ts'
import type {
  AttachContainerRequest,
  ContainerInfo,
  CreateContainerRequest,
  CreateNamespacesRequest,
  ExecSyncRequest,
  ExecSyncResult,
  MonitorCalls,
  NamespacePath,
  ServeAttachRequest,
  ServeExecRequest,
  ServePortForwardRequest,
  VersionInfo,
} from '../../src/monitor/requests.ts'

const empty = Buffer.alloc(0)

/** Execs by id: `sleep:MS`, `hang`, `big:BYTES`, `signal:N`, `timeout`, `bug`, `stats`; others exit with their argument count. */
export class FakeCalls implements MonitorCalls {
  /** The last request of each method. */
  readonly seen: Record<string, unknown> = {}
  running = 0
  /** Execs ever. */
  started = 0
  /** Why execs were given up: error codes. */
  readonly givenUp: string[] = []
  containers: ContainerInfo[] = []

  version(verbose: boolean): VersionInfo {
    return {
      processId: 4242,
      version: '1.2.3',
      tag: 'tag',
      commit: 'c0ffee',
      buildDate: 'now',
      target: 'node',
      rustVersion: 'none',
      cargoVersion: '',
      cargoTree: verbose ? 'verbose-tree \u2603' : '',
    }
  }

  createContainer(request: CreateContainerRequest): Promise<number> {
    this.seen['createContainer'] = request
    if (request.id === 'broken')
      throw new MonitorError('failed-precondition', 'create container broken: it is')
    return Promise.resolve(4242)
  }

  async execSync(request: ExecSyncRequest, signal: AbortSignal): Promise<ExecSyncResult> {
    this.seen['execSync'] = request
    const [what = '', value = ''] = request.id.split(':')
    this.running++
    this.started++
    try {
      return await this.#exec(what, Number(value), request, signal)
    } finally {
      this.running--
    }
  }

  async #exec(
    what: string,
    value: number,
    request: ExecSyncRequest,
    signal: AbortSignal,
  ): Promise<ExecSyncResult> {
    const status = { code: request.command.length }
    switch (what) {
      case 'sleep':
      case 'hang':
        await sleep(what === 'hang' ? 1e6 : value, undefined, { signal }).catch(() => {
          this.givenUp.push(
            signal.reason instanceof MonitorError ? signal.reason.code : String(signal.reason),
          )
          throw signal.reason
        })
        return { status, stdout: Buffer.from(request.id), stderr: empty }
      case 'big':
        return { status: { code: 7 }, stdout: Buffer.alloc(value, 'a'), stderr: Buffer.from('!') }
      case 'signal':
        return { status: { signal: value }, stdout: empty, stderr: empty }
      case 'timeout':
        return { status: { signal: 9, timedOut: true }, stdout: Buffer.from('part'), stderr: empty }
      case 'bug':
        throw new TypeError('x is not a function')
      case 'missing':
        throw new MonitorError('not-found', 'exec in container missing: no such container')
      case 'stats':
        return { status, stdout: Buffer.from(JSON.stringify(this.stats())), stderr: empty }
      default:
        return { status, stdout: empty, stderr: empty }
    }
  }

  /** Without the exec that asks. */
  stats(): { running: number; givenUp: number } {
    return { running: this.running - 1, givenUp: this.givenUp.length }
  }

  attachContainer(request: AttachContainerRequest): Promise<void> {
    this.seen['attachContainer'] = request
    return Promise.resolve()
  }

  reopenLog(id: string): Promise<void> {
    return Promise.reject(new MonitorError('not-found', `reopen log of container ${id}: no such container`))
  }

  setWindowSize(id: string, size: TerminalSize): void {
    if (id === 'pipes')
      throw new MonitorError('failed-precondition', 'resize container pipes: it has no terminal')
    this.seen['setWindowSize'] = { id, size }
  }

  createNamespaces(request: CreateNamespacesRequest): Promise<readonly NamespacePath[]> {
    this.seen['createNamespaces'] = request
    return Promise.resolve(
      request.namespaces.map((type) => ({ type, path: `${request.basePath}/${type}ns/${request.podId}` })),
    )
  }

  startFdSocket(): Promise<string> {
    return Promise.reject(new MonitorError('unimplemented', 'start fd socket: not supported yet'))
  }

  serveExec(request: ServeExecRequest): Promise<string> {
    this.seen['serveExec'] = request
    return Promise.resolve('http://127.0.0.1:1/exec/token')
  }

  serveAttach(request: ServeAttachRequest): Promise<string> {
    this.seen['serveAttach'] = request
    return Promise.resolve('http://127.0.0.1:1/attach/token')
  }

  servePortForward(request: ServePortForwardRequest): Promise<string> {
    this.seen['servePortForward'] = request
    return Promise.resolve('http://127.0.0.1:1/portforward/token')
  }

  listContainers(): readonly ContainerInfo[] {
    return this.containers
  }
}
