// Runs a command in a container and collects what it prints, within a deadline.

import { MonitorError } from '../base/errors.ts'
import type { ExitStatus, RemoteStdio } from '../base/remote-stdio.ts'
import { OutputCapture } from '../stdio/output-capture.ts'
import type { Container } from './container.ts'
import type { ExecProcess } from './exec-process.ts'

export interface ExecSyncOptions {
  readonly command: readonly string[]
  readonly terminal: boolean
  /** From the call on; 0: none. The whole tree is killed then. */
  readonly timeoutMs: number
  readonly env: readonly (readonly [string, string])[]
}

export interface CollectedOutput {
  readonly status: ExitStatus
  readonly stdout: Buffer
  readonly stderr: Buffer
}

/** Rejects when the process cannot be started; whatever it printed by then is in the result otherwise. */
export async function execSync(
  container: Container,
  options: ExecSyncOptions,
  signal: AbortSignal,
): Promise<CollectedOutput> {
  const started = Date.now()
  const stdout = new OutputCapture()
  const stderr = new OutputCapture()
  const process = await container.exec({ ...options, kind: 'sync', stdin: false })
  process.connect(silentClient(stdout, options.terminal ? undefined : stderr))
  const leftMs = options.timeoutMs > 0 ? Math.max(0, options.timeoutMs - (Date.now() - started)) : undefined
  const status = await finishInTime(process, leftMs, signal)
  return { status, stdout: stdout.bytes, stderr: stderr.bytes }
}

function silentClient(stdout: OutputCapture, stderr: OutputCapture | undefined): RemoteStdio {
  return {
    stdout,
    stderr,
    connectStdin: undefined,
    onResize: () => undefined,
    gone: new AbortController().signal,
  }
}

async function finishInTime(
  process: ExecProcess,
  leftMs: number | undefined,
  signal: AbortSignal,
): Promise<ExitStatus> {
  let timedOut = false
  const end = (): void => {
    // A failure to kill shows as a process that does not finish.
    process.kill().catch(() => undefined)
  }
  const timeOut = (): void => {
    timedOut = true
    end()
  }
  const timer = leftMs === undefined ? undefined : setTimeout(timeOut, leftMs)
  // A caller that gave up, not one whose connection broke: losing that must not kill a probe (conmon.md §2.1).
  const canceled = (): void => {
    if (signal.reason instanceof MonitorError && signal.reason.code === 'canceled') end()
  }
  if (signal.aborted) canceled()
  else signal.addEventListener('abort', canceled, { once: true })
  try {
    const status = await process.finished
    return timedOut ? { ...status, timedOut } : status
  } finally {
    clearTimeout(timer)
    signal.removeEventListener('abort', canceled)
  }
}
