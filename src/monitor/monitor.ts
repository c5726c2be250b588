// The monitor's use cases, one method per RPC, and the backend of its streaming server. Builds the parts; knows neither
// Cap'n Proto nor HTTP.

import type { Socket } from 'node:net'
import type { Diagnostics } from '../base/diagnostics.ts'
import { MonitorError } from '../base/errors.ts'
import { parseId } from '../base/ids.ts'
import { FIRST_SIZE_MS } from '../base/limits.ts'
import { deferred, withDeadline } from '../base/lifetime.ts'
import type { ExitStatus, RemoteStdio, TerminalSize } from '../base/remote-stdio.ts'
import { Container, containerEntry } from '../container/container.ts'
import { ContainerStore } from '../container/container-store.ts'
import type { ContainerContext } from '../container/context.ts'
import { execSync } from '../container/exec-sync.ts'
import { encodeRecord } from '../container/record.ts'
import type { PumpState } from '../keeper/keeper-client.ts'
import { NetworkNamespaces, openNamespace } from '../pod/network-namespaces.ts'
import {
  createPodNamespaces,
  namespacePath,
  namespaceTypes,
  removePodNamespaces,
} from '../pod/pod-namespaces.ts'
import { dialPort } from '../pod/port-dialer.ts'
import type {
  AttachSession,
  ExecSession,
  PortForwardSession,
  Session,
  StreamingBackend,
} from '../streaming/session.ts'
import type { StreamingServer } from '../streaming/streaming-server.ts'
import type { OwnCgroup } from './own-cgroup.ts'
import { AttachEndpoints } from './attach-endpoints.ts'
import { newRecord } from './new-container.ts'
import type * as Requests from './requests.ts'
import { versionInfo } from './version.ts'

export interface MonitorParts {
  readonly context: ContainerContext
  readonly keeperPid: number
  readonly ownCgroup: OwnCgroup
}

/** `namespaces`, the keeper's entry: what is to be unmounted at the end. */
export interface NamespacesRecord {
  readonly podId: string
  readonly basePath: string
  readonly namespaces: readonly Requests.NamespaceType[]
}

export class Monitor implements Requests.MonitorCalls, StreamingBackend {
  readonly containers = new ContainerStore()
  readonly networks = new NetworkNamespaces()
  readonly attachEndpoints: AttachEndpoints
  readonly #parts: MonitorParts
  readonly #context: ContainerContext
  readonly #creating = new Map<string, Promise<Container>>()
  #streaming: Promise<StreamingServer> | undefined
  #namespaces: NamespacesRecord | undefined
  #makingNamespaces: Promise<void> | undefined
  #listenerHeld = false
  #stopping = false

  constructor(parts: MonitorParts) {
    this.#parts = parts
    this.#context = parts.context
    this.attachEndpoints = new AttachEndpoints(parts.context)
  }

  get diagnostics(): Diagnostics {
    return this.#context.diagnostics
  }

  /** Open streaming sessions, execs and attached clients. */
  get sessions(): number {
    return this.containers.all().reduce((sum, container) => sum + container.sessions, 0)
  }

  /** News of a container's output. */
  pumped(name: string, state: PumpState): void {
    const container = this.containers.all().find((other) => `${containerEntry(other.id)}/io` === name)
    if (container !== undefined) container.output.update(state)
    // Of a container whose exit a predecessor reported: a left-over daemon printed on.
    else if (state.streams.every((stream) => !stream.open))
      this.#context.keeper.drop(name).catch(() => undefined)
  }

