// holdfastd as a program on a state directory of its own, with runc or crun, driven by gRPC. `close` removes every pod and
// fails when anything is left behind.

import assert from 'node:assert/strict'
import { spawn } from 'node:child_process'
import type { ChildProcess } from 'node:child_process'
import { once } from 'node:events'
import { existsSync, mkdtempSync, readdirSync, readFileSync, realpathSync, rmSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join, resolve } from 'node:path'
import { setTimeout as sleep } from 'node:timers/promises'
import { credentials, loadPackageDefinition } from '@grpc/grpc-js'
import type { GrpcObject, ServiceError } from '@grpc/grpc-js'
import { loadSync } from '@grpc/proto-loader'
import { processesNaming, waitFor, writeRuntime } from './rig.ts'
import type { RuntimeName } from './rig.ts'

const root = resolve(import.meta.dirname, '../../..')

export const daemonProgram = join(root, 'dist/bin/holdfastd')

/** The fields of all answers that tests look at. */
export interface Answer {
  readonly podSandboxId: string
  readonly containerId: string
  readonly url: string
  readonly status: Record<string, unknown>
  readonly info: Record<string, string>
  readonly items: readonly { readonly id: string; readonly state: string }[]
  readonly containers: readonly { readonly id: string; readonly metadata: { readonly name: string } }[]
  readonly exitCode: number
  readonly stdout: Buffer
  readonly stderr: Buffer
}

type Method = (
  request: object,
  options: object,
  done: (error: ServiceError | null, answer: Answer) => void,
) => void
type Stub = Record<string, Method> & { close: () => void }

export class CriRig {
  readonly directory: string
  readonly runtime: RuntimeName
  readonly socket: string
  readonly #runtimePath: string
  readonly #podIds = new Set<string>()
  #stubs: Stub[] = []
  #daemon: ChildProcess | undefined
  /** What the daemon said. */
  said = ''

