// The messages of proto/cri.proto as TypeScript sees them: camel case, 64-bit numbers and enums as strings, an absent
// message as null. Only what the code reads or writes.

/** 64 bits in decimal. */
export type Int64 = string

export interface Int64Value {
  readonly value: Int64
}

export interface PodSandboxMetadata {
  readonly name: string
  readonly uid: string
  readonly namespace: string
  readonly attempt: number
}

export type NamespaceMode = 'POD' | 'CONTAINER' | 'NODE' | 'TARGET'

export interface NamespaceOption {
  readonly network: NamespaceMode
  readonly pid: NamespaceMode
  readonly ipc: NamespaceMode
  readonly targetId: string
  readonly usernsOptions: { readonly mode: NamespaceMode } | null
}

export interface DnsConfig {
  readonly servers: readonly string[]
  readonly searches: readonly string[]
  readonly options: readonly string[]
}

export interface PodSandboxConfig {
  readonly metadata: PodSandboxMetadata | null
  readonly hostname: string
  readonly logDirectory: string
  readonly dnsConfig: DnsConfig | null
  readonly portMappings: readonly { readonly hostPort: number }[]
  readonly labels: Readonly<Record<string, string>>
  readonly annotations: Readonly<Record<string, string>>
  readonly linux: {
    readonly cgroupParent: string
    readonly securityContext: {
      readonly namespaceOptions: NamespaceOption | null
      readonly privileged: boolean
    } | null
    readonly sysctls: Readonly<Record<string, string>>
  } | null
}

export interface ImageSpec {
  readonly image: string
  readonly annotations?: Readonly<Record<string, string>>
  readonly userSpecifiedImage?: string
}

export interface Mount {
  readonly containerPath: string
  readonly hostPath: string
  readonly readonly: boolean
  readonly propagation: 'PROPAGATION_PRIVATE' | 'PROPAGATION_HOST_TO_CONTAINER' | 'PROPAGATION_BIDIRECTIONAL'
  readonly recursiveReadOnly: boolean
  readonly image: ImageSpec | null
}

export interface LinuxContainerResources {
  readonly cpuPeriod: Int64
  readonly cpuQuota: Int64
  readonly cpuShares: Int64
  readonly memoryLimitInBytes: Int64
  readonly oomScoreAdj: Int64
  readonly cpusetCpus: string
  readonly cpusetMems: string
  readonly hugepageLimits: readonly { readonly pageSize: string; readonly limit: Int64 }[]
  readonly unified: Readonly<Record<string, string>>
  readonly memorySwapLimitInBytes: Int64
}

export interface SecurityProfile {
  readonly profileType: 'RuntimeDefault' | 'Unconfined' | 'Localhost'
  readonly localhostRef: string
}

export interface LinuxContainerSecurityContext {
  readonly capabilities: {
    readonly addCapabilities: readonly string[]
    readonly dropCapabilities: readonly string[]
    readonly addAmbientCapabilities: readonly string[]
  } | null
  readonly privileged: boolean
  readonly namespaceOptions: NamespaceOption | null
  readonly runAsUser: Int64Value | null
  readonly runAsGroup: Int64Value | null
  readonly runAsUsername: string
  readonly readonlyRootfs: boolean
  readonly supplementalGroups: readonly Int64[]
  readonly supplementalGroupsPolicy: 'Merge' | 'Strict'
  readonly noNewPrivs: boolean
  readonly maskedPaths: readonly string[]
  readonly readonlyPaths: readonly string[]
  readonly seccomp: SecurityProfile | null
  readonly apparmor: SecurityProfile | null
}

export interface ContainerConfig {
  readonly metadata: { readonly name: string; readonly attempt: number } | null
  readonly image: ImageSpec | null
  readonly command: readonly string[]
  readonly args: readonly string[]
  readonly workingDir: string
  readonly envs: readonly { readonly key: string; readonly value: Buffer }[]
  readonly mounts: readonly Mount[]
  readonly devices: readonly {
    readonly containerPath: string
    readonly hostPath: string
    readonly permissions: string
  }[]
  readonly labels: Readonly<Record<string, string>>
  readonly annotations: Readonly<Record<string, string>>
  readonly logPath: string
  readonly stdin: boolean
  readonly stdinOnce: boolean
  readonly tty: boolean
  readonly linux: {
    readonly resources: LinuxContainerResources | null
    readonly securityContext: LinuxContainerSecurityContext | null
  } | null
  /** `SIGNAL_SIGTERM` … */
  readonly stopSignal: string
}

export type PodSandboxState = 'SANDBOX_READY' | 'SANDBOX_NOTREADY'
export type ContainerState =
  'CONTAINER_CREATED' | 'CONTAINER_RUNNING' | 'CONTAINER_EXITED' | 'CONTAINER_UNKNOWN'

export interface PodSandboxFilter {
  readonly id: string
  readonly state: { readonly state: PodSandboxState } | null
  readonly labelSelector: Readonly<Record<string, string>>
}

export interface ContainerFilter {
  readonly id: string
  readonly state: { readonly state: ContainerState } | null
  readonly podSandboxId: string
  readonly labelSelector: Readonly<Record<string, string>>
}

export interface PodSandbox {
  readonly id: string
  readonly metadata: PodSandboxMetadata
  readonly state: PodSandboxState
  readonly createdAt: Int64
  readonly labels: Readonly<Record<string, string>>
  readonly annotations: Readonly<Record<string, string>>
  readonly runtimeHandler: string
}

export interface PodSandboxStatus extends PodSandbox {
  readonly network: { readonly ip: string }
  readonly linux: { readonly namespaces: { readonly options: NamespaceOption | null } }
}

export interface Container {
  readonly id: string
  readonly podSandboxId: string
  readonly metadata: { readonly name: string; readonly attempt: number }
  readonly image: ImageSpec
  readonly imageRef: string
  readonly imageId: string
  readonly state: ContainerState
  readonly createdAt: Int64
  readonly labels: Readonly<Record<string, string>>
  readonly annotations: Readonly<Record<string, string>>
}

export interface ContainerStatus extends Omit<Container, 'podSandboxId'> {
  readonly startedAt: Int64
  readonly finishedAt: Int64
  readonly exitCode: number
  readonly reason: string
  readonly message: string
  readonly mounts: readonly Mount[]
  readonly logPath: string
  readonly resources: { readonly linux: LinuxContainerResources } | null
  readonly user: {
    readonly linux: {
      readonly uid: Int64
      readonly gid: Int64
      readonly supplementalGroups: readonly Int64[]
    }
  }
  readonly stopSignal: string
}

export interface Image {
  readonly id: string
  readonly repoTags: readonly string[]
  readonly repoDigests: readonly string[]
  readonly size: Int64
  readonly spec: ImageSpec
  readonly username: string
  readonly uid: Int64Value | null
  readonly pinned: boolean
}

/** Stream requests, as Exec and Attach share them. */
export interface StreamFlags {
  readonly containerId: string
  readonly tty: boolean
  readonly stdin: boolean
  readonly stdout: boolean
  readonly stderr: boolean
}
