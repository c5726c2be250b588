// Starting a pod's monitor, and finding one that runs. The launcher exits when the monitor accepts calls, so whoever
// waits for it needs no retries.

import { spawn } from 'node:child_process'
import type { ChildProcess } from 'node:child_process'
import { readFile } from 'node:fs/promises'
import { join } from 'node:path'
import { MonitorError, isErrno, messageOf } from '../base/errors.ts'
import { MONITOR_START_TIMEOUT_MS } from '../base/limits.ts'
import { dialUnix } from './dial-unix.ts'

export interface StartMonitorOptions {
  /** The holdfast-monitor program. */
  readonly monitorPath: string
  /** runc or crun. */
  readonly runtimePath: string
  /** Of this monitor alone: its sockets and pidfile. */
  readonly runtimeDir: string
  /** The OCI runtime's own state. */
  readonly runtimeRoot?: string | undefined
  readonly logLevel?: string | undefined
  readonly logDriver?: string | undefined
  /** Default: this process's. */
  readonly env?: NodeJS.ProcessEnv | undefined
  readonly timeoutMs?: number
}

export interface RunningMonitor {
  /** The keeper's. */
  readonly pid: number
  readonly socketPath: string
}

/** What a launcher may say before the rest is cut. */
const maxMessageBytes = 16 * 1024
/** After a failed launcher's exit, for the rest of what it said. */
const lastWordsMs = 1_000

/** Where the monitor of this directory listens. */
export function monitorSocket(runtimeDir: string): string {
  return join(runtimeDir, 'conmon.sock')
}

/** Starts a monitor and waits until it accepts calls. Rejects with what the launcher said. */
export async function startMonitor(options: StartMonitorOptions): Promise<RunningMonitor> {
  const { monitorPath, runtimeDir, env = process.env } = options
  const child = spawn(monitorPath, launchArgs(options), { env, stdio: ['ignore', 'ignore', 'pipe'] })
  await launched(child, monitorPath, options.timeoutMs ?? MONITOR_START_TIMEOUT_MS)
  const pid = await readPid(join(runtimeDir, 'pidfile'))
  if (pid === undefined) throw new MonitorError('internal', `start monitor: no pid in ${runtimeDir}/pidfile`)
  return { pid, socketPath: monitorSocket(runtimeDir) }
}

/** The monitor that runs in this directory, if there is one. */
export async function findMonitor(runtimeDir: string): Promise<RunningMonitor | undefined> {
  const socketPath = monitorSocket(runtimeDir)
  try {
    const socket = await dialUnix(socketPath)
    socket.destroy()
  } catch (error) {
    if (isErrno(error, 'ENOENT', 'ENOTDIR', 'ECONNREFUSED')) return undefined
    throw new MonitorError('unavailable', `find monitor at ${socketPath}: ${messageOf(error)}`, {
      cause: error,
    })
  }
  // A monitor that accepts wrote the lock file; its pidfile may have been removed by whoever started it.
  const pid =
    (await readPid(join(runtimeDir, 'monitor.lock'))) ?? (await readPid(join(runtimeDir, 'pidfile')))
  return pid === undefined ? undefined : { pid, socketPath }
}

function launchArgs(options: StartMonitorOptions): string[] {
  const flags: [string, string | undefined][] = [
    ['--runtime', options.runtimePath],
    ['--runtime-dir', options.runtimeDir],
    ['--runtime-root', options.runtimeRoot],
    ['--log-level', options.logLevel],
    ['--log-driver', options.logDriver],
  ]
  return flags.flatMap(([name, value]) => (value === undefined ? [] : [name, value]))
}

/** Resolves when the launcher exits with 0. */
async function launched(child: ChildProcess, path: string, timeoutMs: number): Promise<void> {
  let said = ''
  child.stderr?.setEncoding('utf8').on('data', (text: string) => {
    if (said.length < maxMessageBytes) said += text
  })
  const result = await new Promise<string | undefined>((resolve) => {
    const timer = setTimeout(() => {
      child.kill('SIGKILL')
      resolve(`not ready after ${timeoutMs} ms`)
    }, timeoutMs)
    child.once('error', (error) => {
      clearTimeout(timer)
      resolve(error.message)
    })
    child.once('exit', (code, signal) => {
      clearTimeout(timer)
      if (code === 0) resolve(undefined)
      else afterLastWords(child, () => resolve(`exit ${code ?? signal}`))
    })
  })
  // The monitor may have inherited the other end.
  child.stderr?.destroy()
  if (result === undefined) return
  const words = said.trim()
  throw new MonitorError(
    'internal',
    `start monitor ${path}: ${result}${words === '' ? '' : `: ${words.slice(0, maxMessageBytes)}`}`,
  )
}

function afterLastWords(child: ChildProcess, done: () => void): void {
  const timer = setTimeout(done, lastWordsMs)
  child.once('close', () => {
    clearTimeout(timer)
    done()
  })
}

async function readPid(path: string): Promise<number | undefined> {
  try {
    const pid = Number((await readFile(path, 'utf8')).trim())
    return Number.isInteger(pid) && pid > 0 ? pid : undefined
  } catch (error) {
    if (isErrno(error, 'ENOENT')) return undefined
    throw MonitorError.within(`read ${path}`, error)
  }
}
