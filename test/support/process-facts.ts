// What /proc tells of processes: memory, work done, children, zombies, and what they inherited.

import { readdirSync, readFileSync, readlinkSync } from 'node:fs'

/** Resident memory in bytes. */
export function residentBytes(pid: number): number {
  const match = /^VmRSS:\s+(\d+) kB$/m.exec(readFileSync(`/proc/${pid}/status`, 'utf8'))
  return Number(match?.[1] ?? 0) * 1024
}

/** CPU time used so far, in milliseconds. */
export function cpuMs(pid: number): number {
  const stat = readFileSync(`/proc/${pid}/stat`, 'latin1')
  const fields = stat.slice(stat.lastIndexOf(')') + 2).split(' ')
  // utime and stime, in ticks of 10 ms.
  return (Number(fields[11]) + Number(fields[12])) * 10
}

/** The pids below a process, without the server's own helpers. */
export function childrenOf(pid: number): number[] {
  return readFileSync(`/proc/${pid}/task/${pid}/children`, 'utf8').split(' ').filter(Boolean).map(Number)
}

/** Children of a process that have ended and were not waited for. */
export function zombiesOf(pid: number): number[] {
  return childrenOf(pid).filter((child) => {
    try {
      return /\) [ZX] /.test(readFileSync(`/proc/${child}/stat`, 'latin1'))
    } catch {
      return false
    }
  })
}

/** Targets of a process's descriptors. */
export function fdTargets(pid: number): string[] {
  return readdirSync(`/proc/${pid}/fd`).flatMap((fd) => {
    try {
      return [readlinkSync(`/proc/${pid}/fd/${fd}`)]
    } catch {
      return []
    }
  })
}

export function oomScoreAdj(pid: number): number {
  return Number(readFileSync(`/proc/${pid}/oom_score_adj`, 'utf8'))
}

/** Established TCP connections of a process. */
export function tcpConnections(pid: number): number {
  const inodes = new Set(fdTargets(pid).flatMap((target) => /^socket:\[(\d+)\]$/.exec(target)?.[1] ?? []))
  return readFileSync(`/proc/${pid}/net/tcp`, 'utf8')
    .split('\n')
    .slice(1)
    .filter((line) => {
      const fields = line.trim().split(/\s+/)
      return fields[3] === '01' && inodes.has(fields[9] ?? '')
    }).length
}
