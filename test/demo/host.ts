// What the demo looks at on the host: processes, memory, mounts, network namespaces, cgroups. Reads only; other
// people's containers on the same machine do not matter.

import { readdirSync, readFileSync, readlinkSync, statSync } from 'node:fs'
import { readPods } from '../../src/client/pod-lookup.ts'
import type { StatePaths } from '../../src/client/pod-state.ts'

/** What belongs to a holdfastd under test: everything is found by one of these. */
export interface Belongings {
  /** Every program of ours names it in its command line or environment, every mount lies in it. */
  readonly directory: string
  /** Ids of pods: their cgroups are named so. */
  readonly pods: readonly string[]
  /** `net:[4026532000]`: processes of containers are found by it. */
  readonly networkNamespaces: readonly string[]
}

/** Adds the pods that run now. */
export async function takeStock(before: Belongings, paths: StatePaths): Promise<Belongings> {
  const pods = new Set(before.pods)
  const networkNamespaces = new Set(before.networkNamespaces)
  for (const { pod } of await readPods(paths)) {
    pods.add(pod.id)
    const inode = orNothing(() => statSync(pod.namespaces.net ?? '').ino)
    if (inode !== undefined) networkNamespaces.add(`net:[${inode}]`)
  }
  return { directory: before.directory, pods: [...pods], networkNamespaces: [...networkNamespaces] }
}

/** What is there of it now: processes, mounts, network namespaces, cgroups. */
export function tracesOf({ directory, pods, networkNamespaces }: Belongings): string[] {
  const processes = pids().flatMap((pid) => {
    if (pid === process.pid) return []
    const command = orNothing(() => readFileSync(`/proc/${pid}/cmdline`, 'utf8')) ?? ''
    const environment = orNothing(() => readFileSync(`/proc/${pid}/environ`, 'utf8')) ?? ''
    const namespace = orNothing(() => readlinkSync(`/proc/${pid}/ns/net`)) ?? ''
    const ours =
      command.includes(directory) || environment.includes(directory) || networkNamespaces.includes(namespace)
    return ours && isAlive(pid) ? [`process ${pid} (${command.replaceAll('\0', ' ').trim()})`] : []
  })
  const mounts = readFileSync('/proc/self/mountinfo', 'utf8')
    .split('\n')
    .flatMap((line) => {
      // A pinned namespace is a mount whose root is its name.
      const [root = '', path = ''] = line.split(' ').slice(3)
      if (networkNamespaces.includes(root)) return [`network namespace ${root} at ${path}`]
      return path.startsWith(directory) ? [`mount ${path}`] : []
    })
  const cgroups = cgroupDirectories('/sys/fs/cgroup').filter((path) => pods.some((id) => path.includes(id)))
  return [...processes, ...mounts, ...cgroups.map((path) => `cgroup ${path}`)]
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
