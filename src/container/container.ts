// One container: its record at the keeper, its attached clients, its execs, and its end.

import { closeSync, fstatSync, rmSync } from 'node:fs'
import { dirname, join } from 'node:path'
import { MonitorError } from '../base/errors.ts'
import { ATTACH_REPLAY_BYTES, DRAIN_GRACE_MS } from '../base/limits.ts'
import { deferred, withDeadline } from '../base/lifetime.ts'
import { exitCodeOf, type ExitStatus, type RemoteStdio, type TerminalSize } from '../base/remote-stdio.ts'
import type { KeeperExit, PumpState } from '../keeper/keeper-client.ts'
import { closeLogFile, openLogFile, reopenLogFile, type LogFile } from '../log/log-file.ts'
import { readLogTail } from '../log/log-tail.ts'
import { setWinsize } from '../native/addon.ts'
import { WatchedFd } from '../native/watched-fd.ts'
import { StdinMerge } from '../stdio/stdin-merge.ts'
import { AttachedClient } from './attached-client.ts'
import { ContainerOutput } from './container-output.ts'
import type { ContainerContext } from './context.ts'
import { ExecProcess, type ExecRequest } from './exec-process.ts'
import { startCleanup, writeExitFiles } from './exit-report.ts'
import { launch, type Launched } from './launch.ts'
import { LogReport } from './log-report.ts'
import { countOomKills, findMemoryCgroup } from './oom.ts'
import { encodeRecord, type ContainerRecord } from './record.ts'

/** What the keeper holds of a container that a successor takes over. */
export interface HeldContainer {
  readonly stdin: number | undefined
  readonly terminal: number | undefined
  readonly pump: PumpState | undefined
  /** Of the open log file; 0: none, or `pump` says it. */
  readonly logInode: number
}

export interface CreateOptions {
  readonly record: ContainerRecord
  readonly bundlePath: string
  readonly globalArgs: readonly string[]
  readonly commandArgs: readonly string[]
  readonly env: readonly (readonly [string, string])[]
}

export interface AttachOptions {
  /** Undefined: as the container was created. */
  readonly stdinOnce: boolean | undefined
  /** The client's end of input ends its session where it does not close the container's stdin. */
  readonly detachesAtEof: boolean
  readonly replayBytes: number
}

/** Of the keeper's entries of a container. */
export const containerEntry = (id: string): string => `container/${id}`

export class Container {
  readonly id: string
  readonly output: ContainerOutput
  readonly #context: ContainerContext
  readonly #terminal: WatchedFd | undefined
  readonly #stdin: StdinMerge | undefined
  readonly #execs = new Set<ExecProcess>()
  readonly #clients = new Set<AttachedClient>()
  readonly #exited = deferred<ExitStatus>()
  #record: ContainerRecord
  #reopening: Promise<void> | undefined

  private constructor(context: ContainerContext, record: ContainerRecord, held: HeldContainer) {
    this.#context = context
    this.#record = record
    this.id = record.id
    this.#terminal = held.terminal === undefined ? undefined : new WatchedFd(held.terminal)
    const input = record.terminal ? this.#terminal : held.stdin
    this.#stdin =
      input === undefined || !record.stdin
        ? undefined
        : new StdinMerge({ fd: input, terminal: record.terminal, onClosed: () => this.#dropEntry('in') })
    this.output = new ContainerOutput(context.keeper, `${containerEntry(record.id)}/io`, {
      log: new LogReport(context.diagnostics, record.id, record.logPath),
      logInode: held.logInode,
      state: held.pump,
    })
    this.#supervise().catch((error: unknown) => {
      context.diagnostics.error(
        `container ${record.id}: ${MonitorError.within('report its exit', error).message}`,
      )
    })
  }

  /** Runs the OCI runtime's create. Rejects with its own message, and leaves nothing behind then. */
  static async create(context: ContainerContext, options: CreateOptions): Promise<Container> {
    const { record } = options
    const entry = containerEntry(record.id)
    // A successor that finds it knows that this runtime wrote it.
    rmSync(record.pidFile, { force: true })
    await context.keeper.hold(entry, { record: encodeRecord(record) })
    let log: LogFile | undefined
    try {
      if (record.logPath !== '') log = openLogFile(record.logPath)
      const launched = await launch(context, {
        what: `create container ${record.id}`,
        name: entry,
        terminal: record.terminal,
        stdin: record.stdin,
        holdInput: true,
        pidFile: record.pidFile,
        runtimePidFile: record.runtimePidFile,
        env: options.env,
        args: (consoleSocket) =>
          context.runtime.createArgs({ ...options, ...runtimeArgs(record), consoleSocket }),
      })
      return await Container.#begin(context, record, { ...launched, log })
    } catch (error) {
      await context.keeper.drop(entry)
      throw error
    } finally {
      if (log !== undefined) closeLogFile(log)
    }
  }

