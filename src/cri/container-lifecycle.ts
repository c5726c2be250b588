// Containers: create, start, stop, remove. Creating goes through the pod's monitor, the rest are the daemon's own calls
// of the OCI runtime; how it ended comes from the exit watch.

import { randomBytes } from 'node:crypto'
import { mkdir, rm, writeFile } from 'node:fs/promises'
import { constants } from 'node:os'
import { dirname, isAbsolute, join, normalize } from 'node:path'
import type { Diagnostics } from '../base/diagnostics.ts'
import { messageOf, MonitorError } from '../base/errors.ts'
import { KILL_TIMEOUT_MS } from '../base/limits.ts'
import { withDeadline } from '../base/lifetime.ts'
import { buildSpec } from '../oci/oci-spec.ts'
import type { HostAbilities } from '../oci/spec-request.ts'
import type { Cgroups } from './cgroups.ts'
import { Container, newContainerRecord } from './container.ts'
import type { SaidOnce } from './host.ts'
import type { ImageStore } from './image-store.ts'
import type { ContainerConfig } from './messages.ts'
import type { OciControl } from './oci-control.ts'
import type { Pod } from './pod.ts'
import type { RootfsMaker } from './rootfs.ts'
import { specRequest } from './spec-from-cri.ts'
import { now } from './time.ts'

/** The parts that lifecycles work with. */
export interface LifecycleParts {
  readonly oci: OciControl
  readonly images: ImageStore
  readonly rootfs: RootfsMaker
  readonly cgroups: Cgroups
  readonly host: HostAbilities
  readonly said: SaidOnce
  readonly diagnostics: Diagnostics
}

/** What a start that failed leaves, as in containerd. */
const START_FAILED = 128

export class ContainerLifecycle {
  readonly #parts: LifecycleParts

  constructor(parts: LifecycleParts) {
    this.#parts = parts
  }

  /** Resolves to the id. A failure leaves nothing. */
  async create(pod: Pod, config: ContainerConfig): Promise<string> {
    pod.requireReady('create container in')
    const container = this.#reserve(pod, config)
    try {
      await this.#make(pod, container, config)
    } catch (error) {
      await this.#discard(pod, container)
      throw MonitorError.within(`create container ${container.record.name}`, error)
    }
    return container.id
  }

  /** Names the container, so that no second one takes its place. */
  #reserve(pod: Pod, config: ContainerConfig): Container {
    const { name = '', attempt = 0 } = config.metadata ?? {}
    if (name === '')
      throw new MonitorError('invalid-argument', 'create container: missing required metadata.name')
    const image = this.#parts.images.get(config.image?.image ?? '')
    const taken = [...pod.containers.values()].find(
      ({ record }) => record.name === name && record.attempt === attempt,
    )
    if (taken !== undefined) {
      throw new MonitorError(
        'already-exists',
        `create container ${name}: pod ${pod.id} has container ${taken.id} of this name and attempt ${attempt}`,
      )
    }
    const id = randomBytes(32).toString('hex')
    const { envs: _, ...stored } = config
    const record = newContainerRecord({
      id,
      podSandboxId: pod.id,
      name,
      attempt,
      config: stored,
      logPath: logPathOf(pod, config),
      image: config.image?.userSpecifiedImage || (config.image?.image ?? ''),
      imageId: image.id,
      cgroupsPath: join(this.#cgroupOf(pod), id),
    })
    const container = new Container(record, pod.paths.container(id))
    pod.containers.set(id, container)
    return container
  }

