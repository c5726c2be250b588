// What a command gets besides its arguments, and the few things all commands ask it.

import { messageOf, MonitorError } from '../base/errors.ts'
import { findContainer, findPod, type FoundContainer } from '../client/pod-lookup.ts'
import { MonitorClient } from '../client/monitor-client.ts'
import {
  DEFAULT_ENDPOINT,
  DEFAULT_STATE_DIRECTORY,
  StatePaths,
  type PodPaths,
  type PodRecord,
} from '../client/pod-state.ts'
import type { ParsedCommand } from './command-line.ts'
import type { LocalStdio } from './interactive.ts'

/** The world around a command. */
export interface CommandContext extends LocalStdio {
  readonly env: NodeJS.ProcessEnv
  /** A line on stderr. */
  readonly say: (text: string) => void
  /** Where holdfast-monitor and holdfastd lie. */
  readonly programs: string
}

/** Options that say where things are. */
export const stateOption = {
  state: {
    value: 'DIR',
    help: `where holdfastd keeps its pods (HOLDFAST_STATE, ${DEFAULT_STATE_DIRECTORY})`,
  },
}
export const endpointOption = {
  endpoint: { value: 'PATH', help: `socket of holdfastd (HOLDFAST_ENDPOINT, ${DEFAULT_ENDPOINT})` },
}

/** The state directory that the command works on. */
export function statePaths(parsed: ParsedCommand, env: NodeJS.ProcessEnv): StatePaths {
  return new StatePaths(parsed.values.get('state') ?? env['HOLDFAST_STATE'] ?? DEFAULT_STATE_DIRECTORY)
}

/** The socket of the daemon. */
export function endpointOf(parsed: ParsedCommand, env: NodeJS.ProcessEnv): string {
  return parsed.values.get('endpoint') ?? env['HOLDFAST_ENDPOINT'] ?? DEFAULT_ENDPOINT
}

/** The container that a person means. */
export async function theContainer(paths: StatePaths, idOrName: string): Promise<FoundContainer> {
  try {
    return await findContainer(paths, idOrName)
  } catch (error) {
    throw inStateDirectory(paths, error)
  }
}

/** The pod that a person means. */
export async function thePod(
  paths: StatePaths,
  idOrName: string,
): Promise<{ pod: PodRecord; paths: PodPaths }> {
  try {
    return await findPod(paths, idOrName)
  } catch (error) {
    throw inStateDirectory(paths, error)
  }
}

/** Calls the monitor of a pod, and closes the connection whatever happens. */
export async function withMonitor<T>(pod: PodPaths, use: (monitor: MonitorClient) => Promise<T>): Promise<T> {
  let monitor
  try {
    monitor = await MonitorClient.connect(pod.socket)
  } catch (error) {
    const text = `the monitor of this pod does not answer at ${pod.socket} (${messageOf(error)}); holdfastd starts a new one when it starts`
    throw new MonitorError('unavailable', text, { cause: error })
  }
  try {
    return await use(monitor)
  } finally {
    monitor.close()
  }
}

/** A short id, as people read it. */
export function shortId(id: string): string {
  return id.slice(0, 12)
}

/** Who looks in the wrong directory is to see it. */
function inStateDirectory(paths: StatePaths, error: unknown): unknown {
  if (!(error instanceof MonitorError) || error.code !== 'not-found') return error
  const text = `${error.message} in ${paths.root} (--state or HOLDFAST_STATE names another state directory)`
  return new MonitorError('not-found', text, { cause: error })
}
