// runtime.v1.RuntimeService: which call does what. Lifecycles and streams are elsewhere.

import { readFile } from 'node:fs/promises'
import { join } from 'node:path'
import { MonitorError } from '../base/errors.ts'
import type { ContainerLifecycle } from './container-lifecycle.ts'
import type { Handlers } from './grpc-server.ts'
import type {
  ContainerConfig,
  ContainerFilter,
  PodSandboxConfig,
  PodSandboxFilter,
  StreamFlags,
} from './messages.ts'
import type { PodLifecycle } from './pod-lifecycle.ts'
import type { Member, Registry } from './registry.ts'
import {
  containerMessage,
  containerStatus,
  matchesContainer,
  matchesPod,
  podMessage,
  podStatus,
  required,
  verboseInfo,
} from './status-messages.ts'
import type { StreamCalls } from './stream-calls.ts'
import { now } from './time.ts'

export interface RuntimeParts {
  readonly version: string
  readonly runtimeName: string
  readonly registry: Registry
  readonly pods: PodLifecycle
  readonly containers: ContainerLifecycle
  readonly streams: StreamCalls
  /** Settings for `crictl info`. */
  readonly settings: Readonly<Record<string, unknown>>
}

/** Requests by pod and by container. */
interface PodRequest {
  readonly podSandboxId: string
  readonly verbose?: boolean
}
interface ContainerRequest {
  readonly containerId: string
  readonly verbose?: boolean
}

export function runtimeHandlers(parts: RuntimeParts): Handlers {
  return {
    ...generalHandlers(parts),
    ...podHandlers(parts),
    ...containerHandlers(parts),
    ...streamHandlers(parts),
  }
}

function generalHandlers({ version, runtimeName, settings }: RuntimeParts): Handlers {
  return {
    Version: () => ({
      version: '0.1.0',
      runtimeName: 'holdfast',
      runtimeVersion: version,
      runtimeApiVersion: 'v1',
    }),
    Status: ({ verbose }: { verbose: boolean }) => ({
      status: {
        conditions: [
          { type: 'RuntimeReady', status: true, reason: '', message: '' },
          {
            type: 'NetworkReady',
            status: true,
            reason: 'LoopbackOnly',
            message: "pods have a loopback only, or the host's network",
          },
        ],
      },
      runtimeHandlers: ['', runtimeName].map((name) => ({
        name,
        features: { recursiveReadOnlyMounts: false, userNamespaces: false },
      })),
      features: { supplementalGroupsPolicy: true },
      info: verbose ? { config: JSON.stringify(settings) } : {},
    }),
    RuntimeConfig: () => ({ linux: { cgroupDriver: 'CGROUPFS' } }),
    // The pod address range that it carries is for networks that there are not.
    UpdateRuntimeConfig: () => ({}),
  }
}

function podHandlers({ registry, pods }: RuntimeParts): Handlers {
  return {
    RunPodSandbox: async (request: { config: PodSandboxConfig | null; runtimeHandler: string }) => ({
      podSandboxId: await pods.run(required('config', request.config), request.runtimeHandler),
    }),
    StopPodSandbox: async ({ podSandboxId }: PodRequest) => {
      const pod = unlessGone(() => registry.pod(podSandboxId))
      if (pod !== undefined) await pods.stop(pod)
      return {}
    },
    RemovePodSandbox: async ({ podSandboxId }: PodRequest) => {
      const pod = unlessGone(() => registry.pod(podSandboxId))
      if (pod !== undefined) await pods.remove(pod)
      return {}
    },
    PodSandboxStatus: ({ podSandboxId, verbose }: PodRequest) => {
      const pod = registry.pod(podSandboxId)
      const { record, paths, monitor } = pod
      const members = [...pod.containers.values()].filter(
        (container) => container.record.state !== 'creating',
      )
      const { monitorPid, namespaces, reason } = record
      const info = {
        pid: monitorPid,
        monitorSocket: paths.socket,
        monitorAlive: monitor.alive,
        namespaces,
        reason,
      }
      return {
        status: podStatus(pod),
        info: verbose === true ? verboseInfo(info) : {},
        containersStatuses: members.map((container) => containerStatus({ pod, container })),
        timestamp: now(),
      }
    },
    ListPodSandbox: ({ filter }: { filter: PodSandboxFilter | null }) => ({
      items: registry
        .pods()
        .filter((pod) => matchesPod(pod, filter))
        .map((pod) => podMessage(pod)),
    }),
  }
}

function containerHandlers({ registry, containers }: RuntimeParts): Handlers {
  return {
    CreateContainer: async (request: PodRequest & { config: ContainerConfig | null }) => ({
      containerId: await containers.create(
        registry.pod(request.podSandboxId),
        required('config', request.config),
      ),
    }),
    StartContainer: async ({ containerId }: ContainerRequest) => {
      await containers.start(registry.member(containerId).container)
      return {}
    },
    StopContainer: async ({ containerId, timeout }: ContainerRequest & { timeout: string }) => {
      const member = unlessGone(() => registry.member(containerId))
      if (member !== undefined) await containers.stop(member.container, Number(timeout) * 1000)
      return {}
    },
    RemoveContainer: async ({ containerId }: ContainerRequest) => {
      const member = unlessGone(() => registry.member(containerId))
      if (member !== undefined) await containers.remove(member.pod, member.container)
      return {}
    },
    ListContainers: ({ filter }: { filter: ContainerFilter | null }) => ({
      containers: registry
        .members()
        .filter((member) => matchesContainer(member, filter))
        .map((member) => containerMessage(member)),
    }),
    ContainerStatus: async ({ containerId, verbose }: ContainerRequest) => {
      const member = registry.member(containerId)
      return {
        status: containerStatus(member),
        info: verbose === true ? verboseInfo(await containerInfo(member)) : {},
      }
    },
  }
}

function streamHandlers({ streams }: RuntimeParts): Handlers {
  return {
    ReopenContainerLog: async ({ containerId }: ContainerRequest) => {
      await streams.reopenLog(containerId)
      return {}
    },
    ExecSync: async (request: ContainerRequest & { cmd: string[]; timeout: string }, gone) =>
      await streams.execSync(request, gone),
    Exec: async (request: StreamFlags & { cmd: string[] }) => await streams.exec(request),
    Attach: async (request: StreamFlags) => await streams.attach(request),
    PortForward: async (request: PodRequest & { port: number[] }) => await streams.portForward(request),
  }
}

/** Stopping and removing what is not there is fine: the interface wants these calls to be repeatable. */
function unlessGone<T>(find: () => T): T | undefined {
  try {
    return find()
  } catch (error) {
    if (error instanceof MonitorError && error.code === 'not-found') return undefined
    throw error
  }
}

async function containerInfo({ pod, container }: Member): Promise<object> {
  const { record, paths } = container
  const spec = await readFile(join(paths.bundle, 'config.json'), 'utf8').then(
    (text): unknown => JSON.parse(text),
    // Being removed.
    () => null,
  )
  return { sandboxID: pod.id, pid: record.pid, bundle: paths.bundle, runtimeSpec: spec }
}
