// holdfastd's state directory: where things lie, and the JSON records of pods and containers. The daemon writes them;
// the command line only reads them, so that it works while no daemon runs.

import type { Dirent } from 'node:fs'
import { mkdir, open, readdir, readFile, rename, rm } from 'node:fs/promises'
import { dirname, join } from 'node:path'
import { isErrno, messageOf, MonitorError } from '../base/errors.ts'

/** The version that this program writes. Older ones are read, newer ones are refused. */
export const STATE_VERSION = 1

/** Where holdfastd keeps its state unless told otherwise. */
export const DEFAULT_STATE_DIRECTORY = '/var/lib/holdfast'

/** The socket of holdfastd unless told otherwise. */
export const DEFAULT_ENDPOINT = '/run/holdfast/holdfastd.sock'

/** `<pod>/pod.json`. `Config` is the CRI PodSandboxConfig as it came. */
export interface PodRecord<Config = unknown> {
  readonly version: number
  readonly id: string
  readonly name: string
  readonly namespace: string
  readonly uid: string
  readonly attempt: number
  /** Nanoseconds since 1970, as all times here: too many digits for a JSON number. */
  readonly createdAt: string
  /** `creating` was never told to a client; `stopped` has no processes and no namespaces. */
  readonly state: 'creating' | 'ready' | 'stopped'
  /** Why the pod is not ready, if it did not end by a call. */
  readonly reason: string
  /** The keeper's; 0 before it started. */
  readonly monitorPid: number
  /** Its start time as /proc/PID/stat tells it: with the pid it names one process for ever. */
  readonly monitorStartTime: string
  /** Paths of the pinned namespaces. `net` is absent in the host's network. */
  readonly namespaces: { readonly net?: string; readonly ipc?: string; readonly uts?: string }
  readonly logDirectory: string
  readonly runtimeHandler: string
  readonly config: Config
}

/** `<pod>/containers/ID.json`. `Config` is the CRI ContainerConfig as it came. */
export interface ContainerRecord<Config = unknown> {
  readonly version: number
  readonly id: string
  readonly podSandboxId: string
  readonly name: string
  readonly attempt: number
  readonly createdAt: string
  /** '0': not yet. */
  readonly startedAt: string
  readonly finishedAt: string
  /** `creating` was never told to a client. */
  readonly state: 'creating' | 'created' | 'running' | 'exited'
  readonly exitCode: number
  readonly reason: string
  readonly message: string
  readonly pid: number
  readonly terminal: boolean
  readonly stdin: boolean
  readonly stdinOnce: boolean
  /** Absolute; empty: no log. */
  readonly logPath: string
  /** The image as the client named it, and the id it stood for. */
  readonly image: string
  readonly imageId: string
  readonly cgroupsPath: string
  readonly user: { readonly uid: number; readonly gid: number; readonly additionalGids: readonly number[] }
  readonly config: Config
}

/** Paths of one container. */
export class ContainerPaths {
  readonly record: string
  /** The OCI bundle: config.json and rootfs. */
  readonly bundle: string
  readonly rootfs: string
  /** The monitor writes the exit code there (decimal, no newline). */
  readonly exitFile: string
  /** Exists if the container ran out of memory. */
  readonly oomFile: string

  constructor(pod: string, id: string) {
    this.record = join(pod, 'containers', `${id}.json`)
    this.bundle = join(pod, 'bundles', id)
    this.rootfs = join(this.bundle, 'rootfs')
    this.exitFile = join(pod, 'exits', id)
    this.oomFile = join(pod, 'ooms', id)
  }
}

/** Paths of one pod. Its directory is the run directory of its monitor. */
export class PodPaths {
  readonly directory: string
  readonly record: string
  readonly socket: string
  readonly containers: string
  readonly bundles: string
  readonly exits: string
  readonly ooms: string
  /** Base path of the pinned namespaces. */
  readonly namespaces: string
  /** Shared by the pod's containers as /dev/shm. */
  readonly shm: string
  /** resolv.conf, hosts, hostname. */
  readonly etc: string

  constructor(pods: string, id: string) {
    this.directory = join(pods, id)
    this.record = join(this.directory, 'pod.json')
    this.socket = join(this.directory, 'conmon.sock')
    this.containers = join(this.directory, 'containers')
    this.bundles = join(this.directory, 'bundles')
    this.exits = join(this.directory, 'exits')
    this.ooms = join(this.directory, 'ooms')
    this.namespaces = join(this.directory, 'ns')
    this.shm = join(this.directory, 'shm')
    this.etc = join(this.directory, 'etc')
  }

  container(id: string): ContainerPaths {
    return new ContainerPaths(this.directory, id)
  }
}

