// The server's ends of one process's stdin, stdout and stderr, or of its terminal, and the one client they are joined
// to. Nobody else has the descriptors; the keeper holds copies, which the owner drops when told that ours are closed.

import { MonitorError } from '../base/errors.ts'
import { deferred } from '../base/lifetime.ts'
import type { ByteSink, RemoteStdio, TerminalSize } from '../base/remote-stdio.ts'
import { setWinsize } from '../native/addon.ts'
import { WatchedFd } from '../native/watched-fd.ts'
import { OutputPump } from './output-pump.ts'
import { StdinMerge } from './stdin-merge.ts'

/** Either `terminal` or any of the others; all belong to ProcessStdio. */
export interface ProcessDescriptors {
  readonly stdin?: number | undefined
  readonly stdout?: number | undefined
  readonly stderr?: number | undefined
  /** The master. */
  readonly terminal?: number | undefined
}

type Output = 'stdout' | 'stderr' | 'terminal'

/** Moves the bytes between a process and its client. Reads nothing before `connect`. */
export class ProcessStdio {
  readonly terminal: boolean
  /**
   * Resolves when all output has ended and was given to the client, or was given up. The process may still run: a
   * terminal stays open until `finish`, `hangUp` or `close`.
   */
  readonly outputEnded: Promise<void>
  /** Stdin has been closed here, once; with a copy held elsewhere the process sees the end only when that is dropped. */
  onStdinClosed: (() => void) | undefined
  /** An output, or the terminal, has been closed here: once for each. */
  onOutputClosed: ((output: Output) => void) | undefined
  readonly #outputs: readonly (readonly [Output, WatchedFd])[]
  readonly #stdin: StdinMerge | undefined
  readonly #ended = deferred<void>()
  #pumps: readonly OutputPump[] = []
  #connected = false

  constructor(fds: ProcessDescriptors) {
    this.terminal = fds.terminal !== undefined
    this.outputEnded = this.#ended.promise
    this.#outputs = (['stdout', 'stderr', 'terminal'] as const).flatMap((name) => {
      const fd = fds[name]
      return fd === undefined ? [] : [[name, this.#watched(name, fd)] as const]
    })
    if (fds.stdin !== undefined)
      this.#stdin = new StdinMerge({ fd: fds.stdin, terminal: false, onClosed: () => this.onStdinClosed?.() })
  }

  /** Joins process and client, once. When the client goes away, input ends, a terminal hangs up, output is thrown away. */
  connect(remote: RemoteStdio): void {
    if (this.#connected)
      throw new MonitorError('failed-precondition', 'connect process: it has a client already')
    this.#connected = true
    this.#pumps = this.#outputs.map(
      ([name, fd]) =>
        new OutputPump({
          fd,
          terminal: name === 'terminal',
          sink: name === 'stderr' ? remote.stderr : remote.stdout,
        }),
    )
    this.#connectStdin(remote)
    remote.onResize((size) => this.resize(size))
    const gone = (): void => this.#clientGone()
    const ended = (): void => {
      remote.gone.removeEventListener('abort', gone)
      this.#ended.resolve()
    }
    if (remote.gone.aborted) gone()
    else remote.gone.addEventListener('abort', gone)
    Promise.all(this.#pumps.map((pump) => pump.ended)).then(ended, ended)
  }

  /** Sizes that no terminal has (zero, beyond 65535) are ignored. */
  resize(size: TerminalSize): void {
    const terminal = this.#terminalFd
    if (terminal === undefined || !terminal.open || !isSide(size.width) || !isSide(size.height)) return
    try {
      setWinsize(terminal.fd, size.height, size.width)
    } catch {
      // A terminal that hung up has no size.
    }
  }

  /** Ends the input of a process with pipes now; what it has not read yet is lost. A terminal has no end of input. */
  closeStdin(): void {
    this.#stdin?.close()
  }

  /** Closes the terminal: the kernel signals SIGHUP to its session. With pipes, closes stdin. */
  hangUp(): void {
    this.closeStdin()
    if (this.terminal) this.#closeOutputs()
  }

  /** The process is over and the grace for those who still hold its output too: takes what lies there, delivers it. */
  finish(): void {
    this.closeStdin()
    for (const pump of this.#pumps) pump.takeRest()
    if (!this.#connected) this.close()
  }

  /** Closes everything now; output that has not been delivered is lost. */
  close(): void {
    this.closeStdin()
    this.#closeOutputs()
    this.#ended.resolve()
  }

  get #terminalFd(): WatchedFd | undefined {
    return this.#outputs.find(([name]) => name === 'terminal')?.[1]
  }

  #watched(name: Output, fd: number): WatchedFd {
    const watched = new WatchedFd(fd)
    watched.onClosed(() => this.onOutputClosed?.(name))
    return watched
  }

  #connectStdin(remote: RemoteStdio): void {
    const terminal = this.#terminalFd
    if (remote.connectStdin === undefined) {
      // Nobody will ever write.
      this.closeStdin()
    } else if (terminal !== undefined) {
      // The end of a client's input does not hang up a terminal: kubectl sends one when its own
      // input is at its end, and still wants the output.
      remote.connectStdin(
        terminal.open ? new StdinMerge({ fd: terminal, terminal: true }).connect() : discard(),
      )
    } else {
      const stdin = this.#stdin
      remote.connectStdin(stdin === undefined ? discard() : stdin.connect(() => stdin.close()))
    }
  }

  #clientGone(): void {
    for (const pump of this.#pumps) pump.setSink(undefined)
    this.hangUp()
  }

  #closeOutputs(): void {
    for (const pump of this.#pumps) pump.close()
    for (const [, watched] of this.#outputs) watched.close()
  }
}

/** Takes input that nothing reads. */
function discard(): ByteSink {
  return { write: () => true, end: () => undefined, buffered: 0, onDrain: undefined }
}

function isSide(cells: number): boolean {
  return Number.isInteger(cells) && cells > 0 && cells <= 65_535
}
