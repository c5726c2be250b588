// The programs the demo runs, as a person would: dist/bin/holdfastd and dist/bin/holdfast, on a directory of its own.

import { spawn, type ChildProcess } from 'node:child_process'
import { once } from 'node:events'
import { closeSync, existsSync, openSync, readFileSync } from 'node:fs'
import { join, resolve } from 'node:path'
import { setTimeout as sleep } from 'node:timers/promises'
import { CriClient } from '../../src/cli/cri-client.ts'

const bin = resolve(import.meta.dirname, '../../bin')

/** What a finished command said. */
export interface CommandResult {
  readonly code: number
  readonly stdout: string
  readonly stderr: string
}

/** A holdfastd with its directory, and the command line on it. */
export class Installation {
  readonly directory: string
  readonly state: string
  readonly socket: string
  readonly env: NodeJS.ProcessEnv
  #daemon: ChildProcess | undefined

  constructor(directory: string) {
    this.directory = directory
    this.state = join(directory, 'state')
    this.socket = join(directory, 'holdfastd.sock')
    this.env = { ...process.env, HOLDFAST_STATE: this.state, HOLDFAST_ENDPOINT: this.socket }
  }

  /** `holdfast ARGS…` as words of a command line. */
  command(...args: string[]): string[] {
    return [process.execPath, join(bin, 'holdfast'), ...args]
  }

  /** Starts `holdfast ARGS…`; its output is the caller's. */
  start(stdin: 'ignore' | 'pipe', ...args: string[]): ChildProcess {
    const [program = '', ...rest] = this.command(...args)
    return spawn(program, rest, { env: this.env, stdio: [stdin, 'pipe', 'pipe'] })
  }

  /** Runs `holdfast ARGS…` to its end. */
  async run(...args: string[]): Promise<CommandResult> {
    return finish(this.start('ignore', ...args))
  }

  get daemonPid(): number {
    return this.#daemon?.pid ?? 0
  }

  /** Starts holdfastd and waits until it answers; resolves to the milliseconds that took. */
  async startDaemon(): Promise<number> {
    const from = performance.now()
    const log = openSync(join(this.directory, 'holdfastd.log'), 'a')
    const args = [join(bin, 'holdfastd'), '--state', this.state, '--socket', this.socket]
    // Detached: an interrupt of the demo is not one of the daemon, which --keep leaves running.
    this.#daemon = spawn(process.execPath, args, {
      env: this.env,
      stdio: ['ignore', log, log],
      detached: true,
    })
    closeSync(log)
    for (let tries = 0; tries < 400; tries++) {
      if (this.#daemon.exitCode !== null) break
      if (await this.daemonAnswers()) return performance.now() - from
      await sleep(25)
    }
    throw new Error(`holdfastd does not start; its log says:\n${this.daemonLog()}`)
  }

  daemonLog(): string {
    const path = join(this.directory, 'holdfastd.log')
    return existsSync(path) ? readFileSync(path, 'utf8') : ''
  }

  async daemonAnswers(): Promise<boolean> {
    try {
      await this.cri((cri) => cri.listPods())
      return true
    } catch {
      return false
    }
  }

  /** Ends the daemon and waits until it is gone. */
  async killDaemon(signal: NodeJS.Signals): Promise<void> {
    const daemon = this.#daemon
    if (daemon === undefined || daemon.exitCode !== null || daemon.signalCode !== null) return
    const exit = once(daemon, 'exit')
    daemon.kill(signal)
    await exit
  }

  /** Lets the daemon live on after the demo. */
  leaveDaemon(): void {
    this.#daemon?.unref()
  }

  /** Asks the daemon over CRI. */
  async cri<T>(ask: (cri: CriClient) => Promise<T>): Promise<T> {
    const cri = await CriClient.connect(this.socket)
    try {
      return await ask(cri)
    } finally {
      cri.close()
    }
  }
}

/** Collects a started command's output until it ends. */
export async function finish(child: ChildProcess): Promise<CommandResult> {
  let stdout = ''
  let stderr = ''
  child.stdout?.setEncoding('utf8').on('data', (text: string) => (stdout += text))
  child.stderr?.setEncoding('utf8').on('data', (text: string) => (stderr += text))
  await once(child, 'close')
  return { code: child.exitCode ?? -1, stdout, stderr }
}
