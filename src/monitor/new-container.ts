// The record of a container that is about to be created, from the request.

import { existsSync, readFileSync } from 'node:fs'
import { join } from 'node:path'
import { MonitorError } from '../base/errors.ts'
import { pidFiles } from '../container/container.ts'
import type { ContainerRecord } from '../container/record.ts'
import type { CreateContainerRequest } from './requests.ts'

/** Throws for what is not supported yet. */
export function newRecord(id: string, request: CreateContainerRequest, directory: string): ContainerRecord {
  const [driver, ...more] = request.logDrivers
  if (more.length > 0 || (driver !== undefined && driver.type !== 'cri')) {
    throw new MonitorError('unimplemented', `create container ${id}: one CRI log is what is supported yet`)
  }
  return {
    state: 'creating',
    id,
    pid: 0,
    terminal: request.terminal,
    stdin: request.stdin,
    stdinOnce: hasStdinOnce(request.bundlePath),
    stdinTaken: false,
    systemdCgroup: request.cgroupManager === 'systemd',
    ...pidFiles(request.bundlePath, directory, id),
    exitPaths: request.exitPaths,
    oomExitPaths: request.oomExitPaths,
    cleanupCommand: request.cleanupCommand,
    logPath: driver?.path ?? '',
    logLimit: driver?.maxSize ?? 0,
    relogged: false,
    memoryCgroup: '',
    exitCode: 0,
  }
}

/** CRI-O says it in an annotation of the bundle (streaming.md §8 rule 46). */
function hasStdinOnce(bundlePath: string): boolean {
  const path = join(bundlePath, 'config.json')
  if (!existsSync(path)) return false
  try {
    const config = JSON.parse(readFileSync(path, 'utf8')) as { annotations?: Record<string, string> }
    return config.annotations?.['io.kubernetes.cri-o.StdinOnce'] === 'true'
  } catch {
    // The OCI runtime says what is wrong with it.
    return false
  }
}
