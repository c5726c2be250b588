// The monitor's calls over its RPC socket. One connection at a time, made anew when a call finds it gone: calls that
// were under way then have failed with `unavailable`, once, and are not repeated by this client.

import { MonitorError, messageOf } from '../base/errors.ts'
import type { ErrorCode } from '../base/errors.ts'
import { CALL_TIMEOUT_MS, MAX_REPLY_BYTES, OCI_CALL_TIMEOUT_MS } from '../base/limits.ts'
import type { TerminalSize } from '../base/remote-stdio.ts'
import { RpcConnection } from '../capnp/rpc-connection.ts'
import type { ExceptionType } from '../capnp/rpc-exception.ts'
import { RpcException } from '../capnp/rpc-exception.ts'
import type { Init, Method } from '../capnp/schema.ts'
import type { LogDriverType } from '../generated/conmon.ts'
import { Conmon } from '../generated/conmon.ts'
import type { Flag } from '../generated/holdfast.ts'
import { Holdfast } from '../generated/holdfast.ts'
import { dialUnix } from './dial-unix.ts'
import type {
  AttachContainer,
  CallOptions,
  ContainerInfo,
  CreateContainer,
  CreateNamespaces,
  ExecSync,
  ExecSyncOutcome,
  LogDriver,
  MonitorVersion,
  NamespacePath,
  ServeAttach,
  ServeExec,
  ServePortForward,
} from './monitor-requests.ts'

/** What an exception means that carries no code of ours: conmon-rs sent it, or the connection. */
const codeOfType: Record<ExceptionType, ErrorCode> = {
  failed: 'internal',
  overloaded: 'resource-exhausted',
  disconnected: 'unavailable',
  unimplemented: 'unimplemented',
}

const wireLogDriver: Record<LogDriver['type'], LogDriverType> = {
  cri: 'containerRuntimeInterface',
  json: 'json',
  journald: 'journald',
}

/** A monitor, seen through its socket. Every failure is a MonitorError. */
export class MonitorClient {
  readonly socketPath: string
  #connection: RpcConnection | undefined
  #dialing: Promise<RpcConnection> | undefined
  #closed = false

  private constructor(socketPath: string) {
    this.socketPath = socketPath
  }

  /** Rejects with `unavailable` when nobody listens there. */
  static async connect(socketPath: string): Promise<MonitorClient> {
    const client = new MonitorClient(socketPath)
    await client.#connected('connect')
    return client
  }

  async version(options: CallOptions & { verbose?: boolean } = {}): Promise<MonitorVersion> {
    const request = { verbose: options.verbose }
    const { response } = await this.#call('version', Conmon.methods.version, { request }, options)
    return response
  }

