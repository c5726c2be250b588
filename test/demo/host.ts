// What the demo looks at on the host: processes, memory, mounts, network namespaces, cgroups. Reads /proc only.

import { readdirSync, readFileSync, readlinkSync } from 'node:fs'

/** What a run of the demo may leave behind, as it is now. */
export interface HostState {
  readonly mounts: readonly string[]
  readonly networkNamespaces: readonly string[]
  readonly cgroups: readonly string[]
}

/** Takes stock of the host. */
export function hostState(): HostState {
  const namespaces = new Set<string>()
  for (const pid of pids()) {
    const name = orNothing(() => readlinkSync(`/proc/${pid}/ns/net`))
    if (name !== undefined) namespaces.add(name)
  }
  const mounts = readFileSync('/proc/self/mountinfo', 'utf8').split('\n')
  for (const line of mounts) {
    // A pinned namespace is an nsfs mount whose root is its name.
    const root = line.split(' ')[3] ?? ''
    if (root.startsWith('net:[')) namespaces.add(root)
  }
  return {
    mounts: mounts.map((line) => line.split(' ')[4] ?? '').filter((path) => path !== ''),
    networkNamespaces: [...namespaces],
    cgroups: cgroupDirectories('/sys/fs/cgroup'),
  }
}

/** What is there now and was not there before. */
export function whatIsNew(before: HostState, now: HostState): string[] {
  const added = (what: string, old: readonly string[], current: readonly string[]): string[] =>
    current.filter((one) => !old.includes(one)).map((one) => `${what} ${one}`)
  return [
    ...added('mount', before.mounts, now.mounts),
    ...added('network namespace', before.networkNamespaces, now.networkNamespaces),
    ...added('cgroup', before.cgroups, now.cgroups),
  ]
}

/** Processes whose command line or environment names `path`: everything of the demo names its directory. */
export function processesOf(path: string): { pid: number; command: string }[] {
  return pids().flatMap((pid) => {
    if (pid === process.pid) return []
    const command = orNothing(() => readFileSync(`/proc/${pid}/cmdline`, 'utf8')) ?? ''
    const environment = orNothing(() => readFileSync(`/proc/${pid}/environ`, 'utf8')) ?? ''
    if (!command.includes(path) && !environment.includes(path)) return []
    return [{ pid, command: command.replaceAll('\0', ' ').trim() }]
  })
}

/** True while the process exists and is no zombie. */
export function isAlive(pid: number): boolean {
  const stat = orNothing(() => readFileSync(`/proc/${pid}/stat`, 'utf8'))
  return stat !== undefined && !/^\d+ \(.*\) [ZX]/s.test(stat)
}

/** A process's children whose command line contains `part`. */
export function childrenOf(pid: number, part: string): number[] {
  const children = orNothing(() => readFileSync(`/proc/${pid}/task/${pid}/children`, 'utf8')) ?? ''
  return children
    .split(' ')
    .filter(Boolean)
    .map(Number)
    .filter((child) => orNothing(() => readFileSync(`/proc/${child}/cmdline`, 'utf8'))?.includes(part))
}

/** Proportional set size in kB: what the process costs, shared pages divided among their users. */
export function pssOf(pid: number): number {
  return Number(/^Pss:\s+(\d+) kB$/m.exec(readFileSync(`/proc/${pid}/smaps_rollup`, 'utf8'))?.[1] ?? 0)
}

function pids(): number[] {
  return readdirSync('/proc')
    .filter((name) => /^\d+$/.test(name))
    .map(Number)
}

function cgroupDirectories(root: string): string[] {
  const entries = orNothing(() => readdirSync(root, { withFileTypes: true })) ?? []
  return entries
    .filter((entry) => entry.isDirectory())
    .flatMap((entry) => [`${root}/${entry.name}`, ...cgroupDirectories(`${root}/${entry.name}`)])
}

/** Processes and cgroups may go while they are looked at. */
function orNothing<T>(read: () => T): T | undefined {
  try {
    return read()
  } catch {
    return undefined
  }
}
