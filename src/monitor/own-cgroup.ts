// The runtime moves the keeper by its pid when the server already runs: the server follows, before it starts anything.

import { readFileSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import type { Diagnostics } from '../base/diagnostics.ts'
import { messageOf } from '../base/errors.ts'

/** Moves this process into every cgroup of the keeper's in which it is not yet. A failure is one diagnostic. */
export class OwnCgroup {
  readonly #keeperPid: number
  readonly #diagnostics: Diagnostics
  #failed = ''

  constructor(keeperPid: number, diagnostics: Diagnostics) {
    this.#keeperPid = keeperPid
    this.#diagnostics = diagnostics
  }

  follow(): void {
    let theirs: string
    let ours: string
    try {
      theirs = readFileSync(`/proc/${this.#keeperPid}/cgroup`, 'utf8')
      ours = readFileSync('/proc/self/cgroup', 'utf8')
    } catch {
      return
    }
    if (theirs === ours || theirs === this.#failed) return
    const current = new Set(ours.split('\n'))
    for (const line of theirs.split('\n')) {
      if (line === '' || current.has(line)) continue
      try {
        enter(line)
      } catch (error) {
        this.#failed = theirs
        this.#diagnostics.warn(`follow the keeper into cgroup ${line}: ${messageOf(error)}`)
      }
    }
  }
}

/** `ID:CONTROLLERS:PATH` of cgroups(7). */
function enter(line: string): void {
  const [, controllers = '', ...rest] = line.split(':')
  const root = mountPoint(controllers)
  if (root === undefined) return
  writeFileSync(join(root, rest.join(':'), 'cgroup.procs'), String(process.pid))
}

function mountPoint(controllers: string): string | undefined {
  for (const line of readFileSync('/proc/self/mounts', 'utf8').split('\n')) {
    const [, directory, type, options = ''] = line.split(' ')
    if (controllers === '' ? type === 'cgroup2' : type === 'cgroup' && includesAll(options, controllers))
      return directory
  }
  return undefined
}

function includesAll(options: string, controllers: string): boolean {
  const given = options.split(',')
  return controllers.split(',').every((controller) => given.includes(controller))
}
