// A monitor with real containers for the system tests: runc or crun, a static busybox, everything in one temporary
// directory. `close` ends what it started and fails when anything is left behind.

import assert from 'node:assert/strict'
import { execFileSync } from 'node:child_process'
import {
  chmodSync,
  copyFileSync,
  existsSync,
  mkdirSync,
  mkdtempSync,
  readFileSync,
  readdirSync,
  readlinkSync,
  rmSync,
  symlinkSync,
  writeFileSync,
} from 'node:fs'
import { tmpdir } from 'node:os'
import { basename, dirname, join, resolve } from 'node:path'
import { setTimeout as sleep } from 'node:timers/promises'
import { MonitorClient } from '../../src/client/monitor-client.ts'
import { startMonitor } from '../../src/client/monitor-process.ts'

const root = resolve(import.meta.dirname, '../../..')
export const monitorBinary = join(root, 'dist/bin/holdfast-monitor')

export type RuntimeName = 'runc' | 'crun'
export const runtimes: readonly RuntimeName[] = ['runc', 'crun']

export interface ContainerSpec {
  readonly id: string
  readonly args: readonly string[]
  readonly terminal?: boolean
  readonly stdin?: boolean
  readonly env?: readonly string[]
  readonly logMaxSize?: number
  /** No log at all. */
  readonly unlogged?: boolean
  /** Where its log is to be; the rig's directory unless told otherwise. */
  readonly logDirectory?: string
  readonly annotations?: Record<string, string>
  readonly memoryLimit?: number
  readonly oomScoreAdj?: number
  /** Joined by path. */
  readonly networkNamespace?: string
  /** The container shares the host's pids. */
  readonly hostPid?: boolean
  readonly cleanupCommand?: readonly string[]
}

export class Rig {
  readonly directory: string
  readonly runtime: RuntimeName
  readonly runtimePath: string
  readonly keeperPid: number
  readonly client: MonitorClient
  readonly #containers = new Set<string>()
  readonly #logDirectories = new Map<string, string>()

  private constructor(directory: string, runtime: RuntimeName, pid: number, client: MonitorClient) {
    this.directory = directory
    this.runtime = runtime
    this.runtimePath = runtimePathIn(directory, runtime)
    this.keeperPid = pid
    this.client = client
  }

  static async start(runtime: RuntimeName, env: Record<string, string> = {}): Promise<Rig> {
    const directory = mkdtempSync(join(tmpdir(), 'holdfast-test-'))
    makeRootfs(join(directory, 'rootfs'))
    const runtimePath = runtimePathIn(directory, runtime)
    mkdirSync(join(directory, 'bin'))
    writeRuntime(runtimePath, runtime)
    const { pid } = await startMonitor({
      monitorPath: monitorBinary,
      runtimePath,
      runtimeDir: join(directory, 'run'),
      runtimeRoot: join(directory, 'root'),
      env: { ...env },
    })
    const client = await MonitorClient.connect(join(directory, 'run/conmon.sock'))
    return new Rig(directory, runtime, pid, client)
  }

  /** The pid of the server that lives now. */
  serverPid(): number {
    const children = readFileSync(`/proc/${this.keeperPid}/task/${this.keeperPid}/children`, 'utf8').split(
      ' ',
    )
    const server = children.find((pid) => pid !== '' && commandLine(Number(pid)).includes('server.cjs'))
    return Number(server ?? 0)
  }

  /** Kills the server and waits until its successor answers. */
  async killServer(): Promise<void> {
    const old = this.serverPid()
    if (old > 0) process.kill(old, 'SIGKILL')
    await waitFor('a new server', () => this.serverPid() > 0 && this.serverPid() !== old)
    // A call on the dead server's connection fails once.
    await this.client.version().catch(() => this.client.version())
  }

