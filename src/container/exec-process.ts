// A further process in a container, with its own stdio and one client. Finished means: exited, and its output at end or
// the grace for what a left-over child keeps open is over. Every way out leaves no entry, file or descriptor behind.

import { join } from 'node:path'
import { rmSync, writeFileSync } from 'node:fs'
import { DRAIN_GRACE_MS, VANISHED_KILL_MS } from '../base/limits.ts'
import { withDeadline } from '../base/lifetime.ts'
import type { ExitStatus, RemoteStdio, TerminalSize } from '../base/remote-stdio.ts'
import type { KeeperExit } from '../keeper/keeper-client.ts'
import { processFileOf } from '../oci/process-file.ts'
import { ProcessStdio } from '../stdio/process-stdio.ts'
import type { ContainerContext } from './context.ts'
import { launch } from './launch.ts'
import { killTree } from './process-tree.ts'
import { encodeRecord, type ExecRecord } from './record.ts'

export interface ExecRequest {
  readonly kind: 'sync' | 'stream'
  readonly containerId: string
  readonly bundlePath: string
  readonly command: readonly string[]
  readonly terminal: boolean
  readonly stdin: boolean
  readonly systemdCgroup: boolean
  readonly env: readonly (readonly [string, string])[]
  /** What its client has said so far. */
  readonly terminalSize?: () => TerminalSize | undefined
}

const SIGKILL = 9

let lastExec = 0

/** What it prints is read and thrown away. */
const vanishedClient: RemoteStdio = {
  stdout: undefined,
  stderr: undefined,
  connectStdin: undefined,
  onResize: () => undefined,
  gone: AbortSignal.abort(),
}

export class ExecProcess {
  readonly containerId: string
  readonly pid: number
  readonly #context: ContainerContext
  readonly #name: string
  readonly #stdio: ProcessStdio
  readonly #exit: Promise<KeeperExit>
  readonly #finished: Promise<ExitStatus>
  #running = true

  private constructor(context: ContainerContext, name: string, record: ExecRecord, stdio: ProcessStdio) {
    this.#context = context
    this.#name = name
    this.containerId = record.containerId
    this.pid = record.pid
    this.#stdio = stdio
    this.#exit = context.exits.wait(record.pid)
    this.#finished = this.#finish()
    // Nobody may be waiting when it fails: a vanished client's process.
    this.#finished.catch(() => undefined)
  }

  /** Starts a process. Rejects with the OCI runtime's own message. */
  static async start(context: ContainerContext, request: ExecRequest): Promise<ExecProcess> {
    const number = ++lastExec
    // The server's pid keeps a successor's numbers apart.
    const tag = `${process.pid}-${number}`
    const name = `exec/${tag}`
    const record: ExecRecord = {
      kind: request.kind,
      containerId: request.containerId,
      pid: 0,
      terminal: request.terminal,
      pidFile: join(context.directory, `exec-${tag}.pid`),
      runtimePidFile: join(context.directory, `exec-${tag}.runtime`),
    }
    const processFile = join(context.directory, `exec-${tag}.json`)
    await context.keeper.hold(name, { record: encodeRecord(record) })
    try {
      const { bundlePath, command, terminal } = request
      const size = request.terminalSize?.()
      const { text, oomScoreAdj } = processFileOf(bundlePath, { command, terminal, size })
      writeFileSync(processFile, text, { mode: 0o600 })
      const launched = await launch(context, {
        what: `exec in container ${request.containerId}`,
        name,
        terminal: request.terminal,
        stdin: request.stdin,
        holdInput: false,
        pidFile: record.pidFile,
        runtimePidFile: record.runtimePidFile,
        env: request.env,
        oomScoreAdj,
        ...(request.terminalSize === undefined ? {} : { terminalSize: request.terminalSize }),
        args: (consoleSocket) =>
          context.runtime.execArgs({
            id: request.containerId,
            processFile,
            pidFile: record.pidFile,
            consoleSocket,
            systemdCgroup: request.systemdCgroup,
          }),
      })
      const started = { ...record, pid: launched.pid }
      const stdio = new ProcessStdio(launched)
      try {
        await context.keeper.record(name, encodeRecord(started))
      } catch (error) {
        stdio.close()
        await context.keeper.kill(launched.pid, SIGKILL)
        await Promise.allSettled(['out', 'err'].map((suffix) => context.keeper.drop(`${name}/${suffix}`)))
        throw error
      }
      return new ExecProcess(context, name, started, stdio)
    } catch (error) {
      await context.keeper.drop(name)
      throw error
    } finally {
      rmSync(record.pidFile, { force: true })
      rmSync(processFile, { force: true })
    }
  }

  /**
   * Takes over a streaming exec of a server that died: its client is gone. What it still prints is read and thrown away;
   * stdin and terminal have ended with that server.
   */
  static adopt(
    context: ContainerContext,
    name: string,
    record: ExecRecord,
    fds: { stdout?: number; stderr?: number },
  ): ExecProcess {
    const process = new ExecProcess(context, name, record, new ProcessStdio(fds))
    process.#stdio.connect(vanishedClient)
    process.#clientVanished(record.terminal)
    return process
  }

  /** Settles when the process is finished and cleaned up. */
  get finished(): Promise<ExitStatus> {
    return this.#finished
  }

  /** Joins the process with its client; once. */
  connect(remote: RemoteStdio): void {
    this.#stdio.connect(remote)
    const vanished = (): void => this.#clientVanished(this.#stdio.terminal)
    if (remote.gone.aborted) vanished()
    else remote.gone.addEventListener('abort', vanished, { once: true })
  }

  /** Kills the process and all its descendants. */
  async kill(): Promise<void> {
    if (this.#running) await killTree(this.#context.keeper, this.pid)
  }

  /**
   * streaming.md §8 rule 33: its stdio has ended its input and hung its terminal up; what is still there on a terminal
   * after the grace is killed.
   */
  #clientVanished(terminal: boolean): void {
    if (!this.#running || !terminal) return
    const timer = setTimeout(() => {
      this.kill().catch((error: unknown) => {
        this.#context.diagnostics.warn(`kill exec in container ${this.containerId}: ${String(error)}`)
      })
    }, VANISHED_KILL_MS)
    const stop = (): void => clearTimeout(timer)
    this.#finished.then(stop, stop)
  }

  async #finish(): Promise<ExitStatus> {
    try {
      const exit = await this.#exit
      // A child left behind may keep the pipe open: what lies in it is delivered, what comes later is not waited for.
      await withDeadline(this.#stdio.outputEnded, DRAIN_GRACE_MS, () => this.#stdio.finish())
      await this.#stdio.outputEnded
      await this.#context.keeper.claimed(exit.number)
      return exit.status
    } finally {
      this.#running = false
      this.#stdio.close()
      await Promise.allSettled(
        [this.#name, `${this.#name}/out`, `${this.#name}/err`].map((name) => this.#context.keeper.drop(name)),
      )
    }
  }
}
