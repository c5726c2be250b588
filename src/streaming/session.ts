// What a token stands for, and the backend behind the streaming server. Streaming never learns what a container is.

import type { Socket } from 'node:net'
import type { ExitStatus, RemoteStdio } from '../base/remote-stdio.ts'

export interface ExecSession {
  readonly kind: 'exec'
  readonly containerId: string
  readonly command: readonly string[]
  readonly tty: boolean
  readonly stdin: boolean
  readonly stdout: boolean
  readonly stderr: boolean
}

export interface AttachSession {
  readonly kind: 'attach'
  readonly containerId: string
  readonly tty: boolean
  readonly stdin: boolean
  readonly stdout: boolean
  readonly stderr: boolean
  /** Undefined: the container knows (streaming.md §8 rule 46). */
  readonly stdinOnce: boolean | undefined
  /** How much of the log's tail the client gets before live output. */
  readonly replayBytes: number
}

export interface PortForwardSession {
  readonly kind: 'portforward'
  /** For messages. */
  readonly podSandboxId: string
  /** The network namespace to dial in, as the backend names it. */
  readonly netnsPath: string
  /** WebSocket channel form only (streaming.md §5.2). */
  readonly ports: readonly number[]
}

export type Session = ExecSession | AttachSession | PortForwardSession

/** Three methods, implemented by whoever knows containers. A rejection with a MonitorError becomes a Failure status. */
export interface StreamingBackend {
  /** Runs to the end: resolves when the process has exited and its last byte is in stdio's sinks (not yet flushed). */
  exec(session: ExecSession, stdio: RemoteStdio): Promise<ExitStatus>
  /** Resolves when the container ended, or the client's end of stdin means detach (streaming.md §8 rule 46). */
  attach(session: AttachSession, stdio: RemoteStdio): Promise<void>
  /**
   * A connection to a TCP port inside the pod: allowHalfOpen, paused until somebody reads. Rejects with the reason
   * that the client is to see.
   */
  dial(session: PortForwardSession, port: number, signal: AbortSignal): Promise<Socket>
}
