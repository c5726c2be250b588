// Other processes, as /proc shows them.

import { readFileSync, readdirSync } from 'node:fs'
import { setTimeout as sleep } from 'node:timers/promises'

/** Direct children of a process. */
export function childrenOf(pid: number): number[] {
  return readdirSync(`/proc/${pid}/task`)
    .flatMap((thread) => read(`/proc/${pid}/task/${thread}/children`).split(' '))
    .filter((word) => word !== '')
    .map(Number)
}

/** The server of a monitor: the keeper's child that runs the bundle. */
export function serverOf(keeperPid: number): number | undefined {
  return childrenOf(keeperPid).find((pid) =>
    read(`/proc/${pid}/cmdline`)
      .split('\0')
      .some((arg) => arg.endsWith('/server.cjs')),
  )
}

/** User and system time in seconds, in steps of 10 ms. */
export function cpuOf(pid: number): number {
  const stat = read(`/proc/${pid}/stat`)
  const fields = stat.slice(stat.lastIndexOf(')') + 2).split(' ')
  return (Number(fields[11]) + Number(fields[12])) / 100
}

/** Proportional set size in KiB: shared pages are divided among those who map them. */
export function pssOf(pid: number): number {
  return Number(/^Pss:\s+(\d+)/m.exec(read(`/proc/${pid}/smaps_rollup`))?.[1] ?? 0)
}

export function isAlive(pid: number): boolean {
  const stat = read(`/proc/${pid}/stat`)
  return stat !== '' && stat.slice(stat.lastIndexOf(')') + 2)[0] !== 'Z'
}

/** Ends the monitor whose pid is in this lock file, if one still runs: for what a failed test left behind. */
export async function endMonitor(lockFile: string): Promise<void> {
  const pid = Number(read(lockFile))
  if (!(pid > 1) || !read(`/proc/${pid}/cmdline`).includes('holdfast-monitor')) return
  process.kill(pid, 'SIGTERM')
  await waitFor(`the end of monitor ${pid}`, () => !isAlive(pid), 15_000)
}

/** Polls until `condition` holds. */
export async function waitFor(
  what: string,
  condition: () => boolean | Promise<boolean>,
  timeoutMs = 10_000,
): Promise<void> {
  const deadline = Date.now() + timeoutMs
  while (!(await condition())) {
    if (Date.now() > deadline) throw new Error(`${what}: not within ${timeoutMs} ms`)
    await sleep(20)
  }
}

function read(path: string): string {
  try {
    return readFileSync(path, 'utf8')
  } catch {
    return '' // the process is gone
  }
}