  private constructor(runtime: RuntimeName) {
    this.runtime = runtime
    this.directory = realpathSync(mkdtempSync(join(tmpdir(), 'holdfast-cri-')))
    this.socket = join(this.directory, 'd.sock')
    this.#runtimePath = join(this.directory, runtime)
    writeRuntime(this.#runtimePath, runtime)
  }

  static async start(runtime: RuntimeName): Promise<CriRig> {
    const rig = new CriRig(runtime)
    await rig.startDaemon()
    return rig
  }

  get state(): string {
    return join(this.directory, 'state')
  }

  podDirectory(id: string): string {
    return join(this.state, 'pods', id)
  }

  get daemonArgs(): string[] {
    const flags = { '--state': this.state, '--socket': this.socket, '--runtime': this.#runtimePath }
    return [daemonProgram, ...Object.entries(flags).flat()]
  }

  /** Resolves when it serves. */
  async startDaemon(): Promise<void> {
    const env = { ...process.env, HOLDFAST_NODE: process.execPath }
    const daemon = spawn(process.execPath, this.daemonArgs, { stdio: ['ignore', 'ignore', 'pipe'], env })
    this.#daemon = daemon
    let own = ''
    daemon.stderr.setEncoding('utf8').on('data', (text: string) => {
      own += text
      this.said += text
    })
    await waitFor(
      'holdfastd to serve',
      () => own.includes('serving the CRI') || daemon.exitCode !== null,
      30_000,
    )
    assert.equal(daemon.exitCode, null, own)
    this.#connect()
  }

  /** `SIGKILL`: a crash. */
  async endDaemon(signal: NodeJS.Signals = 'SIGKILL'): Promise<number | null> {
    const daemon = this.#daemon
    this.#daemon = undefined
    if (daemon === undefined) return null
    const ended = once(daemon, 'exit')
    daemon.kill(signal)
    await ended
    return daemon.exitCode
  }

  async call(method: string, request: object, options: object = {}): Promise<Answer> {
    const stub = this.#stubs.find((one) => typeof one[method] === 'function')
    return await new Promise((settle, reject) => {
      stub?.[method]?.(request, options, (error, answer) => (error === null ? settle(answer) : reject(error)))
    })
  }

  async runPod(name = 'pod', config: object = {}): Promise<string> {
    const metadata = { name, namespace: 'default', uid: `uid-${name}`, attempt: 0 }
    const full = { metadata, logDirectory: join(this.directory, 'logs'), linux: {}, ...config }
    const { podSandboxId } = await this.call('RunPodSandbox', { config: full })
    this.#podIds.add(podSandboxId)
    return podSandboxId
  }

  async create(
    podSandboxId: string,
    name: string,
    command: readonly string[],
    config: object = {},
  ): Promise<string> {
    const full = {
      metadata: { name },
      image: { image: 'busybox' },
      command,
      logPath: `${name}.log`,
      ...config,
    }
    return (await this.call('CreateContainer', { podSandboxId, config: full })).containerId
  }

  async run(
    podSandboxId: string,
    name: string,
    command: readonly string[],
    config: object = {},
  ): Promise<string> {
    const containerId = await this.create(podSandboxId, name, command, config)
    await this.call('StartContainer', { containerId })
    return containerId
  }

  async status(containerId: string): Promise<Record<string, unknown>> {
    return (await this.call('ContainerStatus', { containerId })).status
  }

  async exec(containerId: string, ...cmd: string[]): Promise<{ code: number; out: string; err: string }> {
    const answer = await this.call('ExecSync', { containerId, cmd, timeout: 30 })
    return { code: answer.exitCode, out: String(answer.stdout), err: String(answer.stderr) }
  }

  /** Polls until the container is in this state. */
  async becomes(containerId: string, state: string, timeoutMs = 10_000): Promise<Record<string, unknown>> {
    for (const deadline = Date.now() + timeoutMs; ;) {
      const status = await this.status(containerId)
      if (status['state'] === state) return status
      assert.ok(Date.now() < deadline, `container is ${String(status['state'])}, not ${state}`)
      await sleep(50)
    }
  }

  log(name: string): string {
    return readFileSync(join(this.directory, 'logs', `${name}.log`), 'utf8')
      .split('\n')
      .map((line) => line.split(' ').slice(3).join(' '))
      .join('\n')
  }

  /** The keeper's pid. */
  async monitorPid(podSandboxId: string): Promise<number> {
    const { info } = await this.call('PodSandboxStatus', { podSandboxId, verbose: true })
    return (JSON.parse(info['info'] ?? '{}') as { pid: number }).pid
  }

  async removePods(): Promise<void> {
    const { items } = await this.call('ListPodSandbox', {})
    for (const { id } of items) await this.call('RemovePodSandbox', { podSandboxId: id })
  }

  async close(): Promise<void> {
    try {
      if (this.#daemon === undefined) await this.startDaemon()
      await this.removePods()
      assert.equal(await this.endDaemon('SIGTERM'), 0)
      assert.deepEqual(readdirSync(join(this.state, 'pods')), [])
      assert.deepEqual(readdirSync(join(this.state, 'runtime')), [])
    } finally {
      await this.endDaemon()
      for (const stub of this.#stubs) stub.close()
    }
    assert.deepEqual(processesNaming(this.directory), [], 'processes left behind')
    const mounts = readFileSync('/proc/self/mounts', 'utf8').split('\n')
    assert.deepEqual(
      mounts.filter((line) => line.includes(this.directory)),
      [],
      'mounts left behind',
    )
    for (const id of this.#podIds) assert.deepEqual(cgroupsNaming(id), [], 'cgroups left behind')
    rmSync(this.directory, { recursive: true, force: true })
  }

  #connect(): void {
    for (const stub of this.#stubs) stub.close()
    const definition = loadSync(join(root, 'proto/cri.proto'), {
      longs: String,
      enums: String,
      defaults: true,
    })
    const packages = loadPackageDefinition(definition)['runtime'] as GrpcObject
    const services = packages['v1'] as unknown as Record<string, new (...args: unknown[]) => Stub>
    const options = {
      'grpc.max_receive_message_length': 16 * 1024 * 1024,
      'grpc.use_local_subchannel_pool': 1,
    }
    this.#stubs = ['RuntimeService', 'ImageService'].flatMap((name) => {
      const Service = services[name]
      return Service === undefined
        ? []
        : [new Service(`unix:${this.socket}`, credentials.createInsecure(), options)]
    })
  }
}

/** Groups of any hierarchy whose name has this in it. */
export function cgroupsNaming(text: string): string[] {
  const base = '/sys/fs/cgroup'
  const hierarchies = existsSync(join(base, 'cgroup.controllers'))
    ? [base]
    : readdirSync(base).map((name) => join(base, name))
  return hierarchies.flatMap((hierarchy) => {
    const ours = join(hierarchy, 'holdfast')
    if (!existsSync(ours)) return []
    return readdirSync(ours)
      .filter((name) => name.includes(text))
      .map((name) => join(ours, name))
  })
}