  /** Goes on where a server died between the OCI runtime's end and the container's start. */
  static async adoptCreated(
    context: ContainerContext,
    record: ContainerRecord,
    launched: Launched,
  ): Promise<Container> {
    const log = record.logPath === '' ? undefined : openLogFile(record.logPath)
    try {
      return await Container.#begin(context, record, { ...launched, log })
    } finally {
      if (log !== undefined) closeLogFile(log)
    }
  }

  /** Takes over a container of a server that died. */
  static adopt(context: ContainerContext, record: ContainerRecord, held: HeldContainer): Container {
    return new Container(context, record, held)
  }

  get pid(): number {
    return this.#record.pid
  }

  get state(): ContainerRecord['state'] {
    return this.#record.state
  }

  get terminal(): boolean {
    return this.#record.terminal
  }

  get exitCode(): number | undefined {
    return this.state === 'exited' ? this.#record.exitCode : undefined
  }

  /** Attached clients and execs. */
  get sessions(): number {
    return this.#clients.size + this.#execs.size
  }

  /** Settles when the exit has been reported. */
  get exited(): Promise<ExitStatus> {
    return this.#exited.promise
  }

  /** Starts a further process. */
  async exec(
    request: Omit<ExecRequest, 'bundlePath' | 'containerId' | 'systemdCgroup'>,
  ): Promise<ExecProcess> {
    const process = await ExecProcess.start(this.#context, {
      ...request,
      bundlePath: dirname(this.#record.pidFile),
      containerId: this.id,
      systemdCgroup: this.#record.systemdCgroup,
    })
    this.trackExec(process)
    // The container went while its runtime was busy: its execs go with it.
    if (this.state !== 'running') await process.kill()
    return process
  }

  /** An exec that ends when the container does. */
  trackExec(process: ExecProcess): void {
    this.#execs.add(process)
    const forget = (): void => {
      this.#execs.delete(process)
    }
    process.finished.then(forget, forget)
  }

