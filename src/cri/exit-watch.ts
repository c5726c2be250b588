// Exits of containers, as the monitors write them: one file per container with the code in it. Told by the kernel when
// one appears, and looked for at start and now and then, because a watch can be lost and a daemon can have been dead.

import { existsSync, watch } from 'node:fs'
import type { FSWatcher } from 'node:fs'
import { readFile, stat } from 'node:fs/promises'
import type { Diagnostics } from '../base/diagnostics.ts'
import { isErrno, messageOf } from '../base/errors.ts'
import type { Container, ExitNote } from './container.ts'
import type { Pod } from './pod.ts'
import { fromMilliseconds } from './time.ts'

/** What SIGKILL leaves, the kernel's for want of memory included. */
const KILLED = 137

export class ExitWatch {
  readonly #diagnostics: Diagnostics
  readonly #watchers = new Map<string, FSWatcher>()

  constructor(diagnostics: Diagnostics) {
    this.#diagnostics = diagnostics
  }

  /** From now on exits of this pod are noticed at once. Its directory of exits must exist. */
  add(pod: Pod): void {
    if (this.#watchers.has(pod.id)) return
    try {
      const watcher = watch(pod.paths.exits, (_, name) => {
        const container = name === null ? undefined : pod.containers.get(name)
        if (container !== undefined)
          this.#look(container).catch((error: unknown) => this.#failed(container, error))
      })
      watcher.on('error', (error) => {
        this.#diagnostics.warn(`watch exits of pod ${pod.id}: ${error.message}; they are looked for instead`)
        this.remove(pod.id)
      })
      this.#watchers.set(pod.id, watcher)
    } catch (error) {
      this.#diagnostics.warn(`watch exits of pod ${pod.id}: ${messageOf(error)}; they are looked for instead`)
    }
  }

  remove(podId: string): void {
    this.#watchers.get(podId)?.close()
    this.#watchers.delete(podId)
  }

  close(): void {
    for (const id of this.#watchers.keys()) this.remove(id)
  }

  /** Looks at every container of the pod that is not known to be over. */
  async scan(pod: Pod): Promise<void> {
    for (const container of pod.containers.values()) {
      if (container.isOver || container.record.state === 'creating') continue
      await this.#look(container).catch((error: unknown) => this.#failed(container, error))
    }
  }

  async #look(container: Container): Promise<void> {
    const exit = await readExit(container.paths.exitFile)
    if (exit === undefined) return
    await container.markExited(exit.code, exit.at, noteOf(exit.code, existsSync(container.paths.oomFile)))
  }

  #failed(container: Container, error: unknown): void {
    this.#diagnostics.error(`read exit of container ${container.id}: ${messageOf(error)}`)
  }
}

async function readExit(path: string): Promise<{ code: number; at: string } | undefined> {
  try {
    const text = await readFile(path, 'utf8')
    // Written and renamed by our monitor, but conmon's own is not: empty is not yet there.
    if (!/^\d+$/.test(text)) return undefined
    return { code: Number(text), at: fromMilliseconds((await stat(path)).mtimeMs) }
  } catch (error) {
    if (isErrno(error, 'ENOENT')) return undefined
    throw error
  }
}

/** A container whose first process outlived the kill of another one is no victim of it (cases B59). */
function noteOf(code: number, outOfMemory: boolean): ExitNote {
  if (code === 0) return { reason: 'Completed', message: '' }
  return { reason: outOfMemory && code === KILLED ? 'OOMKilled' : 'Error', message: '' }
}
