// The output of one container beside its log: copies that the keeper makes while clients are attached, fanned out.
// The keeper reads the container; nothing here can hold it up for longer than the copy's patience.

import { closeSync } from 'node:fs'
import { MonitorError } from '../base/errors.ts'
import { COPY_PATIENCE_MS } from '../base/limits.ts'
import { deferred, withDeadline } from '../base/lifetime.ts'
import type { ByteSink } from '../base/remote-stdio.ts'
import type { KeeperClient, PumpState } from '../keeper/keeper-client.ts'
import { socketpair } from '../native/addon.ts'
import { Fanout } from '../stdio/fanout.ts'
import { OutputPump } from '../stdio/output-pump.ts'
import type { LogReport } from './log-report.ts'

/** 0: stdout or the terminal; 1: stderr. */
type StreamNumber = 0 | 1

interface Client {
  readonly dropped: (error: MonitorError) => void
  readonly remove: () => void
}

interface Copy {
  readonly fanout: Fanout
  readonly pump: OutputPump
  readonly clients: Map<ByteSink, Client>
}

export interface ContainerOutputOptions {
  readonly log: LogReport
  /** Of the log file, until the keeper says more. */
  readonly logInode: number
  readonly state: PumpState | undefined
}

/** The keeper's word on how a copy ended comes at most this much later than the end itself. */
const verdictMs = 1000

export class ContainerOutput {
  readonly #keeper: KeeperClient
  readonly #entry: string
  readonly #log: LogReport
  /** Of the log file that the keeper writes to; 0: there is none. */
  logInode: number
  readonly #copies: [Copy | undefined, Copy | undefined] = [undefined, undefined]
  readonly #ended = deferred<void>()
  #state: PumpState | undefined
  #news = deferred<void>()

  constructor(keeper: KeeperClient, entry: string, options: ContainerOutputOptions) {
    this.#keeper = keeper
    this.#entry = entry
    this.#log = options.log
    this.logInode = options.logInode
    const { state } = options
    if (state !== undefined) this.update(state)
  }

  /** Settles when every stream has been read to its end and is in the log. */
  get ended(): Promise<void> {
    return this.#ended.promise
  }

  /** News from the keeper. */
  update(state: PumpState): void {
    this.#state = state
    this.#log.update(state)
    this.logInode = state.inode
    const news = this.#news
    this.#news = deferred()
    news.resolve()
    if (state.streams.every((stream) => stream.ended || !stream.open)) this.#ended.resolve()
  }

  /**
   * Gives a client what the stream says from now on; `sink.end()` comes with the stream's end. `dropped` is called when
   * the client alone was too slow, or when the keeper gave the copy up, with what was missed.
   */
  async add(stream: StreamNumber, sink: ByteSink, dropped: (error: MonitorError) => void): Promise<void> {
    if (this.#state?.streams[stream].ended === true) {
      sink.end()
      return
    }
    const copy = this.#copies[stream] ?? (await this.#start(stream))
    const remove = copy.fanout.add(sink, (error) => {
      copy.clients.delete(sink)
      dropped(error)
    })
    copy.clients.set(sink, { dropped, remove })
  }

  /** The client left. Without clients there is no copy. */
  remove(stream: StreamNumber, sink: ByteSink): void {
    const copy = this.#copies[stream]
    const client = copy?.clients.get(sink)
    if (copy === undefined || client === undefined) return
    copy.clients.delete(sink)
    client.remove()
    if (copy.clients.size === 0) this.#stop(stream, copy)
  }

  close(): void {
    for (const stream of [0, 1] as const) {
      const copy = this.#copies[stream]
      if (copy !== undefined) this.#stop(stream, copy)
    }
  }

  async #start(stream: StreamNumber): Promise<Copy> {
    const [ours, theirs] = socketpair()
    const fanout = new Fanout()
    const copy: Copy = {
      fanout,
      pump: new OutputPump({ fd: ours, terminal: false, sink: fanout }),
      clients: new Map(),
    }
    this.#copies[stream] = copy
    void this.#watch(stream, copy)
    try {
      await this.#keeper.copy(this.#entry, stream, { fd: theirs, patienceMs: COPY_PATIENCE_MS })
    } catch (error) {
      this.#stop(stream, copy)
      throw error
    } finally {
      closeSync(theirs)
    }
    return copy
  }

  #stop(stream: StreamNumber, copy: Copy): void {
    if (this.#copies[stream] !== copy) return
    this.#copies[stream] = undefined
    copy.pump.close()
    this.#keeper.copy(this.#entry, stream, undefined).catch(() => {
      // The entry is gone with its container, and the copy with it.
    })
  }

  /** At a copy's end: was it the stream's, or did the keeper give it up? */
  async #watch(stream: StreamNumber, copy: Copy): Promise<void> {
    await copy.pump.ended
    if (this.#copies[stream] !== copy) return
    this.#copies[stream] = undefined
    for (let i = 0; i < 10 && !this.#decided(stream); i++)
      await withDeadline(this.#news.promise, verdictMs / 10, () => undefined)
    const state = this.#state?.streams[stream]
    if (state === undefined || state.ended || state.lostAt === undefined) return
    const missed = Math.max(0, state.bytes - state.lostAt)
    for (const client of copy.clients.values()) {
      client.dropped(
        new MonitorError(
          'resource-exhausted',
          `attached clients did not keep up: output from byte ${state.lostAt} on (${missed} bytes so far) is in the log only`,
        ),
      )
    }
  }

  #decided(stream: StreamNumber): boolean {
    const state = this.#state?.streams[stream]
    return state !== undefined && (state.ended || state.lostAt !== undefined)
  }
}
