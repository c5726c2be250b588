// Was a container killed for want of memory? Its own cgroup's counter tells, read when it has exited: the cgroup is
// there until the runtime deletes the container. A sibling's kill never counts (conmon.md §4.3).

import { existsSync, readFileSync } from 'node:fs'
import { join } from 'node:path'

/** The directory with the process's OOM counter, v1 or v2 or hybrid; empty: none. Read /proc/PID/cgroup, never guess. */
export function findMemoryCgroup(pid: number): string {
  let lines: string[]
  try {
    lines = readFileSync(`/proc/${pid}/cgroup`, 'utf8').split('\n')
  } catch {
    return ''
  }
  const mounts = readFileSync('/proc/self/mounts', 'utf8').split('\n')
  for (const [controller, file] of [
    ['memory', 'memory.oom_control'],
    ['', 'memory.events'],
  ] as const) {
    const path = lines.flatMap((line) => matchLine(line, controller))[0]
    const root = mounts.flatMap((line) => matchMount(line, controller))[0]
    if (path !== undefined && root !== undefined && existsSync(join(root, path, file)))
      return join(root, path)
  }
  return ''
}

/** How often the kernel killed for want of memory in this cgroup; 0 when it cannot be read. */
export function countOomKills(memoryCgroup: string): number {
  if (memoryCgroup === '') return 0
  for (const file of ['memory.events', 'memory.oom_control']) {
    try {
      const match = /^oom_kill (\d+)$/m.exec(readFileSync(join(memoryCgroup, file), 'utf8'))
      if (match?.[1] !== undefined) return Number(match[1])
    } catch {
      continue
    }
  }
  return 0
}

/** `ID:CONTROLLERS:PATH` of cgroups(7). */
function matchLine(line: string, controller: string): string[] {
  const [, controllers, ...path] = line.split(':')
  return controllers !== undefined && controllers.split(',').includes(controller) ? [path.join(':')] : []
}

function matchMount(line: string, controller: string): string[] {
  const [, directory, type, options] = line.split(' ')
  if (directory === undefined) return []
  if (controller === '') return type === 'cgroup2' ? [directory] : []
  return type === 'cgroup' && options?.split(',').includes(controller) ? [directory] : []
}
