// runc and crun: their command lines, and running one. Knows no container and no keeper; the caller owns descriptors.

import { spawn } from 'node:child_process'
import { basename } from 'node:path'
import { MonitorError } from '../base/errors.ts'
import { OCI_RUNTIME_TIMEOUT_MS } from '../base/limits.ts'

export interface OciRuntimeOptions {
  /** The runtime's binary. */
  readonly path: string
  /** `--root`, its state directory; undefined: the runtime's default. */
  readonly root: string | undefined
  /** The monitor's binary, whose `run-oci` gives the runtime a clean environment. */
  readonly launcher: string
}

export interface OciCreateArgs {
  readonly id: string
  readonly bundlePath: string
  readonly pidFile: string
  readonly consoleSocket: string | undefined
  readonly systemdCgroup: boolean
  readonly globalArgs: readonly string[]
  readonly commandArgs: readonly string[]
}

export interface OciExecArgs {
  readonly id: string
  /** What to run: see process-file.ts. */
  readonly processFile: string
  readonly pidFile: string
  readonly consoleSocket: string | undefined
  readonly systemdCgroup: boolean
}

export interface OciRunOptions {
  /** Where `run-oci` writes the runtime's pid before it becomes the runtime. */
  readonly runtimePidFile: string
  /** Descriptors for 0, 1 and 2; undefined: /dev/null. They stay the caller's. */
  readonly stdio: readonly [number | undefined, number | undefined, number | undefined]
  readonly env: readonly (readonly [string, string])[]
  /** Undefined: that of the monitor's launch. */
  readonly oomScoreAdj: number | undefined
}

/** How a run of the OCI runtime ended. */
export interface OciRunResult {
  readonly code: number | null
  readonly signal: string | null
}

export class OciRuntime {
  readonly name: string
  readonly #options: OciRuntimeOptions

  constructor(options: OciRuntimeOptions) {
    this.#options = options
    this.name = basename(options.path)
  }

  createArgs(args: OciCreateArgs): string[] {
    return [
      ...this.#globalArgs(args.systemdCgroup),
      ...args.globalArgs,
      'create',
      '--bundle',
      args.bundlePath,
      '--pid-file',
      args.pidFile,
      ...args.commandArgs,
      ...(args.consoleSocket === undefined ? [] : [`--console-socket=${args.consoleSocket}`]),
      args.id,
    ]
  }

  execArgs(args: OciExecArgs): string[] {
    return [
      ...this.#globalArgs(args.systemdCgroup),
      'exec',
      '-d',
      `--process=${args.processFile}`,
      ...(args.consoleSocket === undefined ? [] : [`--console-socket=${args.consoleSocket}`]),
      `--pid-file=${args.pidFile}`,
      args.id,
    ]
  }

  /**
   * Starts the runtime; resolves when it has exited, whatever its code. `spawned` is called when its descriptors have
   * been inherited, so that the caller can close its copies: end of file never comes otherwise.
   */
  run(args: readonly string[], options: OciRunOptions, spawned: () => void): Promise<OciRunResult> {
    const child = spawn(
      this.#options.launcher,
      [
        'run-oci',
        '--pid-file',
        options.runtimePidFile,
        '--parent',
        String(process.pid),
        '--',
        this.#options.path,
        ...args,
      ],
      {
        stdio: options.stdio.map((fd) => fd ?? 'ignore'),
        // run-oci cleans this server's own variables away, and takes the prefix off the request's.
        env: {
          ...process.env,
          ...Object.fromEntries(options.env.map(([name, value]) => [`HOLDFAST_ENV_${name}`, value])),
          ...(options.oomScoreAdj === undefined ? {} : { HOLDFAST_LAUNCH_OOM: String(options.oomScoreAdj) }),
        },
      },
    )
    spawned()
    return new Promise((resolve, reject) => {
      const timer = setTimeout(() => child.kill('SIGKILL'), OCI_RUNTIME_TIMEOUT_MS)
      child.once('error', (error) => {
        clearTimeout(timer)
        reject(new MonitorError('internal', `run ${this.#options.path}: ${error.message}`, { cause: error }))
      })
      child.once('exit', (code, signal) => {
        clearTimeout(timer)
        resolve({ code, signal })
      })
    })
  }

  #globalArgs(systemdCgroup: boolean): string[] {
    return [
      ...(this.#options.root === undefined ? [] : [`--root=${this.#options.root}`]),
      ...(systemdCgroup ? ['--systemd-cgroup'] : []),
    ]
  }
}
