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
  readonly path?: string | undefined
  /** Bytes; 0, the default: no limit. */
  readonly maxSize?: number | undefined
}

export interface CreateContainer {
  readonly id: string
  readonly bundlePath: string
  readonly terminal?: boolean | undefined
  /** Whether the container gets an input that clients can write to. */
  readonly stdin?: boolean | undefined
  /** Default: cgroupfs. */
  readonly cgroupManager?: CgroupManager | undefined
  readonly exitPaths?: readonly string[] | undefined
  readonly oomExitPaths?: readonly string[] | undefined
  readonly logDrivers?: readonly LogDriver[] | undefined
  readonly cleanupCommand?: readonly string[] | undefined
  /** For the OCI runtime, before and after its command word. */
  readonly globalArgs?: readonly string[] | undefined
  readonly commandArgs?: readonly string[] | undefined
  /** Environment of the OCI runtime, on top of the monitor's. */
  readonly env?: readonly (readonly [string, string])[] | undefined
}

export interface ExecSync {
  readonly id: string
  readonly command: readonly string[]
  readonly terminal?: boolean | undefined
  /** The monitor kills the command then; whole seconds, rounded up. 0, the default: no limit. */
  readonly timeoutMs?: number | undefined
  readonly cgroupManager?: CgroupManager | undefined
  readonly env?: readonly (readonly [string, string])[] | undefined
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
  readonly stopAfterStdinEof?: boolean | undefined
}

export interface CreateNamespaces {
  readonly podId: string
  readonly namespaces: readonly NamespaceType[]
  readonly basePath?: string | undefined
  readonly uidMappings?: readonly string[] | undefined
  readonly gidMappings?: readonly string[] | undefined
}

/** Which streams a session has. Default: stdout, and stderr where there is no terminal. */
interface Streams {
  readonly stdin?: boolean | undefined
  readonly stdout?: boolean | undefined
  readonly stderr?: boolean | undefined
}

export interface ServeExec extends Streams {
  readonly id: string
  readonly command: readonly string[]
  readonly tty?: boolean | undefined
  readonly cgroupManager?: CgroupManager | undefined
}

export interface ServeAttach extends Streams {
  readonly id: string
  /** Left out: not known; the container decides. */
  readonly tty?: boolean | undefined
  readonly stdinOnce?: boolean | undefined
  /** How much of the log's tail comes first; default 0. */
  readonly replayBytes?: number | undefined
}

export interface ServePortForward {
  /** Default: the host's network. */
  readonly netnsPath?: string | undefined
  readonly podSandboxId?: string | undefined
  readonly ports?: readonly number[] | undefined
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
