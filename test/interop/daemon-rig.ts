// holdfastd in a directory of its own, crictl to drive it, and the end of both: nothing may be left behind.

import { existsSync } from 'node:fs'
import { mkdir, mkdtemp, readFile, readdir, rm, writeFile } from 'node:fs/promises'
import { connect } from 'node:net'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { setTimeout as sleep } from 'node:timers/promises'
import { endMonitor } from './processes.ts'
import { Program, product, referee, run } from './programs.ts'
import type { Outcome, ProgramOptions } from './programs.ts'

export interface ContainerOptions {
  readonly name: string
  readonly command: readonly string[]
  readonly stdin?: boolean
  readonly stdinOnce?: boolean
  readonly tty?: boolean
}

/** A daemon with its pods. */
export class DaemonRig {
  readonly directory: string
  readonly socketPath: string
  #daemon: Program

  private constructor(directory: string, daemon: Program) {
    this.directory = directory
    this.socketPath = join(directory, 'holdfastd.sock')
    this.#daemon = daemon
  }

  static async start(): Promise<DaemonRig> {
    const directory = await mkdtemp(join(tmpdir(), 'holdfast-interop-'))
    await writeFile(join(directory, 'crictl.yaml'), 'timeout: 20\n')
    const rig = new DaemonRig(directory, startDaemon(directory))
    await rig.#listening()
    return rig
  }

  /** Kills the daemon as a crash would, and starts it again. */
  async restart(): Promise<void> {
    this.#daemon.kill('SIGKILL')
    await this.#daemon.exited
    this.#daemon = startDaemon(this.directory)
    await this.#listening()
  }

  async crictl(args: readonly string[], options: ProgramOptions = {}): Promise<Outcome> {
    return await run(referee('crictl'), args, { ...options, env: this.environment })
  }

  /** What a crictl that must succeed printed. */
  async ask(...args: string[]): Promise<string> {
    const { code, stdout, stderr } = await this.crictl(args)
    if (code !== 0) throw new Error(`crictl ${args.join(' ')}: exit ${code}: ${stdout}${stderr}`)
    return stdout.trim()
  }

  /** For programs that speak CRI or Kubernetes. */
  get environment(): Record<string, string> {
    return {
      CONTAINER_RUNTIME_ENDPOINT: `unix://${this.socketPath}`,
      IMAGE_SERVICE_ENDPOINT: `unix://${this.socketPath}`,
      CRI_CONFIG_FILE: join(this.directory, 'crictl.yaml'),
      HOME: this.directory,
    }
  }

  async runPod(name: string): Promise<string> {
    const path = join(this.directory, `${name}.json`)
    const metadata = { name, namespace: 'default', uid: `uid-${name}`, attempt: 0 }
    await writeFile(path, JSON.stringify({ metadata, log_directory: this.logDirectory, linux: {} }))
    await mkdir(this.logDirectory, { recursive: true })
    return await this.ask('runp', path)
  }

  /** Creates a container without starting it. */
  async createContainer(pod: string, podName: string, options: ContainerOptions): Promise<string> {
    const { name, command, stdin = false, stdinOnce = false, tty = false } = options
    const path = join(this.directory, `${name}.container.json`)
    const config = {
      metadata: { name },
      image: { image: 'busybox' },
      command,
      log_path: `${name}.log`,
      stdin,
      stdin_once: stdinOnce,
      tty,
      linux: {},
    }
    await writeFile(path, JSON.stringify(config))
    return await this.ask('create', pod, path, join(this.directory, `${podName}.json`))
  }

  async startContainer(pod: string, podName: string, options: ContainerOptions): Promise<string> {
    const id = await this.createContainer(pod, podName, options)
    await this.ask('start', id)
    return id
  }

  get logDirectory(): string {
    return join(this.directory, 'logs')
  }

  /** The keeper's pid, from the record of the pod. */
  async monitorPid(pod: string): Promise<number> {
    const text = await readFile(join(this.directory, 'state', 'pods', pod, 'pod.json'), 'utf8')
    return (JSON.parse(text) as { monitorPid: number }).monitorPid
  }

  /** Removes every pod and ends the daemon. */
  async stop(): Promise<void> {
    const removed = await this.crictl(['rmp', '--all', '--force'])
    this.#daemon.kill('SIGTERM')
    const code = await this.#daemon.exited
    const pods = join(this.directory, 'state', 'pods')
    for (const id of existsSync(pods) ? await readdir(pods) : []) {
      await endMonitor(join(pods, id, 'monitor.lock'))
    }
    await rm(this.directory, { recursive: true, force: true })
    if (removed.code !== 0) throw new Error(`crictl rmp: exit ${removed.code}: ${removed.stderr}`)
    if (code !== 0) throw new Error(`holdfastd: exit ${code}: ${this.#daemon.stderr}`)
  }

  async #listening(): Promise<void> {
    for (let i = 0; i < 400; i++) {
      if (existsSync(this.socketPath) && (await accepts(this.socketPath))) return
      await sleep(25)
    }
    this.#daemon.kill('SIGKILL')
    throw new Error(`holdfastd does not listen: ${this.#daemon.stderr}`)
  }
}

function startDaemon(directory: string): Program {
  const args = ['--state', join(directory, 'state'), '--socket', join(directory, 'holdfastd.sock')]
  return new Program(product('holdfastd'), args)
}

async function accepts(path: string): Promise<boolean> {
  return await new Promise((resolve) => {
    const socket = connect(path)
    socket.once('connect', () => {
      socket.destroy()
      resolve(true)
    })
    socket.once('error', () => resolve(false))
  })
}
