// What the keeper stores for us unread: one JSON record per entry, each with its format's number. A newer format, or one
// that cannot be read, costs that entity only.

import { MonitorError } from '../base/errors.ts'

const format = 1

/** `container/ID`: all that a successor needs to go on. */
export interface ContainerRecord {
  readonly state: 'creating' | 'running' | 'exiting' | 'exited'
  readonly id: string
  /** 0 while creating. */
  readonly pid: number
  readonly terminal: boolean
  readonly stdin: boolean
  readonly stdinOnce: boolean
  /** A client whose end is the end of stdin has been attached. */
  readonly stdinTaken: boolean
  readonly systemdCgroup: boolean
  readonly pidFile: string
  readonly runtimePidFile: string
  readonly exitPaths: readonly string[]
  readonly oomExitPaths: readonly string[]
  readonly cleanupCommand: readonly string[]
  /** Empty: no log. */
  readonly logPath: string
  readonly logLimit: number
  /** Relogged by a successor: the next ReopenLog must not truncate (conmon.md §4.4). */
  readonly relogged: boolean
  /** The directory whose counter tells an OOM kill; empty: none was found. */
  readonly memoryCgroup: string
  /** Of the first process. Set from `exiting` on, when the cleanup command may have been started: never again then. */
  readonly exitCode: number
}

/** `exec/N`. */
export interface ExecRecord {
  readonly kind: 'sync' | 'stream'
  readonly containerId: string
  /** 0: not known yet. */
  readonly pid: number
  readonly terminal: boolean
  readonly pidFile: string
  readonly runtimePidFile: string
}

/** Any of our records as bytes. */
export function encodeRecord(record: object): Buffer {
  return Buffer.from(JSON.stringify({ v: format, ...record }))
}

/** The record of an entry. Throws `internal`, naming the entry, when it is of a newer format or no record at all. */
// oxlint-disable-next-line typescript/no-unnecessary-type-parameters -- the format number vouches for the type
export function decodeRecord<T extends object>(name: string, bytes: Buffer): T {
  let value: unknown
  try {
    value = JSON.parse(bytes.toString())
  } catch (error) {
    throw MonitorError.within(`read the record of ${name}`, error)
  }
  if (typeof value !== 'object' || value === null || !('v' in value) || value.v !== format) {
    throw new MonitorError('internal', `read the record of ${name}: unknown format`)
  }
  return value as unknown as T
}
