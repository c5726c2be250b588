// Pods: run, stop, remove. The monitor starts first, then makes the namespaces, so that it holds the network's handle.

import { randomBytes } from 'node:crypto'
import { mkdir, readdir } from 'node:fs/promises'
import { isAbsolute, join } from 'node:path'
import { messageOf, MonitorError } from '../base/errors.ts'
import type { NamespaceType } from '../client/monitor-requests.ts'
import { removeTree } from '../client/pod-state.ts'
import type { PodRecord, StatePaths } from '../client/pod-state.ts'
import type { ContainerLifecycle, LifecycleParts } from './container-lifecycle.ts'
import type { ExitWatch } from './exit-watch.ts'
import type { PodSandboxConfig } from './messages.ts'
import { unmountBelow } from './mounts.ts'
import { Pod } from './pod.ts'
import { makePodDirectories, maxHostnameBytes, podHostname, writePodFiles } from './pod-files.ts'
import { PodMonitor } from './pod-monitor.ts'
import type { MonitorOptions } from './pod-monitor.ts'
import type { Registry } from './registry.ts'
import { runCommand } from './run-command.ts'
import { now } from './time.ts'

export interface PodParts extends LifecycleParts {
  readonly paths: StatePaths
  readonly registry: Registry
  readonly exits: ExitWatch
  readonly containers: ContainerLifecycle
  readonly monitors: MonitorOptions
}

/** What a container gets whose exit nobody could report, because its pod was ended. */
const KILLED = 137

export class PodLifecycle {
  readonly #parts: PodParts

  constructor(parts: PodParts) {
    this.#parts = parts
  }

  /** Resolves to the id. A failure leaves nothing. */
  async run(config: PodSandboxConfig, runtimeHandler: string): Promise<string> {
    const pod = this.#reserve(config, runtimeHandler)
    try {
      await this.#make(pod)
    } catch (error) {
      await this.#discard(pod)
      throw MonitorError.within(`run pod ${pod.record.name}`, error)
    }
    return pod.id
  }

