// Starts a keeper whose servers lend their channel to the test (lent-server.ts), and ends it whatever happens.

import assert from 'node:assert/strict'
import { execFile, spawn, type ChildProcess } from 'node:child_process'
import {
  closeSync,
  existsSync,
  mkdirSync,
  mkdtempSync,
  readdirSync,
  readFileSync,
  renameSync,
  rmSync,
  statSync,
} from 'node:fs'
import { tmpdir } from 'node:os'
import { join, resolve } from 'node:path'
import { promisify } from 'node:util'
import {
  KeeperClient,
  type HeldEntry,
  type KeeperExit,
  type PumpState,
  type Replay,
} from '../../src/keeper/keeper-client.ts'
import {
  acceptFd,
  poll,
  recvFds,
  sendFds,
  unixListen,
  unpoll,
  type PollHandle,
} from '../../src/native/addon.ts'

export const repository = resolve(import.meta.dirname, '../../..')
/** The keeper under test; sanitized.test.ts runs the same tests with another build. */
export const keeperBinary =
  process.env['HOLDFAST_TEST_KEEPER'] ?? join(repository, 'dist/bin/holdfast-monitor')

/** How long anything here may take. */
const patienceMs = 20_000

/** Resolves when `ready` does, or fails with `what` after a while. */
export async function within<T>(what: string, ready: Promise<T>): Promise<T> {
  let timer: NodeJS.Timeout | undefined
  const late = new Promise<never>((_, fail) => {
    timer = setTimeout(() => fail(new Error(`${what}: nothing came`)), patienceMs)
  })
  try {
    return await Promise.race([ready, late])
  } finally {
    clearTimeout(timer)
  }
}

interface Seen {
  readonly pid: number
  readonly keeperPid: number
  readonly argv: string[]
  readonly execArgv: string[]
  readonly env: Record<string, string>
  readonly oom: string
  readonly limits: string
}

/** One life of a server, played by the test. */
export class LentServer {
  readonly seen: Seen
  readonly client: KeeperClient
  readonly replay: Replay
  readonly exits: KeeperExit[]
  readonly signals: number[]
  readonly states = new Map<string, PumpState>()
  /** News of each pump, in order. */
  readonly news: { name: string; state: PumpState }[] = []
  readonly #control: number
  readonly #channel: number
  readonly #waiters = new Set<() => void>()
  closed = false

  constructor(seen: Seen, control: number, channel: { fd: number; client: KeeperClient; replay: Replay }) {
    this.seen = seen
    this.client = channel.client
    this.replay = channel.replay
    this.#control = control
    this.#channel = channel.fd
    this.exits = [...this.replay.exits]
    this.signals = [...this.replay.signals]
    for (const { name, pump } of this.replay.entries) if (pump !== undefined) this.states.set(name, pump)
    this.client.listen({
      pumped: (name, state) => {
        this.states.set(name, state)
        this.news.push({ name, state })
        this.#changed()
      },
      exited: (exit) => {
        this.exits.push(exit)
        this.#changed()
      },
      signalled: (signals) => {
        this.signals.splice(0, this.signals.length, ...signals)
        this.#changed()
      },
      closed: () => {
        this.closed = true
        this.#changed()
      },
    })
  }

  #changed(): void {
    const waiters = [...this.#waiters]
    this.#waiters.clear()
    for (const wake of waiters) wake()
  }

  held(name: string): HeldEntry | undefined {
    return this.replay.entries.find((entry) => entry.name === name)
  }

