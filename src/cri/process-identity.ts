// One process and no other: a pid alone may name a stranger after its owner's death or a reboot.

import { readFileSync } from 'node:fs'
import { setTimeout as sleep } from 'node:timers/promises'
import { isErrno } from '../base/errors.ts'

export interface ProcessIdentity {
  readonly pid: number
  /** Field 22 of /proc/PID/stat. */
  readonly startTime: string
}

const pollMs = 25

/** The identity of the process that has this pid now; undefined when there is none, or only its zombie. */
export function identify(pid: number): ProcessIdentity | undefined {
  let stat: string
  try {
    stat = readFileSync(`/proc/${pid}/stat`, 'latin1')
  } catch (error) {
    if (isErrno(error, 'ENOENT', 'ESRCH')) return undefined
    throw error
  }
  // The second field is a name in parentheses that may itself have spaces and parentheses.
  const fields = stat.slice(stat.lastIndexOf(')') + 2).split(' ')
  const [state] = fields
  const startTime = fields[19]
  if (startTime === undefined || state === 'Z' || state === 'X') return undefined
  return { pid, startTime }
}

export function isAlive(process: ProcessIdentity): boolean {
  return process.pid > 0 && identify(process.pid)?.startTime === process.startTime
}

/** Ends a process: SIGTERM, and SIGKILL when it has not gone in time. Resolves when it is gone. */
export async function terminate(target: ProcessIdentity, patienceMs: number): Promise<void> {
  signal(target, 'SIGTERM')
  // It is no child of ours, so nobody tells us.
  const polls = Math.ceil(patienceMs / pollMs)
  for (let i = 0; i < polls && isAlive(target); i++) await sleep(pollMs)
  signal(target, 'SIGKILL')
  for (let i = 0; i < polls && isAlive(target); i++) await sleep(pollMs)
}

function signal(target: ProcessIdentity, name: NodeJS.Signals): void {
  if (!isAlive(target)) return
  try {
    process.kill(target.pid, name)
  } catch (error) {
    if (!isErrno(error, 'ESRCH')) throw error
  }
}
