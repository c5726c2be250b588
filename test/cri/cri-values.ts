// Messages and records for tests, with nothing special in them.

import type { PodRecord } from '../../src/client/pod-state.ts'
import { Container, newContainerRecord } from '../../src/cri/container.ts'
import type { StoredContainerConfig } from '../../src/cri/container.ts'
import type { StoredImage } from '../../src/cri/image-store.ts'
import type {
  ContainerConfig,
  LinuxContainerSecurityContext,
  PodSandboxConfig,
} from '../../src/cri/messages.ts'
import { Pod } from '../../src/cri/pod.ts'
import { PodMonitor } from '../../src/cri/pod-monitor.ts'
import { StatePaths } from '../../src/client/pod-state.ts'
import type { ContainerRecord } from '../../src/client/pod-state.ts'

export const securityContext: LinuxContainerSecurityContext = {
  capabilities: null,
  privileged: false,
  namespaceOptions: null,
  runAsUser: null,
  runAsGroup: null,
  runAsUsername: '',
  readonlyRootfs: false,
  supplementalGroups: [],
  supplementalGroupsPolicy: 'Merge',
  noNewPrivs: false,
  maskedPaths: [],
  readonlyPaths: [],
  seccomp: null,
  apparmor: null,
}

export function containerConfig(changes: Partial<ContainerConfig> = {}): ContainerConfig {
  return {
    metadata: { name: 'app', attempt: 0 },
    image: { image: 'busybox' },
    command: [],
    args: [],
    workingDir: '',
    envs: [],
    mounts: [],
    devices: [],
    labels: {},
    annotations: {},
    logPath: '',
    stdin: false,
    stdinOnce: false,
    tty: false,
    linux: null,
    stopSignal: 'SIGNAL_RUNTIME_DEFAULT',
    ...changes,
  }
}

export function podConfig(changes: Partial<PodSandboxConfig> = {}): PodSandboxConfig {
  return {
    metadata: { name: 'pod-name', uid: 'u', namespace: 'default', attempt: 0 },
    hostname: '',
    logDirectory: '',
    dnsConfig: null,
    portMappings: [],
    labels: {},
    annotations: {},
    linux: null,
    ...changes,
  }
}

export function podRecord(changes: Partial<PodRecord<PodSandboxConfig>> = {}): PodRecord<PodSandboxConfig> {
  return {
    version: 1,
    id: 'pod',
    name: 'pod-name',
    namespace: 'default',
    uid: 'u',
    attempt: 0,
    createdAt: '1',
    state: 'ready',
    reason: '',
    monitorPid: 0,
    monitorStartTime: '',
    namespaces: {},
    logDirectory: '',
    runtimeHandler: '',
    config: podConfig(),
    ...changes,
  }
}

export function storedImage(rootfs: string): StoredImage {
  return {
    id: 'sha256:00',
    names: ['docker.io/library/busybox:latest'],
    rootfs,
    defaults: {
      entrypoint: ['/entry'],
      cmd: ['cmd'],
      env: ['FROM_IMAGE=image'],
      workingDir: '/work',
      user: '',
      stopSignal: '',
    },
    size: 0,
    files: 0,
    builtIn: true,
  }
}

/** A pod whose monitor cannot be started. */
export function testPod(root: string, changes: Partial<PodRecord<PodSandboxConfig>> = {}): Pod {
  const record = podRecord(changes)
  const paths = new StatePaths(root).pod(record.id)
  const options = { monitorPath: '/bin/false', runtimePath: '/bin/false', runtimeRoot: root, logLevel: 'off' }
  return new Pod(record, paths, new PodMonitor(paths, options))
}

export function testContainer(
  pod: Pod,
  id: string,
  changes: Partial<ContainerRecord<StoredContainerConfig>> = {},
): Container {
  const record = newContainerRecord({
    id,
    podSandboxId: pod.id,
    name: id,
    attempt: 0,
    config: containerConfig(),
    logPath: '',
    image: 'busybox',
    imageId: 'sha256:00',
    cgroupsPath: '',
  })
  const container = new Container({ ...record, state: 'running', ...changes }, pod.paths.container(id))
  pod.containers.set(id, container)
  return container
}
