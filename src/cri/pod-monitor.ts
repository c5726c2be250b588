// The monitor of one pod as the daemon sees it: started, found again, called, ended.

import { MONITOR_STOP_TIMEOUT_MS } from '../base/limits.ts'
import { MonitorClient } from '../client/monitor-client.ts'
import { findMonitor, startMonitor } from '../client/monitor-process.ts'
import type { PodPaths } from '../client/pod-state.ts'
import { identify, isAlive, terminate } from './process-identity.ts'
import type { ProcessIdentity } from './process-identity.ts'

/** How monitors are started. */
export interface MonitorOptions {
  readonly monitorPath: string
  readonly runtimePath: string
  readonly runtimeRoot: string
  readonly logLevel: string
}

const nobody: ProcessIdentity = { pid: 0, startTime: '' }

export class PodMonitor {
  readonly #paths: PodPaths
  readonly #options: MonitorOptions
  #process: ProcessIdentity
  #client: Promise<MonitorClient> | undefined

  constructor(paths: PodPaths, options: MonitorOptions, known: ProcessIdentity = nobody) {
    this.#paths = paths
    this.#options = options
    this.#process = known
  }

  /** The keeper. */
  get process(): ProcessIdentity {
    return this.#process
  }

  get alive(): boolean {
    return isAlive(this.#process)
  }

  async start(): Promise<void> {
    this.disconnect()
    const { pid } = await startMonitor({ ...this.#options, runtimeDir: this.#paths.directory })
    this.#process = identify(pid) ?? nobody
  }

  /** Looks for a monitor that runs in the pod's directory and is not the one that was known. */
  async find(): Promise<boolean> {
    const found = await findMonitor(this.#paths.directory)
    const process = found === undefined ? undefined : identify(found.pid)
    if (process === undefined) return false
    this.disconnect()
    this.#process = process
    return true
  }

  /** A connection, made at the first call and kept. */
  async client(): Promise<MonitorClient> {
    this.#client ??= MonitorClient.connect(this.#paths.socket)
    try {
      return await this.#client
    } catch (error) {
      this.#client = undefined
      throw error
    }
  }

  /** Ends the monitor and with it every process of the pod; it reports the exits first. */
  async stop(): Promise<void> {
    this.disconnect()
    if (this.#process.pid > 0) await terminate(this.#process, MONITOR_STOP_TIMEOUT_MS)
    this.#process = nobody
  }

  /** Closes the connection only. */
  disconnect(): void {
    const client = this.#client
    this.#client = undefined
    client?.then(
      (connected) => connected.close(),
      // It never came to be; whoever asked for it knows.
      () => undefined,
    )
  }
}