  version(verbose: boolean): Requests.VersionInfo {
    return versionInfo(this.#parts.keeperPid, verbose)
  }

  async createContainer(request: Requests.CreateContainerRequest): Promise<number> {
    this.#beforeStart()
    const id = parseId('container id', request.id)
    this.containers.checkFree(id)
    if (this.#creating.has(id))
      throw new MonitorError('already-exists', `create container ${id}: it is being created`)
    if (request.additionalFds.length > 0 || request.leakFds.length > 0) {
      throw new MonitorError(
        'unimplemented',
        `create container ${id}: descriptors of the fd socket are not supported yet`,
      )
    }
    const creation = this.#create(id, request)
    this.#creating.set(id, creation)
    try {
      return (await creation).pid
    } finally {
      this.#creating.delete(id)
    }
  }

  async execSync(request: Requests.ExecSyncRequest, signal: AbortSignal): Promise<Requests.ExecSyncResult> {
    this.#beforeStart()
    const what = `exec in container ${request.id}`
    const container = this.containers.running(request.id, what)
    checkCommand(what, request.command)
    return execSync(container, request, signal)
  }

  async attachContainer(request: Requests.AttachContainerRequest): Promise<void> {
    const container = this.containers.running(request.id, `attach to container ${request.id}`)
    const { id: containerId, socketPath, stopAfterStdinEof } = request
    await this.attachEndpoints.open(container, { containerId, socketPath, stopAfterStdinEof })
  }

  async reopenLog(id: string): Promise<void> {
    await this.containers.running(id, `reopen log of container ${id}`).reopenLog()
  }

  setWindowSize(id: string, size: TerminalSize): void {
    this.containers.running(id, `resize container ${id}`).resize(size)
  }

  async createNamespaces(
    request: Requests.CreateNamespacesRequest,
  ): Promise<readonly Requests.NamespacePath[]> {
    if (request.podId === '')
      throw new MonitorError('invalid-argument', 'create namespaces: no pod ID provided')
    this.#beforeStart()
    const wanted: NamespacesRecord = {
      podId: parseId('pod id', request.podId),
      basePath: request.basePath === '' ? '/var/run' : request.basePath,
      namespaces: request.namespaces,
    }
    this.#makingNamespaces ??= this.#makeNamespaces(wanted)
    try {
      await this.#makingNamespaces
    } catch (error) {
      this.#makingNamespaces = undefined
      throw error
    }
    const made = this.#namespaces ?? wanted
    return namespaceTypes.map((type) => ({ type, path: namespacePath(made, type) }))
  }

  startFdSocket(): Promise<string> {
    return Promise.reject(new MonitorError('unimplemented', 'start fd socket: not supported yet'))
  }

  async serveExec(request: Requests.ServeExecRequest): Promise<string> {
    const what = `exec in container ${request.id}`
    this.containers.running(request.id, what)
    checkCommand(what, request.command)
    return this.#issue(what, {
      kind: 'exec',
      containerId: request.id,
      command: request.command,
      tty: request.tty,
      stdin: request.stdin,
      stdout: request.stdout,
      stderr: request.stderr && !request.tty,
    })
  }

