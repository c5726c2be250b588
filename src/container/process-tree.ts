// Killing a process with all its descendants. Descendants are found by their parents in /proc, each is killed through a
// pidfd after a check of its start time, so a reused pid is never hit (native.md §4.3).

import { closeSync, readdirSync, readFileSync } from 'node:fs'
import { setTimeout as sleep } from 'node:timers/promises'
import { isErrno } from '../base/errors.ts'
import type { KeeperClient } from '../keeper/keeper-client.ts'
import { pidfdOpen, pidfdSignal } from '../native/addon.ts'

const SIGKILL = 9
const rounds = 50
const pauseMs = 20

interface ProcessInfo {
  readonly pid: number
  readonly parent: number
  /** Clock ticks since boot: with the pid it names a process for ever. */
  readonly startTime: string
  readonly zombie: boolean
}

/** Kills `pid` (a child of the keeper) and everything below it, until nothing of it is left. */
export async function killTree(keeper: KeeperClient, pid: number): Promise<void> {
  const known = new Map<number, ProcessInfo>()
  for (let round = 0; round < rounds; round++) {
    // Collected before the first kill of a round: an orphan's parent is gone.
    collect(pid, known)
    await keeper.kill(pid, SIGKILL)
    const left = [...known.values()].filter((process) => kill(process))
    if (left.length === 0 && !isAlive(pid)) return
    await sleep(pauseMs)
  }
}

/** True for a process that is there and no zombie. */
export function isAlive(pid: number): boolean {
  const process = readProcess(pid)
  return process !== undefined && !process.zombie
}

function collect(root: number, known: Map<number, ProcessInfo>): void {
  const all = readdirSync('/proc').flatMap((name) =>
    /^\d+$/.test(name) ? (readProcess(Number(name)) ?? []) : [],
  )
  const tree = new Set([root, ...known.keys()])
  for (let grown = true; grown;) {
    grown = false
    for (const process of all) {
      if (!tree.has(process.parent) || tree.has(process.pid) || process.zombie) continue
      tree.add(process.pid)
      known.set(process.pid, process)
      grown = true
    }
  }
}

/** True while the process is there. */
function kill(process: ProcessInfo): boolean {
  let pidfd: number
  try {
    pidfd = pidfdOpen(process.pid)
  } catch (error) {
    if (isErrno(error, 'ESRCH', 'EINVAL')) return false
    throw error
  }
  try {
    const now = readProcess(process.pid)
    if (now === undefined || now.startTime !== process.startTime || now.zombie) return false
    pidfdSignal(pidfd, SIGKILL)
    return true
  } catch (error) {
    if (isErrno(error, 'ESRCH')) return false
    throw error
  } finally {
    closeSync(pidfd)
  }
}

/** proc(5) stat: the name stands in parentheses and may contain anything, so fields count from the last one. */
function readProcess(pid: number): ProcessInfo | undefined {
  let stat: string
  try {
    stat = readFileSync(`/proc/${pid}/stat`, 'latin1')
  } catch {
    return undefined
  }
  const fields = stat.slice(stat.lastIndexOf(')') + 2).split(' ')
  return {
    pid,
    parent: Number(fields[1]),
    startTime: fields[19] ?? '',
    zombie: fields[0] === 'Z' || fields[0] === 'X',
  }
}