  /**
   * Joins a client with the container's own stdio. Resolves when the container has ended or the client detached by
   * ending its stdin (streaming.md §8 rule 46); rejects when the client was dropped.
   */
  async attach(remote: RemoteStdio, options: AttachOptions): Promise<void> {
    const once = (options.stdinOnce ?? this.#record.stdinOnce) && !this.terminal
    const client = new AttachedClient(remote, {
      output: this.output,
      stdin: this.#stdin,
      // A terminal has one stream.
      stderr: !this.terminal,
      inputEnd: once ? 'closes-stdin' : options.detachesAtEof ? 'detaches' : 'nothing',
    })
    this.#clients.add(client)
    try {
      // Should this server die, its successor closes the container's stdin for this client.
      if (once && remote.connectStdin !== undefined) await this.#store({ stdinTaken: true })
      remote.onResize((size) => this.resizeIfTerminal(size))
      const replay = Math.min(options.replayBytes, ATTACH_REPLAY_BYTES)
      if (!this.terminal && replay > 0 && this.#record.logPath !== '') {
        const tail = readLogTail(this.#record.logPath, replay)
        if (tail.stdout.length > 0) remote.stdout?.write(tail.stdout)
        if (tail.stderr.length > 0) remote.stderr?.write(tail.stderr)
      }
      await client.run(this.#exited.promise)
    } finally {
      this.#clients.delete(client)
    }
  }

  /** Throws `failed-precondition` for a container without a terminal. */
  resize(size: TerminalSize): void {
    if (this.#terminal === undefined) {
      throw new MonitorError('failed-precondition', `resize container ${this.id}: container has no terminal`)
    }
    this.resizeIfTerminal(size)
  }

  /** Zero sizes are ignored (streaming.md §2.8). */
  resizeIfTerminal(size: TerminalSize): void {
    if (this.#terminal === undefined || this.state !== 'running' || size.width < 1 || size.height < 1) return
    setWinsize(this.#terminal.fd, size.height, size.width)
  }

  /** Goes on in a fresh file at the log's path. Calls that overlap count as one (case B54). */
  reopenLog(): Promise<void> {
    this.#reopening ??= this.#reopenLog().finally(() => {
      this.#reopening = undefined
    })
    return this.#reopening
  }

  kill(signal: number): Promise<boolean> {
    return this.#context.keeper.kill(this.pid, signal)
  }

  async #reopenLog(): Promise<void> {
    const { logPath, relogged } = this.#record
    if (logPath === '') return
    // One turn of the loop: calls that came together find this one under way.
    await Promise.resolve()
    const fd = reopenLogFile(logPath, this.output.logInode, relogged)
    try {
      await this.#context.keeper.relog(`${containerEntry(this.id)}/io`, fd)
      this.output.logInode = fstatSync(fd).ino
    } finally {
      closeSync(fd)
    }
    if (relogged) await this.#store({ relogged: false })
  }

  /** From running to reported. Runs again, from its start, in a successor. */
  async #supervise(): Promise<void> {
    const exit = await this.#waitForExit()
    await withDeadline(this.output.ended, DRAIN_GRACE_MS, () => undefined)
    const cleanupStarted = this.state === 'exiting'
    const oomKilled = exitCodeOf(exit.status) === 137 && countOomKills(this.#record.memoryCgroup) > 0
    this.#record = { ...this.#record, exitCode: exitCodeOf(exit.status) }
    writeExitFiles(this.#record, oomKilled, this.#context.diagnostics)
    await this.#store({ state: 'exiting' })
    if (!cleanupStarted) startCleanup(this.#record, this.#context.launcher, this.#context.diagnostics)
    if (exit.number > 0) await this.#context.keeper.claimed(exit.number)
    this.#record = { ...this.#record, state: 'exited' }
    this.output.finish()
    this.#exited.resolve({ ...exit.status, oomKilled })
    await Promise.allSettled([...this.#execs].map((process) => process.kill()))
    this.#stdin?.close()
    this.#terminal?.close()
    for (const suffix of ['tty', 'in']) this.#dropEntry(suffix)
    await this.#context.keeper.drop(containerEntry(this.id))
    // A left-over daemon may print on: its output goes to the log until its streams end.
    await this.output.ended
    await this.output.delivered()
    this.#dropEntry('io')
  }

  /** Hands a created container's output to the keeper's pump. On failure nothing of it stays. */
  static async #begin(
    context: ContainerContext,
    record: ContainerRecord,
    launched: Launched & { readonly log: LogFile | undefined },
  ): Promise<Container> {
    const { keeper } = context
    const { log, stdin, stdout, stderr, terminal } = launched
    const entry = containerEntry(record.id)
    const running: ContainerRecord = {
      ...record,
      state: 'running',
      pid: launched.pid,
      memoryCgroup: findMemoryCgroup(launched.pid),
    }
    try {
      await keeper.pump(`${entry}/io`, {
        ...given('stdout', stdout ?? terminal),
        ...given('stderr', stderr),
        // Without a log what nobody is attached to is thrown away: a container never waits for a reader.
        ...(log === undefined
          ? { discard: true }
          : { log: log.fd, directory: log.directory, logName: log.name }),
        limit: record.logLimit,
        terminal: record.terminal,
        record: encodeRecord({ id: record.id }),
      })
      await keeper.record(entry, encodeRecord(running))
    } catch (error) {
      await keeper.kill(launched.pid, 9)
      for (const fd of [stdin, terminal]) if (fd !== undefined) closeSync(fd)
      await Promise.allSettled(['in', 'tty', 'io'].map((suffix) => keeper.drop(`${entry}/${suffix}`)))
      throw error
    } finally {
      for (const fd of [stdout, stderr]) if (fd !== undefined) closeSync(fd)
      await Promise.allSettled(['out', 'err'].map((suffix) => keeper.drop(`${entry}/${suffix}`)))
    }
    const logInode = log === undefined ? 0 : fstatSync(log.fd).ino
    return new Container(context, running, { stdin, terminal, pump: undefined, logInode })
  }

  /** A status that is lost is never success: 255, and one diagnostic. */
  async #waitForExit(): Promise<Pick<KeeperExit, 'number' | 'status'>> {
    // A predecessor wrote it down. It may have claimed the status, too, and the pid be another process's by now.
    if (this.state === 'exiting') return { number: 0, status: { code: this.#record.exitCode } }
    try {
      return await this.#context.exits.wait(this.pid)
    } catch (error) {
      this.#context.diagnostics.error(`container ${this.id}: ${MonitorError.within('wait', error).message}`)
      return { number: 0, status: { code: 255 } }
    }
  }

  async #store(change: Partial<ContainerRecord>): Promise<void> {
    this.#record = { ...this.#record, ...change }
    await this.#context.keeper.record(containerEntry(this.id), encodeRecord(this.#record))
  }

  #dropEntry(suffix: string): void {
    this.#context.keeper.drop(`${containerEntry(this.id)}/${suffix}`).catch(() => {
      // It was never held, or has gone already.
    })
  }
}

function runtimeArgs(record: ContainerRecord): { id: string; pidFile: string; systemdCgroup: boolean } {
  return { id: record.id, pidFile: record.pidFile, systemdCgroup: record.systemdCgroup }
}

function given<K extends string>(key: K, value: number | undefined): Partial<Record<K, number>> {
  return value === undefined ? {} : ({ [key]: value } as Partial<Record<K, number>>)
}

/** The files of a container that is about to be created. */
export function pidFiles(
  bundlePath: string,
  directory: string,
  id: string,
): { pidFile: string; runtimePidFile: string } {
  return { pidFile: join(bundlePath, 'pidfile'), runtimePidFile: join(directory, `create-${id}.runtime`) }
}