  async serveAttach(request: Requests.ServeAttachRequest): Promise<string> {
    const what = `attach to container ${request.id}`
    const container = this.containers.running(request.id, what)
    if (request.tty !== undefined && request.tty !== container.terminal) {
      const has = container.terminal ? 'has' : 'has no'
      throw new MonitorError('invalid-argument', `${what}: tty must match: the container ${has} terminal`)
    }
    return this.#issue(what, {
      kind: 'attach',
      containerId: request.id,
      tty: container.terminal,
      stdin: request.stdin,
      stdout: request.stdout,
      stderr: request.stderr && !container.terminal,
      stdinOnce: request.stdinOnce,
      replayBytes: request.replayBytes,
    })
  }

  async servePortForward(request: Requests.ServePortForwardRequest): Promise<string> {
    this.#beforeStart()
    return this.#issue('port-forward', {
      kind: 'portforward',
      podSandboxId: request.podSandboxId === '' ? (this.#namespaces?.podId ?? '') : request.podSandboxId,
      netnsPath: this.networks.open(request.netnsPath),
      ports: request.ports,
    })
  }

  listContainers(): readonly Requests.ContainerInfo[] {
    return this.containers.all().map((container) => ({
      id: container.id,
      pid: container.pid,
      state: container.state === 'exiting' ? 'running' : container.state,
      exitCode: container.exitCode,
      terminal: container.terminal,
      sessions: container.sessions,
    }))
  }

  async exec(session: ExecSession, stdio: RemoteStdio): Promise<ExitStatus> {
    this.#beforeStart()
    const container = this.containers.running(session.containerId, `exec in container ${session.containerId}`)
    let terminalSize: TerminalSize | undefined
    const sized = deferred<void>()
    stdio.onResize((size) => {
      terminalSize = size
      sized.resolve()
    })
    // A program may look at its terminal's size at once (case B32).
    if (session.tty) await withDeadline(sized.promise, FIRST_SIZE_MS, () => undefined)
    const process = await container.exec({
      kind: 'stream',
      command: session.command,
      terminal: session.tty,
      stdin: session.stdin,
      env: [],
      terminalSize: () => terminalSize,
    })
    process.connect(stdio)
    return process.finished
  }

  async attach(session: AttachSession, stdio: RemoteStdio): Promise<void> {
    const container = this.containers.running(
      session.containerId,
      `attach to container ${session.containerId}`,
    )
    await container.attach(stdio, { ...session, detachesAtEof: true })
  }

  dial(session: PortForwardSession, port: number, signal: AbortSignal): Promise<Socket> {
    return dialPort(session.netnsPath, port, signal)
  }

  /** Goes on with a predecessor's streaming port. */
  async adoptStreaming(fd: number): Promise<void> {
    const server = await this.#startStreaming()
    server.adopt(fd)
    this.#listenerHeld = true
  }

  /** Goes on with a predecessor's namespaces. */
  adoptNamespaces(record: NamespacesRecord, netns: number | undefined): void {
    this.#namespaces = record
    this.#makingNamespaces = Promise.resolve()
    if (netns !== undefined) this.networks.setOwn(netns)
  }

  /** Ends sessions, containers and namespaces, in this order; everything is reported before it resolves. */
  async stop(): Promise<void> {
    this.#stopping = true
    await (await this.#streaming)?.close()
    await withDeadline<unknown>(Promise.allSettled(this.#creating.values()), createTimeoutMs, () => {
      this.diagnostics.error(`stop: ${this.#creating.size} containers are still being created`)
    })
    const running = this.containers.all().filter((container) => container.state !== 'exited')
    await Promise.allSettled(running.map((container) => container.kill(9)))
    const exits = Promise.allSettled(running.map((container) => container.exited))
    await withDeadline<unknown>(exits, stopTimeoutMs, () => {
      this.diagnostics.error(
        `stop: ${running.length} containers were killed, and not all have exited in time`,
      )
    })
    this.attachEndpoints.close()
    this.networks.close()
    if (this.#namespaces !== undefined) {
      await this.#context.keeper.drop('netns').catch(() => undefined)
      await removePodNamespaces(this.#namespaces)
    }
  }

  async #create(id: string, request: Requests.CreateContainerRequest): Promise<Container> {
    const container = await Container.create(this.#context, {
      record: newRecord(id, request, this.#context.directory),
      bundlePath: request.bundlePath,
      globalArgs: request.globalArgs,
      commandArgs: request.commandArgs,
      env: request.env,
    })
    this.containers.add(container)
    return container
  }

  async #makeNamespaces(wanted: NamespacesRecord): Promise<void> {
    const { keeper, launcher } = this.#context
    await createPodNamespaces(launcher, wanted)
    await keeper.hold('namespaces', { record: encodeRecord(wanted) })
    this.#namespaces = wanted
    if (!wanted.namespaces.includes('net')) return
    const netns = openNamespace(namespacePath(wanted, 'net'))
    await keeper.hold('netns', { fd: netns })
    this.networks.setOwn(netns)
  }

  async #issue(what: string, session: Session): Promise<string> {
    if (this.#stopping) throw new MonitorError('unavailable', `${what}: the monitor is stopping`)
    const server = await this.#startStreaming()
    const url = await server.issue(session)
    const fd = server.listenFd()
    if (!this.#listenerHeld && fd !== undefined) {
      this.#listenerHeld = true
      await this.#context.keeper.hold('listener/http', { fd })
    }
    return url
  }

  #startStreaming(): Promise<StreamingServer> {
    this.#streaming ??= import('../streaming/streaming-server.ts').then(({ StreamingServer }) => {
      return new StreamingServer({ backend: this, diagnostics: this.diagnostics })
    })
    return this.#streaming
  }

  #beforeStart(): void {
    if (this.#stopping) throw new MonitorError('unavailable', 'the monitor is stopping')
    this.#parts.ownCgroup.follow()
  }
}

const stopTimeoutMs = 10_000
/** For OCI runtimes that are at work when the monitor is to stop. */
const createTimeoutMs = 5_000

function checkCommand(what: string, command: readonly string[]): void {
  if (command.length === 0) throw new MonitorError('invalid-argument', `${what}: the command is empty`)
}
