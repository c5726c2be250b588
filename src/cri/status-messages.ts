// Pods and containers as the CRI shows them, and its filters.

import { MonitorError } from '../base/errors.ts'
import type { Container } from './container.ts'
import type {
  Container as ContainerMessage,
  ContainerFilter,
  ContainerState,
  ContainerStatus,
  PodSandbox,
  PodSandboxFilter,
  PodSandboxStatus,
} from './messages.ts'
import type { Pod } from './pod.ts'
import type { Member } from './registry.ts'

const containerStates: Record<Container['record']['state'], ContainerState> = {
  creating: 'CONTAINER_UNKNOWN',
  created: 'CONTAINER_CREATED',
  running: 'CONTAINER_RUNNING',
  exited: 'CONTAINER_EXITED',
}

export function podMessage(pod: Pod): PodSandbox {
  const { record } = pod
  return {
    id: record.id,
    metadata: { name: record.name, uid: record.uid, namespace: record.namespace, attempt: record.attempt },
    state: pod.isReady ? 'SANDBOX_READY' : 'SANDBOX_NOTREADY',
    createdAt: record.createdAt,
    labels: record.config.labels,
    annotations: record.config.annotations,
    runtimeHandler: record.runtimeHandler,
  }
}

/** The pod's network has a loopback only, so there is no address that anybody else could use: ip is empty. */
export function podStatus(pod: Pod): PodSandboxStatus {
  const options = pod.record.config.linux?.securityContext?.namespaceOptions ?? null
  return { ...podMessage(pod), network: { ip: '' }, linux: { namespaces: { options } } }
}

export function containerMessage({ pod, container }: Member): ContainerMessage {
  const { record } = container
  return {
    id: record.id,
    podSandboxId: pod.id,
    metadata: { name: record.name, attempt: record.attempt },
    image: imageOf(container),
    imageRef: record.imageId,
    imageId: record.imageId,
    state: containerStates[record.state],
    createdAt: record.createdAt,
    labels: record.config.labels,
    annotations: record.config.annotations,
  }
}

export function containerStatus(member: Member): ContainerStatus {
  const { record } = member.container
  const { podSandboxId: _, ...message } = containerMessage(member)
  const resources = record.config.linux?.resources
  return {
    ...message,
    startedAt: record.startedAt,
    finishedAt: record.finishedAt,
    exitCode: record.exitCode,
    reason: record.reason,
    message: record.message,
    mounts: record.config.mounts,
    logPath: record.logPath,
    resources: resources ? { linux: resources } : null,
    user: {
      linux: {
        uid: String(record.user.uid),
        gid: String(record.user.gid),
        supplementalGroups: record.user.additionalGids.map(String),
      },
    },
    stopSignal: record.config.stopSignal,
  }
}

function imageOf({ record }: Container): ContainerMessage['image'] {
  return {
    image: record.config.image?.image ?? record.image,
    userSpecifiedImage: record.image,
    annotations: record.config.image?.annotations ?? {},
  }
}

/** Ids may be given by their beginning. */
export function matchesPod(pod: Pod, filter: PodSandboxFilter | null): boolean {
  if (filter === null) return true
  const state = pod.isReady ? 'SANDBOX_READY' : 'SANDBOX_NOTREADY'
  return (
    pod.id.startsWith(filter.id) &&
    (filter.state === null || filter.state.state === state) &&
    hasLabels(pod.record.config.labels, filter.labelSelector)
  )
}

/** As matchesPod. */
export function matchesContainer({ pod, container }: Member, filter: ContainerFilter | null): boolean {
  if (filter === null) return true
  return (
    container.id.startsWith(filter.id) &&
    pod.id.startsWith(filter.podSandboxId) &&
    (filter.state === null || filter.state.state === containerStates[container.record.state]) &&
    hasLabels(container.record.config.labels, filter.labelSelector)
  )
}

function hasLabels(
  labels: Readonly<Record<string, string>>,
  wanted: Readonly<Record<string, string>>,
): boolean {
  return Object.entries(wanted).every(([name, value]) => labels[name] === value)
}

/** The verbose part of a status: one JSON text, as other runtimes give it. */
export function verboseInfo(info: object): Record<string, string> {
  return { info: JSON.stringify(info) }
}

/** A message that a request must carry. */
export function required<T>(what: string, value: T | null | undefined): T {
  if (value === null || value === undefined) {
    throw new MonitorError('invalid-argument', `missing required ${what}`)
  }
  return value
}