  async #make(pod: Pod, container: Container, config: ContainerConfig): Promise<void> {
    const { images, rootfs, host, said } = this.#parts
    const { id, paths, record } = container
    const image = images.get(config.image?.image ?? '')
    await container.save()
    await rootfs.make(paths, image.rootfs)
    const source = { config, pod: pod.record, podPaths: pod.paths, image }
    const request = await specRequest({ ...source, rootfs: paths.rootfs, cgroupsPath: record.cgroupsPath })
    const { spec, reductions } = buildSpec(request, host)
    for (const reduction of reductions) said.warn(`${reduction}: containers that ask for it go without`)
    await writeFile(join(paths.bundle, 'config.json'), JSON.stringify(spec), { mode: 0o600 })
    if (record.logPath !== '') await mkdir(dirname(record.logPath), { recursive: true, mode: 0o755 })
    const monitor = await pod.monitor.client()
    const pid = await monitor.createContainer({
      id,
      bundlePath: paths.bundle,
      terminal: config.tty,
      stdin: config.stdin,
      exitPaths: [paths.exitFile],
      oomExitPaths: [paths.oomFile],
      logDrivers: record.logPath === '' ? [] : [{ type: 'cri', path: record.logPath }],
    })
    await container.update({ state: 'created', pid, user: request.user })
  }

  async #discard(pod: Pod, container: Container): Promise<void> {
    try {
      await this.#destroy(pod, container)
    } catch (error) {
      // The next start of the daemon finds it in state creating and tries again.
      this.#parts.diagnostics.warn(`discard container ${container.id}: ${messageOf(error)}`)
      pod.containers.delete(container.id)
    }
  }

  /** A start that fails leaves the container exited. */
  async start(container: Container): Promise<void> {
    const { id, record } = container
    if (record.state !== 'created' || container.starting || container.removal !== undefined) {
      const state = container.starting ? 'being started' : record.state
      throw new MonitorError('failed-precondition', `start container ${id}: it is not created but ${state}`)
    }
    container.starting = true
    const startedAt = now()
    try {
      await this.#parts.oci.start(id)
    } catch (error) {
      await this.#parts.oci.kill(id, constants.signals.SIGKILL).catch(() => false)
      await container.markExited(START_FAILED, now(), { reason: 'StartError', message: messageOf(error) })
      throw MonitorError.within(`start container ${id}`, error)
    } finally {
      container.starting = false
    }
    await container.markStarted(startedAt)
  }

  /** Asks the first process to end, and ends it when it has not after `timeoutMs`. One that is over is fine. */
  async stop(container: Container, timeoutMs: number): Promise<void> {
    if (container.isOver) return
    // A process that was never started has no handler for anything else.
    if (timeoutMs > 0 && container.record.state === 'running') {
      await this.#parts.oci.kill(container.id, stopSignal(container, this.#parts.images))
      if (await exitsWithin(container, timeoutMs)) return
    }
    await this.kill(container)
  }

  /** Ends every process of the container. Rejects when its exit is not reported in time. */
  async kill(container: Container): Promise<void> {
    if (container.isOver) return
    await this.#parts.oci.kill(container.id, constants.signals.SIGKILL)
    if (await exitsWithin(container, KILL_TIMEOUT_MS)) return
    throw new MonitorError(
      'deadline-exceeded',
      `stop container ${container.id}: killed, but its exit was not reported within ${KILL_TIMEOUT_MS / 1000} s`,
    )
  }

  /** Ends the container if need be and removes everything but its log. */
  async remove(pod: Pod, container: Container): Promise<void> {
    container.removal ??= this.#remove(pod, container).finally(() => {
      container.removal = undefined
    })
    await container.removal
  }

  async #remove(pod: Pod, container: Container): Promise<void> {
    try {
      await this.kill(container)
      await this.#destroy(pod, container)
    } catch (error) {
      throw MonitorError.within(`remove container ${container.id}`, error)
    }
  }

  /** The record goes last: what is left by a daemon that is killed in the middle can be removed again. */
  async #destroy(pod: Pod, container: Container): Promise<void> {
    const { id, paths } = container
    await this.#parts.oci.delete(id)
    await this.#parts.rootfs.remove(paths)
    await rm(paths.exitFile, { force: true })
    await rm(paths.oomFile, { force: true })
    await rm(paths.record, { force: true })
    pod.containers.delete(id)
  }

  /** For containers that were never told to a client. */
  async destroy(pod: Pod, container: Container): Promise<void> {
    await this.#destroy(pod, container)
  }

  #cgroupOf(pod: Pod): string {
    return this.#parts.cgroups.podPath(pod.id, pod.record.config.linux?.cgroupParent ?? '')
  }
}

/** The log's absolute path; empty without a log. It may not leave the pod's log directory. */
function logPathOf(pod: Pod, config: ContainerConfig): string {
  const { logDirectory } = pod.record
  if (logDirectory === '' || config.logPath === '') return ''
  const relative = normalize(config.logPath)
  if (isAbsolute(relative) || relative.startsWith('..')) {
    throw new MonitorError(
      'invalid-argument',
      `create container ${config.metadata?.name}: log_path ${JSON.stringify(config.logPath)} leaves the pod's log directory`,
    )
  }
  return join(logDirectory, relative)
}

async function exitsWithin(container: Container, milliseconds: number): Promise<boolean> {
  const exited = container.exited.then(() => true)
  return await withDeadline(exited, Math.min(milliseconds, 2 ** 31 - 1), () => false)
}

/** The container's own, else its image's, else SIGTERM. */
function stopSignal(container: Container, images: ImageStore): number {
  const { config, imageId } = container.record
  const named = config.stopSignal.replace(/^SIGNAL_/, '').replace('RUNTIME_DEFAULT', '')
  return (
    signalNumber(named) ??
    signalNumber(images.find(imageId)?.defaults.stopSignal ?? '') ??
    constants.signals.SIGTERM
  )
}

const SIGRTMIN = 34
const SIGRTMAX = 64

/** `SIGTERM`, `15`, `SIGRTMINPLUS3`, `SIGRTMIN+3`. */
export function signalNumber(name: string): number | undefined {
  if (/^\d+$/.test(name)) return Number(name)
  const realTime = /^SIGRT(MIN|MAX)(?:(?:PLUS|MINUS|\+|-)(\d+))?$/.exec(name)
  if (realTime !== null) {
    const offset = Number(realTime[2] ?? 0)
    return realTime[1] === 'MIN' ? SIGRTMIN + offset : SIGRTMAX - offset
  }
  return name in constants.signals ? constants.signals[name as NodeJS.Signals] : undefined
}
