// Tells the world that a container has exited, in the order CRI-O relies on: OOM files, exit files, cleanup command.

import { spawn } from 'node:child_process'
import { renameSync, rmSync, writeFileSync } from 'node:fs'
import { basename, dirname, join } from 'node:path'
import { messageOf } from '../base/errors.ts'
import type { Diagnostics } from '../base/diagnostics.ts'
import type { ContainerRecord } from './record.ts'

/** Writes the files; a path that cannot be written is one diagnostic and does not stop the others. */
export function writeExitFiles(record: ContainerRecord, oomKilled: boolean, diagnostics: Diagnostics): void {
  if (oomKilled) for (const path of record.oomExitPaths) writeAtomically(path, '', diagnostics)
  for (const path of record.exitPaths) writeAtomically(path, String(record.exitCode), diagnostics)
}

/** Starts the cleanup command and does not wait for it. The caller has recorded that it did. */
export function startCleanup(record: ContainerRecord, launcher: string, diagnostics: Diagnostics): void {
  const [command] = record.cleanupCommand
  if (command === undefined) return
  // run-oci gives it the launch's environment and limits, as for an OCI runtime.
  const args = ['run-oci', '--', ...record.cleanupCommand]
  const child = spawn(launcher, args, { stdio: 'ignore' })
  child.once('error', (error) =>
    diagnostics.warn(`run cleanup command of container ${record.id}: ${error.message}`),
  )
  child.once('exit', (code, signal) => {
    if (code !== 0) diagnostics.warn(`cleanup command of container ${record.id} ended with ${signal ?? code}`)
  })
}

function removeQuietly(path: string): void {
  try {
    rmSync(path, { force: true })
  } catch {
    // A path that cannot be written may be one that cannot be looked at either (ENOTDIR, ENAMETOOLONG).
  }
}

/** CRI-O watches for the file and reads it at once: it must never be seen empty. */
function writeAtomically(path: string, text: string, diagnostics: Diagnostics): void {
  const temporary = join(dirname(path), `.${basename(path)}.holdfast`)
  try {
    writeFileSync(temporary, text, { mode: 0o644 })
    renameSync(temporary, path)
  } catch (error) {
    diagnostics.error(`write exit file ${path}: ${messageOf(error)}`)
    removeQuietly(temporary)
  }
}