  logPath(id: string): string {
    return join(this.#logDirectories.get(id) ?? this.directory, `${id}.log`)
  }

  /** What the server that lives now has said so far. */
  diagnostics(): string {
    return readFileSync(`/proc/${this.serverPid()}/fd/2`, 'utf8')
  }

  exitPath(id: string): string {
    return join(this.directory, `${id}.exit`)
  }

  oomPath(id: string): string {
    return join(this.directory, `${id}.oom`)
  }

  /** Creates a container; resolves to its pid. */
  async create(spec: ContainerSpec): Promise<number> {
    const bundle = join(this.directory, `bundle-${spec.id}`)
    writeBundle(bundle, join(this.directory, 'rootfs'), spec)
    this.#containers.add(spec.id)
    if (spec.logDirectory !== undefined) this.#logDirectories.set(spec.id, spec.logDirectory)
    const result = await this.client.createContainer({
      id: spec.id,
      bundlePath: bundle,
      terminal: spec.terminal ?? false,
      stdin: spec.stdin ?? false,
      cgroupManager: 'cgroupfs',
      exitPaths: [this.exitPath(spec.id)],
      oomExitPaths: [this.oomPath(spec.id)],
      logDrivers:
        spec.unlogged === true
          ? []
          : [{ type: 'cri', path: this.logPath(spec.id), maxSize: spec.logMaxSize ?? 0 }],
      cleanupCommand: spec.cleanupCommand ?? [],
    })
    return result
  }

  /** Runs the OCI runtime by hand, as a container runtime does for start, kill and delete. */
  runOci(...args: string[]): string {
    return execFileSync(this.runtimePath, ['--root', join(this.directory, 'root'), ...args], {
      encoding: 'utf8',
      stdio: 'pipe',
    })
  }

  async run(spec: ContainerSpec): Promise<number> {
    const pid = await this.create(spec)
    this.runOci('start', spec.id)
    return pid
  }

  /** Open sessions of a container, as the monitor counts them. */
  async sessions(id: string): Promise<number> {
    const containers = await this.client.listContainers()
    return containers.find((container) => container.id === id)?.sessions ?? 0
  }

  /** The exit code that was reported. */
  async exitCode(id: string, timeoutMs = 20_000): Promise<number> {
    await waitFor(`the exit file of ${id}`, () => existsSync(this.exitPath(id)), timeoutMs)
    return Number(readFileSync(this.exitPath(id), 'utf8'))
  }

  /** What the log says the container printed, per stream, with the line ends that F entries imply. */
  logText(id: string, stream: 'stdout' | 'stderr' = 'stdout'): string {
    return readFileSync(this.logPath(id), 'latin1')
      .split('\n')
      .flatMap((line) => {
        const match = /^(\S+) (stdout|stderr) ([PF]) (.*)$/s.exec(line)
        return match === null || match[2] !== stream ? [] : [`${match[4]}${match[3] === 'F' ? '\n' : ''}`]
      })
      .join('')
  }

  /** Forgets a container that the test deleted, with its files. */
  removeFiles(id: string): void {
    this.#containers.delete(id)
    for (const path of [this.logPath(id), this.exitPath(id), join(this.directory, `bundle-${id}`)]) {
      rmSync(path, { recursive: true, force: true })
    }
  }

  async close(): Promise<void> {
    this.client.close()
    if (isRunning(this.keeperPid)) process.kill(this.keeperPid, 'SIGTERM')
    await waitFor('the monitor to end', () => !isRunning(this.keeperPid), 20_000)
    for (const id of this.#containers) {
      try {
        this.runOci('delete', '--force', id)
      } catch {
        // Deleted by the test, or never created.
      }
    }
    const left = processesNaming(this.directory)
    rmSync(this.directory, { recursive: true, force: true })
    assert.deepEqual(left, [], 'processes left behind')
    assert.ok(!readFileSync('/proc/self/mounts', 'utf8').includes(this.directory), 'mounts left behind')
  }
}

/** Polls until it holds; fails, naming what was awaited, when it never does. */
export async function waitFor(
  what: string,
  holds: () => boolean | Promise<boolean>,
  timeoutMs = 10_000,
): Promise<void> {
  const deadline = Date.now() + timeoutMs
  while (!(await holds())) {
    if (Date.now() > deadline) assert.fail(`waited ${timeoutMs} ms in vain for ${what}`)
    await sleep(10)
  }
}

/** Alive and no zombie. */
export function isRunning(pid: number): boolean {
  try {
    return !/\) [ZX] /.test(readFileSync(`/proc/${pid}/stat`, 'latin1'))
  } catch {
    return false
  }
}

export function commandLine(pid: number): string {
  try {
    return readFileSync(`/proc/${pid}/cmdline`, 'latin1').replaceAll('\0', ' ').trim()
  } catch {
    return ''
  }
}

/** How many descriptors of a process are pipes, sockets or terminals. */
export function streamFds(pid: number): number {
  return readdirSync(`/proc/${pid}/fd`).filter((fd) => {
    try {
      return /^pipe:|^socket:|ptmx|pts/.test(readlinkSync(`/proc/${pid}/fd/${fd}`))
    } catch {
      return false
    }
  }).length
}

