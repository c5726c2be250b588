// What the daemon does about the past: at its start it takes over the pods on disk and tells the truth about what ended
// meanwhile; whenever a monitor is found dead, it starts another and ends what that one cannot know.

import { rename, stat } from 'node:fs/promises'
import { messageOf, MonitorError } from '../base/errors.ts'
import {
  listContainerIds,
  listPodIds,
  readContainerRecord,
  readPodRecord,
  STATE_VERSION,
} from '../client/pod-state.ts'
import type { ContainerRecord, Found, PodRecord } from '../client/pod-state.ts'
import { Container } from './container.ts'
import type { StoredContainerConfig } from './container.ts'
import type { PodSandboxConfig } from './messages.ts'
import { readMounts } from './mounts.ts'
import { Pod } from './pod.ts'
import { makePodDirectories } from './pod-files.ts'
import type { PodLifecycle, PodParts } from './pod-lifecycle.ts'
import { PodMonitor } from './pod-monitor.ts'
import { fromMilliseconds, now } from './time.ts'

/** What an exit code is that nobody could collect. */
const UNKNOWN_EXIT = 255

/** All that was read of one pod, before anything is changed. */
interface PodOnDisk {
  readonly id: string
  readonly pod: Found<PodRecord>
  readonly containers: readonly { readonly id: string; readonly found: Found<ContainerRecord> }[]
}

export class Recovery {
  readonly #parts: PodParts
  readonly #pods: PodLifecycle

  constructor(parts: PodParts, pods: PodLifecycle) {
    this.#parts = parts
    this.#pods = pods
  }

