// Values of the schema ⇄ the monitor's own. The two layouts of conmon-rs are told apart below, in the codec.

import type { ExitStatus } from '../base/remote-stdio.ts'
import { exitCodeOf } from '../base/remote-stdio.ts'
import type { Init } from '../capnp/schema.ts'
import type {
  CreateContainerRequest as WireCreateContainerRequest,
  ExecSyncContainerRequest,
  ExecSyncContainerResponse,
  LogDriverType,
  TextTextMapEntry,
} from '../generated/conmon.ts'
import type { ContainerInfo as WireContainerInfo, Flag } from '../generated/holdfast.ts'
import type {
  ContainerInfo,
  CreateContainerRequest,
  ExecSyncRequest,
  ExecSyncResult,
  LogDriverRequest,
  VersionInfo,
} from '../monitor/requests.ts'

const logDriverTypes: Record<LogDriverType, LogDriverRequest['type']> = {
  containerRuntimeInterface: 'cri',
  json: 'json',
  journald: 'journald',
}

/** The longest time that a timer can measure: 24 days. */
const maxTimeoutMs = 2 ** 31 - 1
/** What conmon-rs answers for a command that ran out of time. */
const timedOutExitCode = -3

/** conmon-rs's clients want every text filled, the tree when they asked for it. */
export function versionResponse(info: VersionInfo, verbose: boolean): VersionInfo {
  const filled = (text: string): string => (text === '' ? 'none' : text)
  return {
    processId: info.processId,
    version: info.version,
    tag: filled(info.tag),
    commit: filled(info.commit),
    buildDate: filled(info.buildDate),
    target: filled(info.target),
    rustVersion: filled(info.rustVersion),
    cargoVersion: filled(info.cargoVersion),
    cargoTree: verbose ? filled(info.cargoTree) : '',
  }
}

export function createContainerRequest(wire: WireCreateContainerRequest): CreateContainerRequest {
  const { cleanupCmd, envVars, logDrivers, metadata: _, ...same } = wire
  return {
    ...same,
    cleanupCommand: cleanupCmd,
    env: entries(envVars),
    logDrivers: logDrivers.map(({ type, path, maxSize }) => ({
      type: logDriverTypes[type],
      path,
      maxSize: Number(maxSize),
    })),
  }
}

export function execSyncRequest(wire: ExecSyncContainerRequest): ExecSyncRequest {
  const { id, command, terminal, cgroupManager, envVars, timeoutSec } = wire
  const timeoutMs = Math.min(Number(timeoutSec) * 1000, maxTimeoutMs)
  return { id, command, terminal, cgroupManager, timeoutMs, env: entries(envVars) }
}

export function execSyncResponse(result: ExecSyncResult): Init<ExecSyncContainerResponse> {
  return { ...exitFields(result.status), stdout: result.stdout, stderr: result.stderr }
}

/** Undefined: the caller does not know. */
export function flagValue(flag: Flag): boolean | undefined {
  return flag === 'unknown' ? undefined : flag === 'yes'
}

export function containerInfo(info: ContainerInfo): Init<WireContainerInfo> {
  return { ...info, exitCode: info.exitCode ?? 0 }
}

function exitFields(status: ExitStatus): { exitCode: number; timedOut: boolean } {
  if (status.timedOut === true) return { exitCode: timedOutExitCode, timedOut: true }
  return { exitCode: exitCodeOf(status), timedOut: false }
}

function entries(map: readonly TextTextMapEntry[]): (readonly [string, string])[] {
  return map.map(({ key, value }) => [key, value] as const)
}
