// Runs the programs of the interop suite and of the benchmarks: ours from dist/, referees from .cache/interop/bin.

import { spawn } from 'node:child_process'
import type { ChildProcessByStdio } from 'node:child_process'
import { existsSync } from 'node:fs'
import { dirname, join } from 'node:path'
import type { Readable, Writable } from 'node:stream'
import type { TestContext } from 'node:test'

/** The repository: this file runs as dist/test/interop/programs.js. */
export const repository = dirname(dirname(dirname(import.meta.dirname)))

/** Where test/interop/build-go.sh puts what it builds. */
export const refereeDirectory = join(repository, '.cache', 'interop', 'bin')

/** A program built from test/interop/go. */
export function referee(name: 'crictl' | 'kubectl' | 'driver' | 'yardstick' | 'monitorclient'): string {
  return existing(join(refereeDirectory, name), 'sh test/interop/build-go.sh')
}

/** One of our own programs. */
export function product(name: 'holdfast-monitor' | 'holdfastd' | 'holdfast'): string {
  return existing(join(repository, 'dist', 'bin', name), 'npm run build')
}

/** The first of these files that is there: Debian has runc and others where $PATH of a user may not look. */
export function hostProgram(name: string): string {
  const path = ['/usr/sbin', '/usr/bin', '/sbin', '/bin', '/usr/local/sbin', '/usr/local/bin']
  const found = path.map((folder) => join(folder, name)).find((file) => existsSync(file))
  if (found === undefined) throw new Error(`${name} is not installed`)
  return found
}

export interface ProgramOptions {
  readonly env?: Readonly<Record<string, string>>
  /** Written to stdin, which then ends. Absent: no stdin. */
  readonly input?: string | Buffer
  readonly timeoutMs?: number
}

export interface Outcome {
  /** 128 + N after signal N. */
  readonly code: number
  readonly stdout: string
  readonly stderr: string
}

/** Runs a program to its end. Rejects when it takes too long. */
export async function run(
  command: string,
  args: readonly string[],
  options: ProgramOptions = {},
): Promise<Outcome> {
  const program = new Program(command, args, options.env)
  program.end(options.input ?? '')
  const timeoutMs = options.timeoutMs ?? 30_000
  let late = false
  const timer = setTimeout(() => {
    late = true
    program.kill('SIGKILL')
  }, timeoutMs)
  const code = await program.exited
  clearTimeout(timer)
  if (late) {
    throw new Error(
      `${[command, ...args].join(' ')}: not finished after ${timeoutMs} ms; it said: ${program.stdout}${program.stderr}`,
    )
  }
  return { code, stdout: program.stdout, stderr: program.stderr }
}

/** Runs a program that must exit with 0 and returns what it printed. */
export async function output(
  command: string,
  args: readonly string[],
  options: ProgramOptions = {},
): Promise<string> {
  const { code, stdout, stderr } = await run(command, args, options)
  if (code !== 0) throw new Error(`${[command, ...args].join(' ')}: exit ${code}: ${stdout}${stderr}`)
  return stdout
}

/** A program that runs beside the test. */
export class Program {
  readonly #child: ChildProcessByStdio<Writable, Readable, Readable>
  readonly #name: string
  readonly #watchers = new Set<() => void>()
  #stdout: Buffer[] = []
  #stderr = ''
  #ended = false
  /** The exit code, or 128 + signal, once its output has been read to the end. */
  readonly exited: Promise<number>

  constructor(command: string, args: readonly string[], env: Readonly<Record<string, string>> = {}) {
    this.#name = [command, ...args].join(' ')
    this.#child = spawn(command, args, {
      stdio: ['pipe', 'pipe', 'pipe'],
      env: { ...process.env, ...env },
    })
    this.#child.stdin.on('error', () => undefined) // it may exit before it has read everything
    this.#child.stdout.on('data', (chunk: Buffer) => this.#note(() => this.#stdout.push(chunk)))
    this.#child.stderr.on('data', (chunk: Buffer) => this.#note(() => (this.#stderr += chunk.toString())))
    this.exited = new Promise((resolve) => {
      this.#child.once('error', (error) => {
        this.#note(() => (this.#stderr += error.message))
        this.#end()
        resolve(127)
      })
      // A monitor that it started may hold its output open for ever.
      this.#child.once('exit', () => {
        setTimeout(() => this.#child.stdout.destroy(), drainMs).unref()
        setTimeout(() => this.#child.stderr.destroy(), drainMs).unref()
      })
      this.#child.once('close', (code, signal) => {
        this.#end()
        resolve(code ?? 128 + signalNumber(signal))
      })
    })
  }

  /** One that is killed at the end of the test, should it still run. */
  static during(
    test: TestContext,
    command: string,
    args: readonly string[],
    env: Readonly<Record<string, string>> = {},
  ): Program {
    const program = new Program(command, args, env)
    test.after(async () => {
      program.kill('SIGKILL')
      await program.exited
    })
    return program
  }

  get pid(): number {
    return this.#child.pid ?? 0
  }

  get bytes(): Buffer {
    return Buffer.concat(this.#stdout)
  }

  get stdout(): string {
    return this.bytes.toString()
  }

  get stderr(): string {
    return this.#stderr
  }

  write(text: string | Buffer): void {
    this.#child.stdin.write(text)
  }

  /** The end of its stdin, after `text`. */
  end(text: string | Buffer = ''): void {
    this.#child.stdin.end(text)
  }

  kill(signal: NodeJS.Signals): void {
    this.#child.kill(signal)
  }

  /** Waits until stdout, or stderr, matches. */
  async until(
    pattern: RegExp,
    from: 'stdout' | 'stderr' = 'stdout',
    timeoutMs = 15_000,
  ): Promise<RegExpExecArray> {
    return await new Promise((resolve, reject) => {
      const settle = (done: () => void): void => {
        clearTimeout(timer)
        this.#watchers.delete(look)
        done()
      }
      const fail = (why: string): void => {
        const said = `stdout ${JSON.stringify(this.stdout.slice(-2000))}, stderr ${JSON.stringify(this.stderr.slice(-2000))}`
        settle(() => reject(new Error(`${this.#name}: ${why} ${String(pattern)}: ${said}`)))
      }
      const look = (): void => {
        const match = pattern.exec(this[from])
        if (match !== null) settle(() => resolve(match))
        else if (this.#ended) fail('ended without')
      }
      const timer = setTimeout(() => fail(`not within ${timeoutMs} ms:`), timeoutMs)
      this.#watchers.add(look)
      look()
    })
  }

  /** Ends a program that ends with its stdin, by force if it does not. */
  async stop(): Promise<void> {
    this.end()
    const timer = setTimeout(() => this.kill('SIGKILL'), 5_000)
    await this.exited
    clearTimeout(timer)
  }

  #note(change: () => void): void {
    change()
    for (const look of this.#watchers) look()
  }

  #end(): void {
    this.#ended = true
    for (const look of this.#watchers) look()
  }
}

function existing(path: string, maker: string): string {
  if (!existsSync(path)) throw new Error(`${path} is missing: ${maker}`)
  return path
}

const drainMs = 1_000

const signalNumbers: Readonly<Record<string, number>> = {
  SIGHUP: 1,
  SIGINT: 2,
  SIGKILL: 9,
  SIGPIPE: 13,
  SIGTERM: 15,
}

function signalNumber(signal: NodeJS.Signals | null): number {
  return signalNumbers[signal ?? ''] ?? 0
}
