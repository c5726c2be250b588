// What an exec or attach client is, seen from a process: where its output goes, where input comes from.
// Shared by stdio (the process's side) and streaming (the client's side).

/** Columns and rows of a terminal, in that order. */
export interface TerminalSize {
  readonly width: number
  readonly height: number
}

/** How a process ended. Death by signal N is shown to clients as code 128 + N. */
export type ExitStatus = ({ readonly code: number } | { readonly signal: number }) & {
  readonly oomKilled?: boolean
  readonly timedOut?: boolean
}

/** The number a shell would show: the exit code, or 128 + signal (streaming.md §8 rule 5). */
export function exitCodeOf(status: ExitStatus): number {
  return 'code' in status ? status.code : 128 + status.signal
}

/**
 * Where bytes go. One writer.
 *
 * `write` returns true when the chunk has been passed on: its memory may be reused at once. It returns false when the
 * sink keeps the chunk: the memory then belongs to the sink and must never be modified, and the writer should wait for
 * `onDrain` before it writes again (it may go on at the price of `buffered` growing). No bytes are ever lost either
 * way, except after the sink's client has gone: then writes are thrown away and return true.
 */
export interface ByteSink {
  write(chunk: Buffer): boolean
  /** No more bytes will come. */
  end(): void
  /** Bytes that the sink keeps. */
  readonly buffered: number
  /** Called when a sink that returned false has room again. Set by the writer. */
  onDrain: (() => void) | undefined
}

/** The other end's stdin, stdout, stderr and resizes, as far as the client asked for them. */
export interface RemoteStdio {
  /** Absent: the client does not want it; the output is read and thrown away. */
  readonly stdout: ByteSink | undefined
  readonly stderr: ByteSink | undefined
  /**
   * Gives the client's input to `sink`, first what has come already; `sink.end()` is the client's end of input. While
   * sink is full the client is held back. Absent: no input was asked for.
   */
  readonly connectStdin: ((sink: ByteSink) => void) | undefined
  /** Calls back for each terminal size the client sends; first, at once, for the last one that came before. */
  onResize(listener: (size: TerminalSize) => void): void
  /** Aborted when the client is gone before the session's end. */
  readonly gone: AbortSignal
}