  /** Takes over everything in the state directory. Rejects, with nothing changed, when a newer program wrote there. */
  async load(): Promise<void> {
    const all = await this.#readAll()
    for (const onDisk of all) {
      await this.#take(onDisk).catch((error: unknown) =>
        this.#parts.diagnostics.error(`take over pod ${onDisk.id}: ${messageOf(error)}`),
      )
    }
  }

  async #readAll(): Promise<PodOnDisk[]> {
    const { paths } = this.#parts
    const all: PodOnDisk[] = []
    for (const id of await listPodIds(paths)) {
      const podPaths = paths.pod(id)
      const containers = []
      for (const containerId of await listContainerIds(podPaths)) {
        const found = await readContainerRecord(podPaths.container(containerId).record)
        refuseNewer(`container ${containerId}`, found)
        containers.push({ id: containerId, found })
      }
      const pod = await readPodRecord(podPaths.record)
      refuseNewer(`pod ${id}`, pod)
      all.push({ id, pod, containers })
    }
    return all
  }

  async #take(onDisk: PodOnDisk): Promise<void> {
    const { registry, exits } = this.#parts
    const pod = await this.#podOf(onDisk)
    registry.add(pod)
    for (const { id, found } of onDisk.containers) await this.#takeContainer(pod, id, found)
    if (pod.record.state === 'creating') {
      // Its client never got an answer.
      await this.#pods.destroy(pod)
      return
    }
    await exits.scan(pod)
    if (pod.record.state === 'stopped') return
    await makePodDirectories(pod.paths)
    exits.add(pod)
    const missing = await missingNamespaces(pod)
    if (missing.length > 0) await this.#giveUp(pod, `its namespaces are gone: ${missing.join(', ')}`)
    else if (pod.monitor.alive || (await this.#findMonitor(pod))) await this.#compare(pod)
    else await this.monitorLost(pod)
  }

  async #podOf({ id, pod: found }: PodOnDisk): Promise<Pod> {
    const { paths, monitors } = this.#parts
    const podPaths = paths.pod(id)
    if (found.kind === 'record') {
      const record = found.record as PodRecord<PodSandboxConfig>
      const known = { pid: record.monitorPid, startTime: record.monitorStartTime }
      return new Pod(record, podPaths, new PodMonitor(podPaths, monitors, known))
    }
    const created = fromMilliseconds((await stat(podPaths.directory)).ctimeMs)
    const pod = new Pod(unknownPod(id, created), podPaths, new PodMonitor(podPaths, monitors))
    if (found.kind === 'bad') {
      await this.#putAside(podPaths.record, `pod ${id}`, found.reason)
      await pod.update({ state: 'stopped', reason: `pod.json was unreadable: ${found.reason}` })
      await pod.monitor.find()
    }
    return pod
  }

  async #takeContainer(pod: Pod, id: string, found: Found<ContainerRecord>): Promise<void> {
    const containerPaths = pod.paths.container(id)
    if (found.kind === 'record') {
      const container = new Container(found.record as ContainerRecord<StoredContainerConfig>, containerPaths)
      pod.containers.set(id, container)
      if (found.record.state === 'creating') await this.#parts.containers.destroy(pod, container)
    } else if (found.kind === 'bad') {
      await this.#putAside(containerPaths.record, `container ${id}`, found.reason)
      if (pod.isReady)
        await pod.update({ state: 'stopped', reason: `the record of container ${id} was unreadable` })
    }
  }

  async #putAside(path: string, what: string, reason: string): Promise<void> {
    await rename(path, `${path}.bad`)
    this.#parts.diagnostics.error(
      `${what}: ${path} cannot be read (${reason}); renamed to .bad, its pod is not ready`,
    )
  }

  async #findMonitor(pod: Pod): Promise<boolean> {
    if (!(await pod.monitor.find())) return false
    await pod.saveMonitor()
    return true
  }

  /** The monitor lives: what it does not know and did not report is lost all the same. */
  async #compare(pod: Pod): Promise<void> {
    const known = await this.#knownToMonitor(pod)
    await this.#parts.exits.scan(pod)
    for (const container of pod.containers.values()) {
      if (container.isOver) continue
      if (known !== undefined && !known.has(container.id)) await this.#lose(container)
      else if (container.record.state === 'created') await this.#lookForStart(container)
    }
  }

  /** Undefined: it could not be asked. Then nothing is known against anything. */
  async #knownToMonitor(pod: Pod): Promise<Set<string> | undefined> {
    try {
      return new Set((await (await pod.monitor.client()).listContainers()).map(({ id }) => id))
    } catch (error) {
      this.#parts.diagnostics.warn(`list containers of pod ${pod.id}: ${messageOf(error)}`)
      return undefined
    }
  }

  /** The daemon may have been killed between the start and its record. */
  async #lookForStart(container: Container): Promise<void> {
    if ((await this.#parts.oci.state(container.id)) === 'running') await container.markStarted(now())
  }

  /** Starts another monitor for the pod; containers that it does not know are killed. */
  async monitorLost(pod: Pod): Promise<void> {
    pod.recovery ??= this.#monitorLost(pod).finally(() => {
      pod.recovery = undefined
    })
    await pod.recovery
  }

  async #monitorLost(pod: Pod): Promise<void> {
    const { diagnostics, exits } = this.#parts
    const { pid } = pod.monitor.process
    // What it reported before it died counts.
    await exits.scan(pod)
    diagnostics.error(
      `pod ${pod.id}: its monitor (pid ${pid}) is gone; its containers end, another one is started`,
    )
    try {
      await pod.monitor.start()
      await pod.saveMonitor()
      await this.#pods.placeMonitor(pod)
    } catch (error) {
      await this.#giveUp(pod, `its monitor is gone and another one does not start: ${messageOf(error)}`)
      return
    }
    const known = (await this.#knownToMonitor(pod)) ?? new Set()
    for (const container of pod.containers.values()) {
      if (!container.isOver && container.record.state !== 'creating' && !known.has(container.id)) {
        await this.#lose(container)
      }
    }
  }

  async #giveUp(pod: Pod, reason: string): Promise<void> {
    this.#parts.diagnostics.error(`pod ${pod.id}: not ready: ${reason}`)
    if (!pod.monitor.alive) for (const container of pod.containers.values()) await this.#lose(container)
    await pod.update({ state: 'stopped', reason })
  }

  async #lose(container: Container): Promise<void> {
    if (container.isOver) return
    const { oci, diagnostics } = this.#parts
    // With --force this kills it, and everything in its cgroup.
    await oci.delete(container.id).catch((error: unknown) => diagnostics.error(messageOf(error)))
    await container.markExited(UNKNOWN_EXIT, now(), {
      reason: 'MonitorLost',
      message: 'the monitor of its pod ended before it did, so its exit code is not known',
    })
  }

  /** One round of looking: exits that nobody told, monitors that died. */
  async scan(): Promise<void> {
    for (const pod of this.#parts.registry.pods()) {
      await this.#parts.exits.scan(pod)
      const settled = pod.stopping === undefined && pod.removal === undefined && pod.recovery === undefined
      if (pod.isReady && settled && !pod.monitor.alive) {
        await this.monitorLost(pod).catch((error: unknown) =>
          this.#parts.diagnostics.error(`recover pod ${pod.id}: ${messageOf(error)}`),
        )
      }
    }
  }
}

function refuseNewer(what: string, found: Found<unknown>): void {
  if (found.kind !== 'newer') return
  throw new MonitorError(
    'failed-precondition',
    `${what} was written by a newer holdfastd (state version ${found.version}; this one reads up to ${STATE_VERSION}): ` +
      'start that version, or remove the pod with it first',
  )
}

/** After a reboot the paths are plain files. */
async function missingNamespaces(pod: Pod): Promise<string[]> {
  const mounted = new Set((await readMounts()).map(({ mountpoint }) => mountpoint))
  return Object.entries(pod.record.namespaces)
    .filter(([, path]) => !mounted.has(path))
    .map(([type]) => type)
}

/** What is said of a pod whose record cannot be read. */
function unknownPod(id: string, createdAt: string): PodRecord<PodSandboxConfig> {
  return {
    version: STATE_VERSION,
    id,
    name: id,
    namespace: 'unknown',
    uid: id,
    attempt: 0,
    createdAt,
    state: 'creating',
    reason: '',
    monitorPid: 0,
    monitorStartTime: '',
    namespaces: {},
    logDirectory: '',
    runtimeHandler: '',
    config: {
      metadata: { name: id, uid: id, namespace: 'unknown', attempt: 0 },
      hostname: '',
      logDirectory: '',
      dnsConfig: null,
      portMappings: [],
      labels: {},
      annotations: {},
      linux: null,
    },
  }
}