  /** Resolves to the container's pid. */
  async createContainer(container: CreateContainer, options: CallOptions = {}): Promise<number> {
    const { cleanupCommand, env, logDrivers = [], cgroupManager = 'cgroupfs', ...same } = container
    const request = {
      ...same,
      cgroupManager,
      cleanupCmd: cleanupCommand,
      envVars: entries(env),
      logDrivers: logDrivers.map(({ type, path, maxSize = 0 }) => ({
        type: wireLogDriver[type],
        path,
        maxSize: BigInt(maxSize),
      })),
    }
    const what = `create container ${container.id}`
    const { response } = await this.#call(
      what,
      Conmon.methods.createContainer,
      { request },
      { timeoutMs: OCI_CALL_TIMEOUT_MS, ...options },
    )
    return response.containerPid
  }

  /** Runs a command to its end. Without a limit of its own it may take for ever. */
  async execSync(exec: ExecSync, options: CallOptions = {}): Promise<ExecSyncOutcome> {
    const { id, command, terminal, cgroupManager = 'cgroupfs', env, timeoutMs: limitMs = 0 } = exec
    const timeoutSec = BigInt(Math.ceil(limitMs / 1000))
    const request = { id, command, terminal, cgroupManager, envVars: entries(env), timeoutSec }
    const timeoutMs = limitMs === 0 ? 0 : limitMs + OCI_CALL_TIMEOUT_MS
    const { response } = await this.#call(
      `exec in container ${id}`,
      Conmon.methods.execSyncContainer,
      { request },
      { timeoutMs, ...options },
    )
    return response
  }

  /** Makes conmon's attach socket. */
  async attachContainer(attach: AttachContainer, options: CallOptions = {}): Promise<void> {
    const what = `attach to container ${attach.id}`
    await this.#call(what, Conmon.methods.attachContainer, { request: attach }, options)
  }

  async reopenLog(id: string, options: CallOptions = {}): Promise<void> {
    const what = `reopen log of container ${id}`
    await this.#call(what, Conmon.methods.reopenLogContainer, { request: { id } }, options)
  }

  async setWindowSize(id: string, size: TerminalSize, options: CallOptions = {}): Promise<void> {
    const request = { id, width: size.width, height: size.height }
    const what = `resize terminal of container ${id}`
    await this.#call(what, Conmon.methods.setWindowSizeContainer, { request }, options)
  }

  async createNamespaces(
    namespaces: CreateNamespaces,
    options: CallOptions = {},
  ): Promise<readonly NamespacePath[]> {
    const what = `create namespaces of pod ${namespaces.podId}`
    const { response } = await this.#call(
      what,
      Conmon.methods.createNamespaces,
      { request: namespaces },
      options,
    )
    return response.namespaces
  }

  /** Like the other two: a URL with a single-use token. */
  async serveExec(exec: ServeExec, options: CallOptions = {}): Promise<string> {
    const { tty = false, stdin = false, stdout = true, stderr = !tty, cgroupManager = 'cgroupfs' } = exec
    const request = { id: exec.id, command: exec.command, tty, stdin, stdout, stderr, cgroupManager }
    const what = `serve exec in container ${exec.id}`
    const { response } = await this.#call(what, Conmon.methods.serveExecContainer, { request }, options)
    return response.url
  }

  async serveAttach(attach: ServeAttach, options: CallOptions = {}): Promise<string> {
    const { id, stdin = false, stdout = true, stderr = attach.tty !== true, replayBytes = 0 } = attach
    const flags = { tty: flag(attach.tty), stdinOnce: flag(attach.stdinOnce) }
    const request = { id, stdin, stdout, stderr, replayBytes, ...flags }
    const what = `serve attach to container ${id}`
    const { response } = await this.#call(what, Holdfast.methods.serveAttach, { request }, options)
    return response.url
  }

  async servePortForward(forward: ServePortForward, options: CallOptions = {}): Promise<string> {
    const what = `serve port-forward to pod ${forward.podSandboxId ?? ''}`
    const { response } = await this.#call(
      what,
      Holdfast.methods.servePortForward,
      { request: forward },
      options,
    )
    return response.url
  }

  async listContainers(options: CallOptions = {}): Promise<readonly ContainerInfo[]> {
    const { response } = await this.#call('list containers', Holdfast.methods.listContainers, {}, options)
    return response.containers.map((container) => ({
      ...container,
      exitCode: container.state === 'exited' ? container.exitCode : undefined,
    }))
  }

  /** Ends the connection; calls under way fail. */
  close(): void {
    this.#closed = true
    this.#connection?.close()
  }

  async #call<P, R>(
    what: string,
    method: Method<P, R>,
    params: Init<P>,
    { signal, timeoutMs = CALL_TIMEOUT_MS }: CallOptions,
  ): Promise<R> {
    const giveUp = new AbortController()
    const onAbort = (): void => giveUp.abort(signal?.reason)
    signal?.addEventListener('abort', onAbort)
    if (signal?.aborted === true) onAbort()
    const late = (): void => giveUp.abort(lateAnswer(what, timeoutMs))
    const timer = timeoutMs > 0 ? setTimeout(late, Math.min(timeoutMs, 2 ** 31 - 1)) : undefined
    try {
      const connection = await this.#connected(what)
      return await connection.call(method, params, giveUp.signal)
    } catch (error) {
      throw translate(what, error)
    } finally {
      clearTimeout(timer)
      signal?.removeEventListener('abort', onAbort)
    }
  }

  async #connected(what: string): Promise<RpcConnection> {
    if (this.#closed) throw new MonitorError('failed-precondition', `${what}: the client is closed`)
    if (this.#connection?.isOpen === true) return this.#connection
    this.#dialing ??= this.#dial().finally(() => {
      this.#dialing = undefined
    })
    return await this.#dialing
  }

  async #dial(): Promise<RpcConnection> {
    const socket = await dialUnix(this.socketPath).catch((error: unknown) => {
      throw new MonitorError('unavailable', `connect to monitor at ${this.socketPath}: ${messageOf(error)}`, {
        cause: error,
      })
    })
    const connection = new RpcConnection(socket, { maxMessageBytes: MAX_REPLY_BYTES })
    this.#connection = connection
    if (this.#closed) connection.close()
    return connection
  }
}

function translate(what: string, error: unknown): unknown {
  if (!(error instanceof RpcException)) return error
  const code = error.code ?? codeOfType[error.type]
  // The monitor's own texts name their object; those of a broken connection do not.
  const message =
    error.code === undefined && error.type === 'disconnected'
      ? `${what}: no connection to the monitor: ${error.message}`
      : error.message
  return new MonitorError(code, message, { cause: error })
}

function lateAnswer(what: string, timeoutMs: number): MonitorError {
  return new MonitorError('deadline-exceeded', `${what}: no answer from the monitor within ${timeoutMs} ms`)
}

function entries(
  env: readonly (readonly [string, string])[] = [],
): readonly { key: string; value: string }[] {
  return env.map(([key, value]) => ({ key, value }))
}

function flag(value: boolean | undefined): Flag {
  if (value === undefined) return 'unknown'
  return value ? 'yes' : 'no'
}
