// The containers of this monitor by id. Execs are no part of it: attach, resize and reopen always mean the container.

import { MonitorError } from '../base/errors.ts'
import type { Container } from './container.ts'

/** Exited containers that are remembered for better errors. */
const maxExited = 64

export class ContainerStore {
  readonly #containers = new Map<string, Container>()

  add(container: Container): void {
    this.#containers.delete(container.id)
    this.#containers.set(container.id, container)
    const exited = [...this.#containers.values()].filter((other) => other.state === 'exited')
    for (const old of exited.slice(0, Math.max(0, exited.length - maxExited))) this.#containers.delete(old.id)
  }

  /** Forgets a container that came to nothing. */
  remove(container: Container): void {
    if (this.#containers.get(container.id) === container) this.#containers.delete(container.id)
  }

  /** Throws `already-exists` unless the id is free; that of an exited container is. */
  checkFree(id: string): void {
    const container = this.#containers.get(id)
    if (container !== undefined && container.state !== 'exited') {
      throw new MonitorError(
        'already-exists',
        `create container ${id}: it exists already, ${container.state}`,
      )
    }
  }

  /** A running container; `not-found` or `failed-precondition`, naming what was to be done, otherwise. */
  running(id: string, what: string): Container {
    const container = this.#containers.get(id)
    if (container === undefined)
      throw new MonitorError('not-found', `${what}: container ${JSON.stringify(id)} not found`)
    if (container.state !== 'running') {
      throw new MonitorError(
        'failed-precondition',
        `${what}: container ${id} is not running (${container.state})`,
      )
    }
    return container
  }

  all(): readonly Container[] {
    return [...this.#containers.values()]
  }
}
