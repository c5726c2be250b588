// What a caller says to a monitor, and what it hears: the requests of the RPC with their defaults.

import type { CgroupManager, Namespace, NamespaceResponse, VersionResponse } from '../generated/conmon.ts'
import type { ContainerState } from '../generated/holdfast.ts'

export type MonitorVersion = VersionResponse
export type NamespaceType = Namespace
export type NamespacePath = NamespaceResponse

/** Of every call. */
export interface CallOptions {
  /** The caller gives up: the monitor is told, and the call rejects with the signal's reason. */
  readonly signal?: AbortSignal | undefined
  /** How long to wait for the answer; 0: for ever. Each call has its own default. */
  readonly timeoutMs?: number | undefined
}

export interface LogDriver {
  readonly type: 'cri' | 'json' | 'journald'
  readonly path?: string
  /** Bytes; 0, the default: no limit. */
  readonly maxSize?: number
}

export interface CreateContainer {
  readonly id: string
  readonly bundlePath: string
  readonly terminal?: boolean
  /** Whether the container gets an input that clients can write to. */
  readonly stdin?: boolean
  /** Default: cgroupfs. */
  readonly cgroupManager?: CgroupManager
  readonly exitPaths?: readonly string[]
  readonly oomExitPaths?: readonly string[]
  readonly logDrivers?: readonly LogDriver[]
  readonly cleanupCommand?: readonly string[]
  /** For the OCI runtime, before and after its command word. */
  readonly globalArgs?: readonly string[]
  readonly commandArgs?: readonly string[]
  /** Environment of the OCI runtime, on top of the monitor's. */
  readonly env?: readonly (readonly [string, string])[]
}

export interface ExecSync {
  readonly id: string
  readonly command: readonly string[]
  readonly terminal?: boolean
  /** The monitor kills the command then; whole seconds, rounded up. 0, the default: no limit. */
  readonly timeoutMs?: number
  readonly cgroupManager?: CgroupManager
  readonly env?: readonly (readonly [string, string])[]
}

export interface ExecSyncOutcome {
  /** 128 + N after signal N, -3 when timed out. */
  readonly exitCode: number
  readonly timedOut: boolean
  readonly stdout: Buffer
  readonly stderr: Buffer
}

export interface AttachContainer {
  readonly id: string
  readonly socketPath: string
  readonly stopAfterStdinEof?: boolean
}

export interface CreateNamespaces {
  readonly podId: string
  readonly namespaces: readonly NamespaceType[]
  readonly basePath?: string
  readonly uidMappings?: readonly string[]
  readonly gidMappings?: readonly string[]
}

/** Which streams a session has. Default: stdout, and stderr where there is no terminal. */
interface Streams {
  readonly stdin?: boolean
  readonly stdout?: boolean
  readonly stderr?: boolean
}

export interface ServeExec extends Streams {
  readonly id: string
  readonly command: readonly string[]
  readonly tty?: boolean
  readonly cgroupManager?: CgroupManager
}

export interface ServeAttach extends Streams {
  readonly id: string
  /** Left out: not known; the container decides. */
  readonly tty?: boolean
  readonly stdinOnce?: boolean
  /** How much of the log's tail comes first; default 0. */
  readonly replayBytes?: number
}

export interface ServePortForward {
  /** Default: the host's network. */
  readonly netnsPath?: string
  readonly podSandboxId?: string
  readonly ports?: readonly number[]
}

export interface ContainerInfo {
  readonly id: string
  readonly pid: number
  readonly state: ContainerState
  /** Set when exited. */
  readonly exitCode: number | undefined
  readonly terminal: boolean
  readonly sessions: number
}
