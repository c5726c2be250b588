// The monitor's calls, as the RPC layer makes them: plain values, already decoded, of either layout.

import type { ExitStatus, TerminalSize } from '../base/remote-stdio.ts'

export type CgroupManager = 'systemd' | 'cgroupfs'

export interface LogDriverRequest {
  readonly type: 'cri' | 'json' | 'journald'
  readonly path: string
  /** Bytes; 0: no limit. */
  readonly maxSize: number
}

export interface CreateContainerRequest {
  readonly id: string
  readonly bundlePath: string
  readonly terminal: boolean
  readonly stdin: boolean
  readonly cgroupManager: CgroupManager
  readonly exitPaths: readonly string[]
  readonly oomExitPaths: readonly string[]
  readonly logDrivers: readonly LogDriverRequest[]
  readonly cleanupCommand: readonly string[]
  readonly globalArgs: readonly string[]
  readonly commandArgs: readonly string[]
  readonly env: readonly (readonly [string, string])[]
  /** Slots of the fd socket. */
  readonly additionalFds: readonly bigint[]
  readonly leakFds: readonly bigint[]
}

export interface ExecSyncRequest {
  readonly id: string
  readonly command: readonly string[]
  readonly terminal: boolean
  /** 0: no limit. */
  readonly timeoutMs: number
  readonly cgroupManager: CgroupManager
  readonly env: readonly (readonly [string, string])[]
}

export interface ExecSyncResult {
  readonly status: ExitStatus
  readonly stdout: Buffer
  readonly stderr: Buffer
}

export interface AttachContainerRequest {
  readonly id: string
  readonly socketPath: string
  readonly stopAfterStdinEof: boolean
}

export type NamespaceType = 'ipc' | 'net' | 'pid' | 'user' | 'uts'

export interface CreateNamespacesRequest {
  readonly namespaces: readonly NamespaceType[]
  readonly uidMappings: readonly string[]
  readonly gidMappings: readonly string[]
  /** Empty: /var/run (conmon.md §1.1). */
  readonly basePath: string
  readonly podId: string
}

export interface NamespacePath {
  readonly type: NamespaceType
  readonly path: string
}

export interface ServeExecRequest {
  readonly id: string
  readonly command: readonly string[]
  readonly tty: boolean
  readonly stdin: boolean
  readonly stdout: boolean
  readonly stderr: boolean
  readonly cgroupManager: CgroupManager
}

export interface ServeAttachRequest {
  readonly id: string
  readonly stdin: boolean
  readonly stdout: boolean
  readonly stderr: boolean
  /** Undefined through conmon-rs's interface, which cannot say: no check, the container decides. */
  readonly tty: boolean | undefined
  /** Undefined: the monitor knows it from elsewhere (streaming.md §8 rule 46). */
  readonly stdinOnce: boolean | undefined
  readonly replayBytes: number
}

export interface ServePortForwardRequest {
  /** Empty: the host's network. */
  readonly netnsPath: string
  readonly podSandboxId: string
  readonly ports: readonly number[]
}

export interface VersionInfo {
  /** The keeper's. */
  readonly processId: number
  readonly version: string
  readonly tag: string
  readonly commit: string
  readonly buildDate: string
  readonly target: string
  readonly rustVersion: string
  readonly cargoVersion: string
  /** Only when asked for. */
  readonly cargoTree: string
}

export interface ContainerInfo {
  readonly id: string
  readonly pid: number
  readonly state: 'creating' | 'running' | 'exited'
  /** Set when exited. */
  readonly exitCode: number | undefined
  readonly terminal: boolean
  readonly sessions: number
}

/** One method per RPC. `signal` is aborted when the caller gave up (Finish) or its connection is gone. */
export interface MonitorCalls {
  version(verbose: boolean): VersionInfo
  /** Resolves to the container's pid. */
  createContainer(request: CreateContainerRequest): Promise<number>
  execSync(request: ExecSyncRequest, signal: AbortSignal): Promise<ExecSyncResult>
  attachContainer(request: AttachContainerRequest): Promise<void>
  reopenLog(id: string): Promise<void>
  setWindowSize(id: string, size: TerminalSize): void
  createNamespaces(request: CreateNamespacesRequest): Promise<readonly NamespacePath[]>
  /** The path of the fd socket. */
  startFdSocket(): Promise<string>
  /** Each resolves to a URL with a single-use token. */
  serveExec(request: ServeExecRequest): Promise<string>
  serveAttach(request: ServeAttachRequest): Promise<string>
  servePortForward(request: ServePortForwardRequest): Promise<string>
  listContainers(): readonly ContainerInfo[]
}
