// Runs a short-lived program of the host and collects what it says. No shell, no stdin.

import { spawn } from 'node:child_process'
import { constants } from 'node:os'
import { MonitorError } from '../base/errors.ts'
import { OCI_CONTROL_TIMEOUT_MS } from '../base/limits.ts'

export interface CommandResult {
  /** 128 + N after a signal. */
  readonly code: number
  readonly stdout: string
  readonly stderr: string
}

const maxOutputBytes = 64 * 1024

/** Resolves when the program has ended, whatever its code. Rejects when it cannot be started or takes too long. */
export async function runCommand(path: string, args: readonly string[]): Promise<CommandResult> {
  return await new Promise((resolve, reject) => {
    const child = spawn(path, args, { stdio: ['ignore', 'pipe', 'pipe'], cwd: '/' })
    const output = { stdout: '', stderr: '' }
    for (const name of ['stdout', 'stderr'] as const) {
      child[name].setEncoding('utf8').on('data', (text: string) => {
        if (output[name].length < maxOutputBytes) output[name] += text
      })
    }
    const timer = setTimeout(() => {
      child.kill('SIGKILL')
      reject(
        new MonitorError('deadline-exceeded', `run ${path} ${args[0] ?? ''}: not finished in time, killed`),
      )
    }, OCI_CONTROL_TIMEOUT_MS)
    child.once('error', (error) => {
      clearTimeout(timer)
      reject(MonitorError.within(`run ${path}`, error))
    })
    child.once('close', (code, signal) => {
      clearTimeout(timer)
      resolve({ code: code ?? 128 + signalNumber(signal), ...output })
    })
  })
}

function signalNumber(signal: NodeJS.Signals | null): number {
  return signal === null ? 0 : (constants.signals[signal] ?? 0)
}
