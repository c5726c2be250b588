// What this host can give a container, asked once at start; and the same sentence about it never twice.

import { existsSync, readFileSync } from 'node:fs'
import type { Diagnostics } from '../base/diagnostics.ts'
import { capabilitiesOfMask } from '../oci/capabilities.ts'
import type { HostAbilities } from '../oci/spec-request.ts'
import type { MountEntry } from './mounts.ts'

/** Reads /proc and the cgroup mounts. */
export function readHostAbilities(mounts: readonly MountEntry[]): HostAbilities {
  const capabilityMask = /^CapBnd:\s*(\S+)/m.exec(readFileSync('/proc/self/status', 'utf8'))?.[1] ?? '0'
  const canLower = capabilitiesOfMask(capabilityMask).includes('CAP_SYS_RESOURCE')
  const own = Number(readFileSync('/proc/self/oom_score_adj', 'utf8'))
  return {
    capabilityMask,
    minOomScoreAdj: canLower ? -1000 : own,
    hugetlb: hasController(mounts, 'hugetlb'),
    swapLimit: mounts.some(({ mountpoint, type, superOptions }) =>
      type === 'cgroup' && superOptions.includes('memory')
        ? existsSync(`${mountpoint}/memory.memsw.limit_in_bytes`)
        : type === 'cgroup2' && hasController(mounts, 'memory') && existsSync('/proc/swaps'),
    ),
  }
}

/** On a hybrid host the runtimes use v1 only: what sits in the v2 mount beside it does not count. */
function hasController(mounts: readonly MountEntry[], name: string): boolean {
  const v1 = mounts.filter(({ type }) => type === 'cgroup')
  if (v1.length > 0) return v1.some(({ superOptions }) => superOptions.includes(name))
  const v2 = mounts.find(({ type }) => type === 'cgroup2')
  if (v2 === undefined) return false
  return readFileSync(`${v2.mountpoint}/cgroup.controllers`, 'utf8').trim().split(' ').includes(name)
}

/** Says each sentence once in the daemon's life. */
export class SaidOnce {
  readonly #said = new Set<string>()
  readonly #diagnostics: Diagnostics

  constructor(diagnostics: Diagnostics) {
    this.#diagnostics = diagnostics
  }

  warn(sentence: string): void {
    if (this.#said.has(sentence)) return
    this.#said.add(sentence)
    this.#diagnostics.warn(sentence)
  }
}