  /** Resolves with the first true value of `look`, which is asked again with every piece of news. */
  async until<T>(what: string, look: () => T | undefined | false): Promise<T> {
    for (;;) {
      const found = look()
      if (found !== undefined && found !== false) return found
      await within(what, new Promise<void>((done) => this.#waiters.add(done)))
    }
  }

  exitOf(pid: number): Promise<KeeperExit> {
    return this.until(`exit of ${pid}`, () => this.exits.find((exit) => exit.pid === pid))
  }

  /** The pump's state once both streams that it has are at their end. */
  ended(name: string): Promise<PumpState> {
    return this.until(`end of ${name}`, () => {
      const state = this.states.get(name)
      return state !== undefined && state.streams.every((stream) => !stream.open) ? state : undefined
    })
  }

  say(word: string): void {
    sendFds(this.#control, Buffer.from(`say ${word}`), [])
  }

  /** Starts a command as a child of the keeper; resolves to its pid. */
  spawn(command: string): Promise<number> {
    return this.#order(`adopt ${command}`)
  }

  /** Starts a command as a child of the server, as an OCI runtime is. */
  spawnStaying(command: string): Promise<number> {
    return this.#order(`spawn ${command}`)
  }

  async #order(text: string): Promise<number> {
    sendFds(this.#control, Buffer.from(text), [])
    let pid: number | undefined
    await eventually('an answer', () => {
      const answer = recvFds(this.#control)
      if (answer !== null) pid = Number(answer.data.toString())
      return pid !== undefined
    })
    return pid ?? 0
  }

  /** Makes the process exit by itself. */
  exit(code: number): void {
    sendFds(this.#control, Buffer.from(`exit ${code}`), [])
    this.release()
  }

  kill(): void {
    process.kill(this.seen.pid, 'SIGKILL')
    this.release()
  }

  /** Closes the channel everywhere while the process lives on. */
  mute(): void {
    sendFds(this.#control, Buffer.from('mute'), [])
    this.client.close()
    closeQuietly(this.#channel)
  }

  /** The lent descriptor. */
  get channel(): number {
    return this.#channel
  }

  /** Gives up the channel and the control connection. */
  release(): void {
    this.client.close()
    for (const entry of this.replay.entries) if (entry.fd !== undefined) closeQuietly(entry.fd)
    closeQuietly(this.#channel)
    closeQuietly(this.#control)
  }
}

function closeQuietly(fd: number): void {
  try {
    closeSync(fd)
  } catch {
    // The test has closed it.
  }
}

interface MonitorOptions {
  readonly binary?: string
  readonly args?: readonly string[]
  readonly env?: NodeJS.ProcessEnv
  /** Without: ready is told, pidfile and all. */
  readonly bare?: boolean
}

export interface Launched {
  readonly code: number | null
  readonly stdout: string
  readonly stderr: string
}

/** A keeper under test, with a directory of its own. */
export class Monitor {
  readonly directory: string
  readonly launched: Promise<Launched>
  readonly launcher: ChildProcess
  keeperPid = 0
  readonly #listener: number
  readonly #poll: PollHandle
  readonly #arrived: { control: number; seen: Seen; channel: number }[] = []
  readonly #live: LentServer[] = []
  readonly #pending = new Map<number, PollHandle>()
  #wake: () => void = () => undefined

  constructor(options: MonitorOptions = {}) {
    this.directory = mkdtempSync(join(tmpdir(), 'holdfast-keeper-'))
    this.#listener = unixListen(join(this.directory, 'control'), 'seqpacket')
    this.#poll = poll(this.#listener, () => this.#accept())
    const env = {
      ...process.env,
      HOLDFAST_SERVER: join(repository, 'dist/test/keeper/lent-server.js'),
      HOLDFAST_TEST_CONTROL: join(this.directory, 'control'),
      ASAN_OPTIONS: `log_path=${join(this.directory, 'sanitizer')}`,
      UBSAN_OPTIONS: `log_path=${join(this.directory, 'sanitizer')}:print_stacktrace=1`,
      ...options.env,
    }
    const binary = options.binary ?? keeperBinary
    this.launcher = spawn(binary, options.args ?? [], { env, stdio: ['ignore', 'pipe', 'pipe'] })
    this.launched = outcome(this.launcher)
  }

  /** A monitor whose first server is ready. */
  static async start(options: MonitorOptions = {}): Promise<{ monitor: Monitor; server: LentServer }> {
    const monitor = new Monitor(options)
    try {
      const server = await monitor.nextServer()
      await server.client.ready({ pidfile: monitor.path('pidfile'), sockets: [] })
      if (options.args?.includes('--skip-fork') !== true) assert.equal((await monitor.launched).code, 0)
      return { monitor, server }
    } catch (error) {
      await monitor.stop()
      throw error
    }
  }

  path(name: string): string {
    return join(this.directory, name)
  }

  /** The next server that the keeper starts. */
  async nextServer(): Promise<LentServer> {
    let arrived = this.#arrived.shift()
    while (arrived === undefined) {
      await within('a server', new Promise<void>((done) => (this.#wake = done)))
      arrived = this.#arrived.shift()
    }
    const { seen, control, channel } = arrived
    this.keeperPid = seen.keeperPid
    const client = new KeeperClient(channel)
    const replay = await within('sync', client.replay())
    const server = new LentServer(seen, control, { fd: channel, client, replay })
    this.#live.push(server)
    return server
  }

  /** The next server, made ready. */
  async readyServer(): Promise<LentServer> {
    const server = await this.nextServer()
    await server.client.ready({ pidfile: this.path('pidfile'), sockets: [] })
    return server
  }

  /** Ends everything, orderly or not, and removes the directory. */
  async stop(): Promise<void> {
    if (this.keeperPid > 0 && isAlive(this.keeperPid)) process.kill(this.keeperPid, 'SIGKILL')
    if (this.launcher.exitCode === null && this.launcher.signalCode === null) this.launcher.kill('SIGKILL')
    await this.launched
    for (const server of this.#live) {
      if (isAlive(server.seen.pid)) process.kill(server.seen.pid, 'SIGKILL')
      server.release()
    }
    unpoll(this.#poll)
    closeSync(this.#listener)
    for (const [fd, handle] of this.#pending) {
      unpoll(handle)
      closeSync(fd)
    }
    for (const { control, channel } of this.#arrived) {
      closeSync(control)
      closeSync(channel)
    }
    const reports = readdirSync(this.directory).filter((name) => name.startsWith('sanitizer'))
    const texts = reports.map((name) => readFileSync(join(this.directory, name), 'utf8'))
    rmSync(this.directory, { recursive: true, force: true })
    assert.deepEqual(texts, [], 'reports of the sanitizers')
  }

  #accept(): void {
    const control = acceptFd(this.#listener)
    if (control === null) return
    const handle = poll(control, () => {
      const message = recvFds(control)
      if (message === null) return
      unpoll(handle)
      this.#pending.delete(control)
      const [channel] = message.fds
      if (channel === undefined) {
        closeSync(control)
        return
      }
      this.#arrived.push({ control, seen: JSON.parse(message.data.toString()) as Seen, channel })
      this.#wake()
    })
    this.#pending.set(control, handle)
  }
}

/** Waits for the end of a program. */
export function outcome(child: ChildProcess): Promise<Launched> {
  let stdout = ''
  let stderr = ''
  child.stdout?.on('data', (chunk: Buffer) => (stdout += chunk.toString()))
  child.stderr?.on('data', (chunk: Buffer) => (stderr += chunk.toString()))
  return new Promise((done) => child.once('close', (code) => done({ code, stdout, stderr })))
}

/** True for a process that is no zombie. */
export function isAlive(pid: number): boolean {
  try {
    return !/^State:\s*Z/m.test(readFileSync(`/proc/${pid}/status`, 'utf8'))
  } catch {
    return false
  }
}

/** Asks again every few ms until `look` is true: for what the kernel does not tell. */
export async function eventually(what: string, look: () => boolean): Promise<void> {
  const end = Date.now() + patienceMs
  while (!look()) {
    if (Date.now() > end) throw new Error(`${what}: it did not come to that`)
    await new Promise((done) => setTimeout(done, 5))
  }
}

/**
 * The keeper built another way, beside dist/bin so that it finds Node the same way: with sanitizers, or with a short
 * back-off for tests that kill many servers.
 */
export async function buildKeeper(name: string, ...flags: string[]): Promise<string> {
  const source = join(repository, 'src/keeper')
  const files = readdirSync(source).map((file) => join(source, file))
  const binary = join(repository, `dist/${name}/holdfast-monitor`)
  const newest = Math.max(
    ...files.filter((file) => /\.[ch]$/.test(file)).map((file) => statSync(file).mtimeMs),
  )
  if (existsSync(binary) && statSync(binary).mtimeMs > newest) return binary
  mkdirSync(join(repository, `dist/${name}`), { recursive: true })
  const warnings = ['-std=gnu11', '-Wall', '-Wextra', '-Werror']
  const sources = files.filter((file) => file.endsWith('.c'))
  await promisify(execFile)('cc', [...warnings, ...flags, ...sources, '-o', `${binary}.new`])
  renameSync(`${binary}.new`, binary)
  return binary
}

/** ASan and UBSan: they find what the static build does not, and the other way round. */
export const sanitizers = ['-O1', '-g', '-fsanitize=address,undefined', '-fno-sanitize-recover=undefined']
