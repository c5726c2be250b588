// Places in the cgroup tree: a keeper gets a group of its own beside its pod's, so that its memory is not the pod's.
// Works on v1, v2 and both at once; where nothing can be written it does nothing and says so once.

import { existsSync } from 'node:fs'
import { mkdir, readdir, rmdir, writeFile } from 'node:fs/promises'
import { join } from 'node:path'
import { isErrno, messageOf } from '../base/errors.ts'
import type { SaidOnce } from './host.ts'
import type { MountEntry } from './mounts.ts'

/** Joining one of these needs settings that a new group does not have. */
const unusable = ['cpuset']

/** Ours in every hierarchy. */
export const cgroupRoot = '/holdfast'

export class Cgroups {
  readonly #mountpoints: readonly string[]
  readonly #said: SaidOnce

  constructor(mounts: readonly MountEntry[], said: SaidOnce) {
    this.#said = said
    this.#mountpoints = mounts
      .filter(
        ({ type, superOptions }) =>
          type === 'cgroup2' ||
          (type === 'cgroup' && !superOptions.some((option) => unusable.includes(option))),
      )
      .map(({ mountpoint }) => mountpoint)
  }

  /** The pod's group; its containers' are below it. A parent given by the client is taken as it is. */
  podPath(podId: string, parent: string): string {
    return parent.startsWith('/') ? join(parent, podId) : join(cgroupRoot, podId)
  }

  /** Moves a monitor's keeper into the group beside the pod's. Its server follows by itself. */
  async placeMonitor(pod: string, pid: number): Promise<void> {
    for (const mountpoint of this.#mountpoints) {
      try {
        await makeGroups(mountpoint, monitorPath(pod))
        await writeFile(join(mountpoint, monitorPath(pod), 'cgroup.procs'), String(pid))
      } catch (error) {
        this.#said.warn(`place monitors in cgroups of their own below ${mountpoint}: ${messageOf(error)}`)
      }
    }
  }

  /** Removes the empty groups of a pod and of its monitor, and ours when it was the last pod. */
  async removePod(pod: string): Promise<void> {
    const all = new Set([...this.#mountpoints, ...(await hierarchies())])
    for (const mountpoint of all) {
      await removeGroups(join(mountpoint, pod))
      await removeGroups(join(mountpoint, monitorPath(pod)))
      await rmdir(join(mountpoint, cgroupRoot)).catch(() => undefined)
    }
  }
}

function monitorPath(pod: string): string {
  return `${pod}-monitor`
}

/** Not mkdir's `recursive`: on file systems like these it can try for ever. */
async function makeGroups(mountpoint: string, path: string, tries = 3): Promise<void> {
  let group = mountpoint
  for (const name of path.split('/').filter(Boolean)) {
    group = join(group, name)
    try {
      await mkdir(group)
    } catch (error) {
      // The daemon of another state directory has just removed the empty one above.
      if (isErrno(error, 'ENOENT') && tries > 1) return await makeGroups(mountpoint, path, tries - 1)
      if (!isErrno(error, 'EEXIST')) throw error
    }
  }
}

/** The OCI runtimes also make groups where we do not. */
async function hierarchies(): Promise<string[]> {
  const base = '/sys/fs/cgroup'
  if (existsSync(join(base, 'cgroup.controllers'))) return [base]
  return (await readdir(base).catch(() => [])).map((name) => join(base, name))
}

async function removeGroups(path: string): Promise<void> {
  let names: string[]
  try {
    names = (await readdir(path, { withFileTypes: true }))
      .filter((entry) => entry.isDirectory())
      .map((entry) => entry.name)
  } catch (error) {
    if (isErrno(error, 'ENOENT', 'ENOTDIR')) return
    throw error
  }
  for (const name of names) await removeGroups(join(path, name))
  // A process that is still dying keeps it: the next removal, or nobody, takes it.
  await rmdir(path).catch(() => undefined)
}
