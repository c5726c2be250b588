// One container as the daemon holds it: its record, on disk and in memory, and who waits for its exit.

import { MonitorError } from '../base/errors.ts'
import { deferred } from '../base/lifetime.ts'
import { writeRecord } from '../client/pod-state.ts'
import type { ContainerPaths, ContainerRecord } from '../client/pod-state.ts'
import type { ContainerConfig } from './messages.ts'
import { now } from './time.ts'

export type StoredContainerConfig = Omit<ContainerConfig, 'envs'>

/** How a container ended, where the code alone does not say it. */
export interface ExitNote {
  readonly reason: string
  readonly message: string
}

export class Container {
  readonly paths: ContainerPaths
  #record: ContainerRecord<StoredContainerConfig>
  #writes: Promise<void> = Promise.resolve()
  readonly #exited = deferred<void>()
  /** Its one start is under way. */
  starting = false
  /** The one removal under way. */
  removal: Promise<void> | undefined

  constructor(record: ContainerRecord<StoredContainerConfig>, paths: ContainerPaths) {
    this.#record = record
    this.paths = paths
    if (record.state === 'exited') this.#exited.resolve()
  }

  get id(): string {
    return this.#record.id
  }

  get record(): ContainerRecord<StoredContainerConfig> {
    return this.#record
  }

  /** Resolves when the exit is known. */
  get exited(): Promise<void> {
    return this.#exited.promise
  }

  get isOver(): boolean {
    return this.#record.state === 'exited'
  }

  /** Changes the record; resolves when it is on disk. Writes never overtake each other. */
  async update(changes: Partial<ContainerRecord<StoredContainerConfig>>): Promise<void> {
    this.#record = { ...this.#record, ...changes }
    await this.save()
  }

  async save(): Promise<void> {
    const write = this.#writes.then(() => writeRecord(this.paths.record, this.#record))
    // The next write goes on after a failed one; whoever asked for this one hears of it.
    this.#writes = write.catch(() => undefined)
    await write
  }

  /** The process is over. The first report counts. */
  async markExited(exitCode: number, finishedAt: string, note: ExitNote): Promise<void> {
    if (this.isOver) return
    const { startedAt } = this.#record
    const saved = this.update({
      state: 'exited',
      exitCode,
      finishedAt,
      // It did run, or nobody would have reported this.
      startedAt: startedAt === '0' ? finishedAt : startedAt,
      ...note,
    })
    this.#exited.resolve()
    await saved
  }

  /** After a successful start. The exit may have been reported before. */
  async markStarted(startedAt: string): Promise<void> {
    await this.update(this.isOver ? { startedAt } : { state: 'running', startedAt })
  }

  /** For calls that need a process to talk to. */
  requireRunning(what: string): void {
    const { state } = this.#record
    if (state === 'running' && this.removal === undefined) return
    const shown = this.removal === undefined ? state : 'being removed'
    throw new MonitorError(
      'failed-precondition',
      `${what} container ${this.id}: it is not running but ${shown}`,
    )
  }
}

/** The record of a container that does not exist yet. */
export function newContainerRecord(
  known: Pick<
    ContainerRecord<StoredContainerConfig>,
    'id' | 'podSandboxId' | 'name' | 'attempt' | 'config' | 'logPath' | 'image' | 'imageId' | 'cgroupsPath'
  >,
): ContainerRecord<StoredContainerConfig> {
  return {
    version: 1,
    ...known,
    createdAt: now(),
    startedAt: '0',
    finishedAt: '0',
    state: 'creating',
    exitCode: 0,
    reason: '',
    message: '',
    pid: 0,
    terminal: known.config.tty,
    stdin: known.config.stdin,
    stdinOnce: known.config.stdinOnce,
    user: { uid: 0, gid: 0, additionalGids: [] },
  }
}
