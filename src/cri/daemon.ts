// holdfastd: builds the parts, takes over what is on disk, serves the CRI, and looks around now and then. Ending it ends
// nothing else: pods, monitors and sessions go on, and the next one finds them.

import { closeSync, ftruncateSync, openSync, readFileSync, writeSync } from 'node:fs'
import { mkdir, realpath } from 'node:fs/promises'
import type { Diagnostics } from '../base/diagnostics.ts'
import { messageOf, MonitorError } from '../base/errors.ts'
import { STATE_SCAN_MS } from '../base/limits.ts'
import { StatePaths } from '../client/pod-state.ts'
import { Cgroups } from './cgroups.ts'
import { ContainerLifecycle } from './container-lifecycle.ts'
import { ExitWatch } from './exit-watch.ts'
import { GrpcServer } from './grpc-server.ts'
import { readHostAbilities, SaidOnce } from './host.ts'
import { imageHandlers } from './image-service.ts'
import { ImageStore } from './image-store.ts'
import { readMounts } from './mounts.ts'
import { OciControl } from './oci-control.ts'
import { PodLifecycle } from './pod-lifecycle.ts'
import type { PodParts } from './pod-lifecycle.ts'
import { Recovery } from './recovery.ts'
import { Registry } from './registry.ts'
import { RootfsMaker } from './rootfs.ts'
import { runtimeHandlers } from './runtime-service.ts'
import { StreamCalls } from './stream-calls.ts'

export interface DaemonOptions {
  readonly state: string
  readonly socket: string
  readonly runtimePath: string
  readonly monitorPath: string
  readonly protoPath: string
  /** Given on the command line: name and directory. */
  readonly images: readonly (readonly [name: string, rootfs: string])[]
  readonly logLevel: string
  readonly version: string
  readonly diagnostics: Diagnostics
  /** Locks the open file for as long as it is open; false: another process has it. */
  readonly lock: (fd: number) => boolean
}

export class Daemon {
  readonly #options: DaemonOptions
  readonly #exits: ExitWatch
  #lockFd: number | undefined
  #server: GrpcServer | undefined
  #registry: Registry | undefined
  #timer: NodeJS.Timeout | undefined

  constructor(options: DaemonOptions) {
    this.#options = options
    this.#exits = new ExitWatch(options.diagnostics)
  }

  /** Resolves when clients are served. */
  async start(): Promise<void> {
    const options = this.#options
    await mkdir(options.state, { recursive: true, mode: 0o711 })
    // The kernel's list of mounts has real paths.
    const paths = new StatePaths(await realpath(options.state))
    this.#lockFd = takeLock(paths, options.lock)
    await mkdir(paths.pods, { recursive: true, mode: 0o700 })
    await mkdir(paths.runtimeRoot, { recursive: true, mode: 0o700 })
    const parts = await this.#parts(paths)
    const pods = new PodLifecycle(parts)
    const recovery = new Recovery(parts, pods)
    this.#registry = parts.registry
    await recovery.load()
    this.#server = this.#serve(parts, pods)
    await this.#server.listen(options.socket)
    this.#lookAround(recovery)
    const { length } = parts.registry.pods()
    options.diagnostics.info(
      `serving the CRI on ${options.socket}: ${length} ${length === 1 ? 'pod' : 'pods'} found in ${paths.root}`,
    )
  }

  async #parts(paths: StatePaths): Promise<PodParts> {
    const { diagnostics, runtimePath, monitorPath, logLevel } = this.#options
    const mounts = await readMounts()
    const said = new SaidOnce(diagnostics)
    const images = new ImageStore()
    await images.addBuiltIn(paths.images)
    for (const [name, rootfs] of this.#options.images) await images.addDirectory(name, rootfs)
    if (images.missing !== '') diagnostics.warn(`no built-in image: ${images.missing}`)
    const shared = {
      oci: new OciControl(runtimePath, paths.runtimeRoot),
      images,
      rootfs: new RootfsMaker(said),
      cgroups: new Cgroups(mounts, said),
      host: readHostAbilities(mounts),
      said,
      diagnostics,
    }
    return {
      ...shared,
      paths,
      registry: new Registry(),
      exits: this.#exits,
      containers: new ContainerLifecycle(shared),
      monitors: { monitorPath, runtimePath, runtimeRoot: paths.runtimeRoot, logLevel },
    }
  }

  #serve(parts: PodParts, pods: PodLifecycle): GrpcServer {
    const { protoPath, version, diagnostics, runtimePath, monitorPath } = this.#options
    const { registry, containers, images, paths, oci } = parts
    const runtime = runtimeHandlers({
      version,
      runtimeName: oci.name,
      registry,
      pods,
      containers,
      streams: new StreamCalls(registry),
      settings: { version, state: paths.root, runtime: runtimePath, monitor: monitorPath },
    })
    const services = {
      'runtime.v1.RuntimeService': runtime,
      'runtime.v1.ImageService': imageHandlers(images, paths.images),
    }
    return new GrpcServer(protoPath, services, diagnostics)
  }

  #lookAround(recovery: Recovery): void {
    this.#timer = setTimeout(() => {
      recovery
        .scan()
        .catch((error: unknown) => this.#options.diagnostics.error(`look around: ${messageOf(error)}`))
        .finally(() => {
          if (this.#timer !== undefined) this.#lookAround(recovery)
        })
    }, STATE_SCAN_MS)
  }

  /** Stops serving. Pods run on. */
  async close(): Promise<void> {
    clearTimeout(this.#timer)
    this.#timer = undefined
    await this.#server?.close()
    this.#exits.close()
    for (const pod of this.#registry?.everyPod() ?? []) pod.monitor.disconnect()
    if (this.#lockFd !== undefined) closeSync(this.#lockFd)
    this.#lockFd = undefined
  }
}

/** One daemon per state directory: two would write over each other's records. */
function takeLock(paths: StatePaths, lock: (fd: number) => boolean): number {
  const fd = openSync(paths.lock, 'a+', 0o600)
  if (!lock(fd)) {
    const pid = readFileSync(paths.lock, 'latin1').trim()
    closeSync(fd)
    throw new MonitorError(
      'already-exists',
      `${paths.root} belongs to a holdfastd that runs${pid === '' ? '' : ` (pid ${pid})`}: stop it, or use another --state`,
    )
  }
  ftruncateSync(fd)
  writeSync(fd, `${process.pid}\n`)
  return fd
}