  /** Names the pod, so that no second one takes its place. */
  #reserve(config: PodSandboxConfig, runtimeHandler: string): Pod {
    const { oci, registry, paths, monitors } = this.#parts
    const { name = '', namespace = '', uid = '', attempt = 0 } = config.metadata ?? {}
    // Kubernetes' client library refuses the status of a pod that lacks one of them.
    for (const [field, value] of Object.entries({ name, namespace, uid })) {
      if (value === '')
        throw new MonitorError('invalid-argument', `run pod ${name}: missing required metadata.${field}`)
    }
    refuseUnsupported(name, config)
    if (runtimeHandler !== '' && runtimeHandler !== oci.name) {
      throw new MonitorError(
        'invalid-argument',
        `run pod ${name}: there is no runtime handler ${JSON.stringify(runtimeHandler)}, only ${oci.name}`,
      )
    }
    const record: PodRecord<PodSandboxConfig> = {
      version: 1,
      id: randomBytes(32).toString('hex'),
      name,
      namespace,
      uid,
      attempt,
      createdAt: now(),
      state: 'creating',
      reason: '',
      monitorPid: 0,
      monitorStartTime: '',
      namespaces: {},
      logDirectory: config.logDirectory,
      runtimeHandler,
      config,
    }
    const taken = registry.everyPod().find((pod) => nameKey(pod.record) === nameKey(record))
    if (taken !== undefined) {
      throw new MonitorError(
        'already-exists',
        `run pod ${name}: pod ${taken.id} has this name, namespace, uid and attempt`,
      )
    }
    const podPaths = paths.pod(record.id)
    const pod = new Pod(record, podPaths, new PodMonitor(podPaths, monitors))
    registry.add(pod)
    return pod
  }

  async #make(pod: Pod): Promise<void> {
    const { record, paths } = pod
    await makePodDirectories(paths)
    await pod.save()
    if (record.logDirectory !== '') await mkdir(record.logDirectory, { recursive: true, mode: 0o755 })
    await pod.monitor.start()
    await pod.saveMonitor()
    await this.placeMonitor(pod)
    const namespaces = await this.#makeNamespaces(pod)
    const hostNetwork = namespaces.net === undefined
    const hostname = podHostname(record)
    await writePodFiles(paths, { hostname, hostNetwork, dns: record.config.dnsConfig })
    this.#parts.exits.add(pod)
    await pod.update({ state: 'ready', namespaces })
  }

  /** Outside the pod's limits: its memory is not the pod's. */
  async placeMonitor(pod: Pod): Promise<void> {
    await this.#parts.cgroups.placeMonitor(this.#cgroupOf(pod), pod.monitor.process.pid)
  }

  async #makeNamespaces(pod: Pod): Promise<PodRecord['namespaces']> {
    const options = pod.record.config.linux?.securityContext?.namespaceOptions
    const wanted: NamespaceType[] = [
      ...(options?.network === 'NODE' ? [] : (['net', 'uts'] as const)),
      ...(options?.ipc === 'NODE' ? [] : (['ipc'] as const)),
    ]
    if (wanted.length === 0) return {}
    const monitor = await pod.monitor.client()
    const made = await monitor.createNamespaces({
      podId: pod.id,
      namespaces: wanted,
      basePath: pod.paths.namespaces,
    })
    const found = Object.fromEntries(
      made.filter(({ type }) => wanted.includes(type)).map(({ type, path }) => [type, path]),
    ) as PodRecord['namespaces']
    if (found.net !== undefined) await this.#raiseLoopback(found.net)
    return found
  }

  /** With the image's own busybox where there is one, so that the host needs no network tools. */
  async #raiseLoopback(netns: string): Promise<void> {
    const builtIn = this.#parts.images.list().find((image) => image.builtIn)
    const busybox = builtIn === undefined ? [] : [join(builtIn.rootfs, 'bin', 'busybox')]
    const up = ['link', 'set', 'lo', 'up']
    const ways = [
      ...busybox.map((path) => [path, 'nsenter', `--net=${netns}`, path, 'ip', ...up]),
      ['nsenter', `--net=${netns}`, 'ip', ...up],
    ]
    let said = ''
    for (const [path = '', ...args] of ways) {
      const result = await runCommand(path, args).catch((error: unknown) => ({
        code: 127,
        stderr: messageOf(error),
      }))
      if (result.code === 0) return
      said = result.stderr.trim()
    }
    throw new MonitorError('internal', `raise loopback in ${netns}: ${said}`)
  }

  async #discard(pod: Pod): Promise<void> {
    try {
      await this.destroy(pod)
    } catch (error) {
      // The next start of the daemon finds it in state creating and tries again.
      this.#parts.diagnostics.warn(`discard pod ${pod.id}: ${messageOf(error)}`)
      this.#parts.exits.remove(pod.id)
      this.#parts.registry.delete(pod.id)
    }
  }

  /** Ends every process of the pod and gives up its namespaces. What clients may still ask for stays. */
  async stop(pod: Pod): Promise<void> {
    pod.stopping ??= this.#stop(pod).finally(() => {
      pod.stopping = undefined
    })
    await pod.stopping
  }

  async #stop(pod: Pod): Promise<void> {
    const { containers, exits, cgroups, diagnostics } = this.#parts
    const told = [...pod.containers.values()].filter(({ record }) => record.state !== 'creating')
    const killed = told.map((container) =>
      // The monitor ends whatever is left.
      containers.kill(container).catch((error: unknown) => diagnostics.warn(messageOf(error))),
    )
    await Promise.all(killed)
    if (!pod.monitor.alive) await pod.monitor.find()
    await pod.monitor.stop()
    await exits.scan(pod)
    const note = { reason: 'Error', message: 'ended with its pod' }
    for (const container of told) await container.markExited(KILLED, now(), note)
    exits.remove(pod.id)
    await unmountBelow(pod.paths.namespaces)
    await cgroups.removePod(this.#cgroupOf(pod))
    if (pod.record.state === 'ready')
      await pod.update({ state: 'stopped', monitorPid: 0, monitorStartTime: '' })
  }

  /** Stops the pod if need be and removes everything but the logs. */
  async remove(pod: Pod): Promise<void> {
    pod.removal ??= this.destroy(pod).finally(() => {
      pod.removal = undefined
    })
    await pod.removal
  }

  /** The record goes last, with the directory. */
  async destroy(pod: Pod): Promise<void> {
    const { containers, registry, rootfs, oci, cgroups } = this.#parts
    await this.stop(pod)
    for (const container of pod.containers.values()) await containers.destroy(pod, container)
    // Bundles whose records are gone or were unreadable.
    for (const id of await readdir(pod.paths.bundles).catch(() => [])) {
      await oci.delete(id)
      await rootfs.remove(pod.paths.container(id))
    }
    await cgroups.removePod(this.#cgroupOf(pod))
    await unmountBelow(pod.paths.directory)
    await removeTree(pod.paths.directory)
    registry.delete(pod.id)
  }

  #cgroupOf(pod: Pod): string {
    return this.#parts.cgroups.podPath(pod.id, pod.record.config.linux?.cgroupParent ?? '')
  }
}

/** What may exist once. */
function nameKey({ namespace, name, uid, attempt }: PodRecord): string {
  return JSON.stringify([namespace, name, uid, attempt])
}

function refuseUnsupported(name: string, config: PodSandboxConfig): void {
  const bad = (code: 'invalid-argument' | 'unimplemented', text: string): MonitorError =>
    new MonitorError(code, `run pod ${name}: ${text}`)
  if (config.logDirectory !== '' && !isAbsolute(config.logDirectory)) {
    throw bad('invalid-argument', `log_directory ${JSON.stringify(config.logDirectory)} is not absolute`)
  }
  if (Buffer.byteLength(config.hostname) > maxHostnameBytes || /[\0\s/]/.test(config.hostname)) {
    throw bad('invalid-argument', `hostname ${JSON.stringify(config.hostname)} is not usable`)
  }
  const hostPort = config.portMappings.find((mapping) => mapping.hostPort > 0)
  if (hostPort !== undefined) {
    throw bad('unimplemented', `host port ${hostPort.hostPort}: not supported yet, pods have a loopback only`)
  }
  if (config.linux?.securityContext?.namespaceOptions?.usernsOptions?.mode === 'POD') {
    throw bad('unimplemented', 'user namespaces: not supported yet')
  }
}
