// All pods and containers of the daemon, and finding one by id or by the beginning of its id.

import { MonitorError } from '../base/errors.ts'
import { oneBeginningWith } from '../client/pod-lookup.ts'
import type { Container } from './container.ts'
import type { Pod } from './pod.ts'

/** A container and its pod. */
export interface Member {
  readonly pod: Pod
  readonly container: Container
}

export class Registry {
  readonly #pods = new Map<string, Pod>()

  /** Those that clients know. */
  pods(): Pod[] {
    return [...this.#pods.values()].filter(({ record }) => record.state !== 'creating')
  }

  /** Also those that are not finished. */
  everyPod(): Pod[] {
    return [...this.#pods.values()]
  }

  members(): Member[] {
    return this.pods().flatMap((pod) =>
      [...pod.containers.values()]
        .filter(({ record }) => record.state !== 'creating')
        .map((container) => ({ pod, container })),
    )
  }

  add(pod: Pod): void {
    this.#pods.set(pod.id, pod)
  }

  delete(id: string): void {
    this.#pods.delete(id)
  }

  pod(id: string): Pod {
    if (id === '') throw new MonitorError('invalid-argument', 'missing required pod_sandbox_id')
    return oneBeginningWith('pod', id, this.pods(), (pod) => pod.id)
  }

  member(id: string): Member {
    if (id === '') throw new MonitorError('invalid-argument', 'missing required container_id')
    return oneBeginningWith('container', id, this.members(), ({ container }) => container.id)
  }
}
