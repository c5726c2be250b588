// One pod as the daemon holds it: its record, its containers, its monitor.

import { MonitorError } from '../base/errors.ts'
import { writeRecord } from '../client/pod-state.ts'
import type { PodPaths, PodRecord } from '../client/pod-state.ts'
import type { Container } from './container.ts'
import type { PodSandboxConfig } from './messages.ts'
import type { PodMonitor } from './pod-monitor.ts'

export class Pod {
  readonly paths: PodPaths
  readonly monitor: PodMonitor
  /** Those that clients may see, and those being created. */
  readonly containers = new Map<string, Container>()
  #record: PodRecord<PodSandboxConfig>
  #writes: Promise<void> = Promise.resolve()
  /** The one stop, removal or recovery under way. */
  stopping: Promise<void> | undefined
  removal: Promise<void> | undefined
  recovery: Promise<void> | undefined

  constructor(record: PodRecord<PodSandboxConfig>, paths: PodPaths, monitor: PodMonitor) {
    this.#record = record
    this.paths = paths
    this.monitor = monitor
  }

  get id(): string {
    return this.#record.id
  }

  get record(): PodRecord<PodSandboxConfig> {
    return this.#record
  }

  get isReady(): boolean {
    return this.#record.state === 'ready'
  }

  /** In the host's network there is no namespace to join or to dial in. */
  get hostNetwork(): boolean {
    return this.#record.namespaces.net === undefined
  }

  /** Changes the record; resolves when it is on disk. Writes never overtake each other. */
  async update(changes: Partial<PodRecord<PodSandboxConfig>>): Promise<void> {
    this.#record = { ...this.#record, ...changes }
    await this.save()
  }

  async save(): Promise<void> {
    const write = this.#writes.then(() => writeRecord(this.paths.record, this.#record))
    this.#writes = write.catch(() => undefined)
    await write
  }

  /** Notes which process the monitor is. */
  async saveMonitor(): Promise<void> {
    const { pid, startTime } = this.monitor.process
    await this.update({ monitorPid: pid, monitorStartTime: startTime })
  }

  requireReady(what: string): void {
    if (this.isReady && this.stopping === undefined) return
    const reason = this.#record.reason === '' ? '' : ` (${this.#record.reason})`
    throw new MonitorError('failed-precondition', `${what} pod ${this.id}: it is not ready${reason}`)
  }
}
