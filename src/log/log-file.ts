// CRI log files as the keeper wants them: opened for appending, never wiped, with the directory for its size limit.

import { closeSync, constants, fstatSync, ftruncateSync, openSync } from 'node:fs'
import { basename, dirname } from 'node:path'
import { MonitorError } from '../base/errors.ts'

export interface LogFile {
  readonly fd: number
  readonly directory: number
  readonly name: string
}

const appendFlags = constants.O_WRONLY | constants.O_CREAT | constants.O_APPEND

/** Opens path with create and append; an existing log is continued (conmon.md §4.4). The descriptors are the caller's. */
export function openLogFile(path: string): LogFile {
  const fd = openAppending(path)
  try {
    return {
      fd,
      directory: openSync(dirname(path), constants.O_RDONLY | constants.O_DIRECTORY),
      name: basename(path),
    }
  } catch (error) {
    closeSync(fd)
    throw MonitorError.within(`open log directory ${dirname(path)}`, error)
  }
}

export function closeLogFile(log: LogFile): void {
  closeSync(log.fd)
  closeSync(log.directory)
}

/**
 * Opens path again for ReopenLog. When the path still names the file that is open (`inode`), nobody renamed it away, and
 * it is truncated unless `keep`: conmon-rs's callers see an empty log after ReopenLog (conmon.md §4.4).
 */
export function reopenLogFile(path: string, inode: number, keep: boolean): number {
  const fd = openAppending(path)
  try {
    if (!keep && fstatSync(fd).ino === inode) ftruncateSync(fd)
    return fd
  } catch (error) {
    closeSync(fd)
    throw MonitorError.within(`reopen log file path ${path}`, error)
  }
}

/** True when path names the file with this inode. */
export function logPathNames(path: string, inode: number): boolean {
  try {
    const fd = openSync(path, constants.O_RDONLY)
    try {
      return fstatSync(fd).ino === inode
    } finally {
      closeSync(fd)
    }
  } catch {
    return false
  }
}

function openAppending(path: string): number {
  let fd: number
  try {
    fd = openSync(path, appendFlags, 0o600)
  } catch (error) {
    throw MonitorError.within(`open log file path ${path}`, error)
  }
  if (fstatSync(fd).isFile()) return fd
  closeSync(fd)
  throw new MonitorError('invalid-argument', `open log file path ${path}: not a regular file`)
}
