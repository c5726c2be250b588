// Whether a container has ended, and how: from the exit file that its monitor writes, so that no daemon is needed.

import { readFile, stat } from 'node:fs/promises'
import { setTimeout as sleep } from 'node:timers/promises'
import type { FoundContainer } from '../client/pod-lookup.ts'
import { readContainerRecord } from '../client/pod-state.ts'

/** True when the container's exit has been reported: its log is whole by then. */
export async function hasEnded({ container, podPaths }: FoundContainer): Promise<boolean> {
  const paths = podPaths.container(container.id)
  if ((await stat(paths.exitFile).catch(() => undefined)) !== undefined) return true
  const record = await readContainerRecord(paths.record)
  // Without a record the container was removed.
  return record.kind !== 'record' || record.record.state === 'exited'
}

/** The container's exit code; undefined when it has not been reported within `milliseconds`. */
export async function exitCodeWithin(
  found: FoundContainer,
  milliseconds: number,
): Promise<number | undefined> {
  const paths = found.podPaths.container(found.container.id)
  for (const deadline = Date.now() + milliseconds; Date.now() < deadline; await sleep(20)) {
    if (!(await hasEnded(found))) continue
    const text = await readFile(paths.exitFile, 'utf8').catch(() => '')
    if (/^\d{1,3}$/.test(text.trim())) return Number(text)
    // What no monitor saw end has no exit file; the daemon has written down what it knows.
    const known = await readContainerRecord(paths.record)
    if (known.kind === 'record' && known.record.state === 'exited') return known.record.exitCode & 0xff
    if (known.kind === 'absent') return undefined
  }
  return undefined
}
