// Finding pods and containers of the state directory by id, beginning of an id, or name. Reads only.

import { MonitorError } from '../base/errors.ts'
import { listContainerIds, listPodIds, readContainerRecord, readPodRecord } from './pod-state.ts'
import type { ContainerRecord, PodPaths, PodRecord, StatePaths } from './pod-state.ts'

/** A container with its pod, for whoever looks one up. */
export interface FoundContainer {
  readonly pod: PodRecord
  readonly container: ContainerRecord
  readonly podPaths: PodPaths
}

/** All readable pods with their readable containers. What cannot be read is left out: this is for looking, not for owning. */
export async function readPods(
  paths: StatePaths,
): Promise<{ pod: PodRecord; containers: ContainerRecord[]; paths: PodPaths }[]> {
  const pods = []
  for (const id of await listPodIds(paths)) {
    const podPaths = paths.pod(id)
    const found = await readPodRecord(podPaths.record)
    if (found.kind !== 'record') continue
    const containers: ContainerRecord[] = []
    for (const containerId of await listContainerIds(podPaths)) {
      const container = await readContainerRecord(podPaths.container(containerId).record)
      if (container.kind === 'record') containers.push(container.record)
    }
    pods.push({ pod: found.record, containers, paths: podPaths })
  }
  return pods
}

/** The container that an id, the beginning of an id, or a name means. Of several with that name the newest one counts. */
export async function findContainer(paths: StatePaths, idOrName: string): Promise<FoundContainer> {
  const all = (await readPods(paths)).flatMap(({ pod, containers, paths: podPaths }) =>
    containers.map((container): FoundContainer => ({ pod, container, podPaths })),
  )
  const exact = all.find(({ container }) => container.id === idOrName)
  if (exact !== undefined) return exact
  const named = all
    .filter(({ container }) => container.name === idOrName)
    .toSorted((a, b) => (BigInt(a.container.createdAt) < BigInt(b.container.createdAt) ? 1 : -1))[0]
  return named ?? oneBeginningWith('container', idOrName, all, ({ container }) => container.id)
}

/** The pod that an id, the beginning of an id, or a name means. */
export async function findPod(
  paths: StatePaths,
  idOrName: string,
): Promise<{ pod: PodRecord; paths: PodPaths }> {
  const all = await readPods(paths)
  const exact = all.find(({ pod }) => pod.id === idOrName)
  if (exact !== undefined) return exact
  const named = all
    .filter(({ pod }) => pod.name === idOrName)
    .toSorted((a, b) => (BigInt(a.pod.createdAt) < BigInt(b.pod.createdAt) ? 1 : -1))[0]
  return named ?? oneBeginningWith('pod', idOrName, all, ({ pod }) => pod.id)
}

/** The one of `all` whose id begins with `prefix`; an error that names it when there is none or more than one. */
export function oneBeginningWith<T>(
  what: string,
  prefix: string,
  all: readonly T[],
  idOf: (one: T) => string,
): T {
  if (prefix === '') throw new MonitorError('invalid-argument', `missing required ${what} id or name`)
  const matches = all.filter((one) => idOf(one).startsWith(prefix))
  const [first] = matches
  if (first === undefined) throw new MonitorError('not-found', `${what} ${prefix} not found`)
  if (matches.length > 1) {
    throw new MonitorError(
      'invalid-argument',
      `${what} ${prefix} is ambiguous: it begins the ids of ${matches.length} of them`,
    )
  }
  return first
}