/** Paths below the state directory. */
export class StatePaths {
  readonly root: string
  readonly pods: string
  readonly images: string
  /** `--root` of the OCI runtime, for the daemon's calls and for every monitor's. */
  readonly runtimeRoot: string
  /** Locked by the one daemon that owns this directory. */
  readonly lock: string

  constructor(root: string) {
    this.root = root
    this.pods = join(root, 'pods')
    this.images = join(root, 'images')
    this.runtimeRoot = join(root, 'runtime')
    this.lock = join(root, 'holdfastd.lock')
  }

  pod(id: string): PodPaths {
    return new PodPaths(this.pods, id)
  }
}

/** Writes a record so that a reader finds the old one or the new one, also after a crash of the machine. */
export async function writeRecord(path: string, record: PodRecord | ContainerRecord): Promise<void> {
  await mkdir(dirname(path), { recursive: true, mode: 0o700 })
  const temporary = `${path}.new`
  const file = await open(temporary, 'w', 0o600)
  try {
    await file.writeFile(`${JSON.stringify(record, undefined, 2)}\n`)
    // Else the rename can reach the disk before the contents.
    await file.datasync()
  } finally {
    await file.close()
  }
  await rename(temporary, path)
}

/** A record as found: readable, from a newer program, unreadable, or not there. */
export type Found<R> =
  | { readonly kind: 'record'; readonly record: R }
  | { readonly kind: 'newer'; readonly version: number }
  | { readonly kind: 'bad'; readonly reason: string }
  | { readonly kind: 'absent' }

/** Reads `pod.json`. */
export async function readPodRecord(path: string): Promise<Found<PodRecord>> {
  return await readRecord(path, podFields)
}

/** Reads `containers/ID.json`. */
export async function readContainerRecord(path: string): Promise<Found<ContainerRecord>> {
  return await readRecord(path, containerFields)
}

/** The ids of all pods of the state directory, whether their records are readable or not. */
export async function listPodIds(paths: StatePaths): Promise<string[]> {
  return (await readDirectory(paths.pods)).filter((entry) => entry.isDirectory()).map((entry) => entry.name)
}

/** The ids of a pod's containers, whether their records are readable or not. */
export async function listContainerIds(pod: PodPaths): Promise<string[]> {
  return (await readDirectory(pod.containers))
    .filter((entry) => entry.isFile() && entry.name.endsWith('.json'))
    .map((entry) => entry.name.slice(0, -'.json'.length))
}

/** Removes a directory with everything in it; not there is fine. */
export async function removeTree(path: string): Promise<void> {
  await rm(path, { recursive: true, force: true, maxRetries: 3, retryDelay: 20 })
}

type FieldType = 'string' | 'number' | 'boolean' | 'object'

const podFields: Record<string, FieldType> = {
  id: 'string',
  name: 'string',
  namespace: 'string',
  createdAt: 'string',
  state: 'string',
  monitorPid: 'number',
  monitorStartTime: 'string',
  namespaces: 'object',
  logDirectory: 'string',
  config: 'object',
}

const containerFields: Record<string, FieldType> = {
  id: 'string',
  podSandboxId: 'string',
  name: 'string',
  createdAt: 'string',
  startedAt: 'string',
  finishedAt: 'string',
  state: 'string',
  exitCode: 'number',
  pid: 'number',
  terminal: 'boolean',
  logPath: 'string',
  image: 'string',
  user: 'object',
  config: 'object',
}

async function readRecord<R>(path: string, fields: Record<string, FieldType>): Promise<Found<R>> {
  let text: string
  try {
    text = await readFile(path, 'utf8')
  } catch (error) {
    if (isErrno(error, 'ENOENT', 'ENOTDIR')) return { kind: 'absent' }
    return { kind: 'bad', reason: messageOf(error) }
  }
  let value: unknown
  try {
    value = JSON.parse(text)
  } catch (error) {
    return { kind: 'bad', reason: messageOf(error) }
  }
  if (typeof value !== 'object' || value === null) return { kind: 'bad', reason: 'not a JSON object' }
  const record = value as Record<string, unknown>
  const version = record['version']
  if (typeof version !== 'number') return { kind: 'bad', reason: 'no version' }
  if (version > STATE_VERSION) return { kind: 'newer', version }
  for (const [name, type] of Object.entries(fields)) {
    const field = record[name]
    if (typeof field !== type || field === null)
      return { kind: 'bad', reason: `${name} is not of type ${type}` }
  }
  return { kind: 'record', record: record as R }
}

async function readDirectory(path: string): Promise<Dirent[]> {
  try {
    return await readdir(path, { withFileTypes: true })
  } catch (error) {
    if (isErrno(error, 'ENOENT')) return []
    throw MonitorError.within(`read ${path}`, error)
  }
}