/** `pid command line` of every process whose command line names text, but this one. */
export function processesNaming(text: string): string[] {
  return readdirSync('/proc').flatMap((name) => {
    const pid = Number(name)
    if (!Number.isInteger(pid) || pid === process.pid || !isRunning(pid)) return []
    const line = commandLine(pid)
    return line.includes(text) ? [`${pid} ${line}`] : []
  })
}

function runtimePathIn(directory: string, runtime: RuntimeName): string {
  return join(directory, 'bin', runtime)
}

/**
 * The runtime behind a script of its own name. crun refuses a hybrid host while a controller sits in the v2 mount: there
 * it runs in a mount namespace without it.
 */
export function writeRuntime(path: string, runtime: RuntimeName): void {
  const binary = execFileSync('sh', ['-c', `command -v ${runtime}`], { encoding: 'utf8' }).trim()
  const unified = '/sys/fs/cgroup/unified'
  const hybrid =
    runtime === 'crun' && readFileSync('/proc/self/mounts', 'utf8').includes(` ${unified} cgroup2`)
  const command = hybrid
    ? `exec unshare --mount sh -c 'umount ${unified}; exec ${binary} "$@"' ${runtime} "$@"`
    : `exec ${binary} "$@"`
  writeFileSync(path, `#!/bin/sh\n${command}\n`)
  chmodSync(path, 0o755)
}

function makeRootfs(path: string): void {
  for (const name of ['bin', 'proc', 'dev', 'sys', 'tmp', 'etc', 'root'])
    mkdirSync(join(path, name), { recursive: true })
  copyFileSync('/usr/bin/busybox', join(path, 'bin/busybox'))
  const applets = execFileSync('/usr/bin/busybox', ['--list'], { encoding: 'utf8' }).split('\n')
  for (const applet of applets) {
    // A link named busybox would replace the binary by itself.
    if (applet !== '' && applet !== 'busybox') symlinkSync('busybox', join(path, 'bin', applet))
  }
  writeFileSync(join(path, 'etc/passwd'), 'root:x:0:0:root:/root:/bin/sh\n')
}

function writeBundle(bundle: string, rootfs: string, spec: ContainerSpec): void {
  mkdirSync(bundle, { recursive: true })
  const namespaces = [
    { type: 'mount' },
    { type: 'ipc' },
    { type: 'uts' },
    ...(spec.hostPid === true ? [] : [{ type: 'pid' }]),
    spec.networkNamespace === undefined
      ? { type: 'network' }
      : { type: 'network', path: spec.networkNamespace },
  ]
  const config = {
    ociVersion: '1.0.2',
    process: {
      terminal: spec.terminal ?? false,
      user: { uid: 0, gid: 0 },
      args: spec.args,
      env: ['PATH=/bin', ...(spec.env ?? [])],
      cwd: '/',
      ...(spec.oomScoreAdj === undefined ? {} : { oomScoreAdj: spec.oomScoreAdj }),
      capabilities: Object.fromEntries(
        ['bounding', 'effective', 'permitted'].map((set) => [
          set,
          ['CAP_KILL', 'CAP_NET_BIND_SERVICE', 'CAP_SYS_ADMIN'],
        ]),
      ),
    },
    root: { path: rootfs, readonly: false },
    hostname: spec.id,
    mounts: [
      { destination: '/proc', type: 'proc', source: 'proc' },
      { destination: '/dev', type: 'tmpfs', source: 'tmpfs', options: ['nosuid', 'mode=755', 'size=65536k'] },
      {
        destination: '/dev/pts',
        type: 'devpts',
        source: 'devpts',
        options: ['newinstance', 'ptmxmode=0666', 'mode=0620'],
      },
      { destination: '/tmp', type: 'tmpfs', source: 'tmpfs', options: ['nosuid'] },
    ],
    annotations: spec.annotations ?? {},
    linux: {
      // Of its own: crun kills by cgroup, and names it after the container where nothing is said.
      cgroupsPath: `/${basename(dirname(bundle))}-${spec.id}`,
      namespaces,
      resources:
        spec.memoryLimit === undefined ? {} : { memory: { limit: spec.memoryLimit, swap: spec.memoryLimit } },
    },
  }
  writeFileSync(join(bundle, 'config.json'), JSON.stringify(config))
}
