// A monitor without any daemon, and containers under it: what benchmarks and the client-go table run against.

import { mkdir, mkdtemp, readFile, rm } from 'node:fs/promises'
import { existsSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { MonitorClient } from '../../src/client/monitor-client.ts'
import { startMonitor } from '../../src/client/monitor-process.ts'
import { writeRuntime } from '../support/rig.ts'
import { makeBundle, makeRootfs } from './bundle.ts'
import type { BundleOptions } from './bundle.ts'
import { serveControl } from './control.ts'
import type { Control, UrlRequest } from './control.ts'
import { isAlive, serverOf, waitFor } from './processes.ts'
import { hostProgram, output, product, run } from './programs.ts'

export interface RigOptions {
  readonly runtime?: 'runc' | 'crun'
  readonly env?: Readonly<Record<string, string>>
  /** Where its directory is made; default: that of temporary files. */
  readonly base?: string
}

/** A directory with a rootfs, the OCI runtime's state, one monitor, and its containers. */
export class MonitorRig {
  readonly directory: string
  readonly client: MonitorClient
  /** The keeper's. */
  readonly pid: number
  readonly runtimePath: string
  readonly runtimeRoot: string
  readonly rootfs: string
  readonly #containers: string[] = []

  private constructor(directory: string, client: MonitorClient, pid: number, runtimePath: string) {
    this.directory = directory
    this.client = client
    this.pid = pid
    this.runtimePath = runtimePath
    this.runtimeRoot = join(directory, 'runtime')
    this.rootfs = join(directory, 'rootfs')
  }

  static async start(options: RigOptions = {}): Promise<MonitorRig> {
    const directory = await mkdtemp(join(options.base ?? tmpdir(), 'holdfast-rig-'))
    const runtimePath = options.runtime === 'crun' ? join(directory, 'crun') : hostProgram('runc')
    if (options.runtime === 'crun') writeRuntime(runtimePath, 'crun')
    await makeRootfs(join(directory, 'rootfs'))
    const { pid, socketPath } = await startMonitor({
      monitorPath: product('holdfast-monitor'),
      runtimePath,
      runtimeDir: join(directory, 'monitor'),
      runtimeRoot: join(directory, 'runtime'),
      env: { ...process.env, ...options.env },
    })
    return new MonitorRig(directory, await MonitorClient.connect(socketPath), pid, runtimePath)
  }

  /** The server's pid now; after a kill it may take a moment until there is one. */
  async serverPid(): Promise<number> {
    let pid: number | undefined
    await waitFor('a server', () => (pid = serverOf(this.pid)) !== undefined)
    return pid ?? 0
  }

  logOf(id: string): string {
    return join(this.directory, `${id}.log`)
  }

  exitFileOf(id: string): string {
    return join(this.directory, `${id}.exit`)
  }

  /** Creates a container; returns its first process's pid. */
  async create(id: string, options: BundleOptions & { stdin?: boolean }): Promise<number> {
    const bundlePath = join(this.directory, 'bundles', id)
    await mkdir(bundlePath, { recursive: true })
    await makeBundle(bundlePath, this.rootfs, options)
    this.#containers.push(id)
    return await this.client.createContainer({
      id,
      bundlePath,
      terminal: options.terminal ?? false,
      stdin: options.stdin ?? false,
      exitPaths: [this.exitFileOf(id)],
      logDrivers: [{ type: 'cri', path: this.logOf(id) }],
    })
  }

  async startContainer(id: string): Promise<void> {
    await output(this.runtimePath, ['--root', this.runtimeRoot, 'start', id])
  }

  async runContainer(id: string, options: BundleOptions & { stdin?: boolean }): Promise<number> {
    const pid = await this.create(id, options)
    await this.startContainer(id)
    return pid
  }

  /** Waits for the exit file and returns the code in it. */
  async exitCode(id: string, timeoutMs = 60_000): Promise<number> {
    await waitFor(`the exit of ${id}`, () => existsSync(this.exitFileOf(id)), timeoutMs)
    return Number(await readFile(this.exitFileOf(id), 'utf8'))
  }

  async deleteContainer(id: string): Promise<void> {
    await run(this.runtimePath, ['--root', this.runtimeRoot, 'delete', '--force', id])
    this.#containers.splice(this.#containers.indexOf(id), 1)
  }

  /** A stream URL as the driver asks for it. */
  async url(request: Partial<UrlRequest>): Promise<string> {
    const {
      kind = 'exec',
      id = '',
      cmd = [],
      tty = false,
      stdin = false,
      stdout = true,
      stderr = false,
    } = request
    if (kind === 'portforward') return await this.client.servePortForward({})
    if (kind === 'attach') return await this.client.serveAttach({ id, tty, stdin, stdout, stderr })
    return await this.client.serveExec({ id, command: cmd, tty, stdin, stdout, stderr })
  }

  async control(): Promise<Control> {
    return await serveControl(async (request) => await this.url(request))
  }

  /** Deletes the containers and ends the monitor. */
  async stop(): Promise<void> {
    while (this.#containers[0] !== undefined) await this.deleteContainer(this.#containers[0])
    this.client.close()
    process.kill(this.pid, 'SIGTERM')
    await waitFor('the end of the monitor', () => !isAlive(this.pid))
    await rm(this.directory, { recursive: true, force: true })
  }
}
