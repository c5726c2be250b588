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

export interface ClientEvents {
  /** The stream's last byte is in the sink. */
  readonly ended: () => void
  /** The client alone was too slow, or the keeper gave the copy up: the error says what was missed. */
  readonly dropped: (error: MonitorError) => void
}

interface Client {
  readonly events: ClientEvents
  readonly remove: () => void
}

interface Copy {
  readonly fanout: Fanout
  /** Settles with the keeper's answer. */
  readonly started: Promise<void>
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
  #finished = false

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

  /** Gives a client what the stream says from now on; `sink.end()` comes with the stream's end. */
  async add(stream: StreamNumber, sink: ByteSink, events: ClientEvents): Promise<void> {
    if (this.#finished || this.#state?.streams[stream].ended === true) {
      sink.end()
      events.ended()
      return
    }
    const copy = this.#copies[stream] ?? this.#start(stream)
    const remove = copy.fanout.add(sink, (error) => {
      this.#forget(stream, copy, sink)
      events.dropped(error)
    })
    // Before the keeper answers: a copy that ends at once has its client by then.
    copy.clients.set(sink, { events, remove })
    try {
      await copy.started
    } catch (error) {
      // The stream has ended, and the news of it is on its way.
      if (!(error instanceof MonitorError && error.code === 'failed-precondition')) throw error
      events.ended()
    }
  }

  /** The client left. Without clients there is no copy. */
  remove(stream: StreamNumber, sink: ByteSink): void {
    const copy = this.#copies[stream]
    const client = copy?.clients.get(sink)
    if (copy === undefined || client === undefined) return
    client.remove()
    this.#forget(stream, copy, sink)
  }

  /** The container is over: no more copies. What the keeper has copied by now is still delivered. */
  finish(): void {
    this.#finished = true
    for (const stream of [0, 1] as const) {
      // The copy of a stream that has ended may still carry its last bytes: the keeper ends it behind them.
      const open = this.#state?.streams[stream].ended !== true
      if (open && this.#copies[stream] !== undefined) this.#endCopy(stream)
    }
  }

  /** Settles when no client waits for copied bytes any more: until then the keeper needs its entry. */
  async delivered(): Promise<void> {
    await Promise.all(this.#copies.flatMap((copy) => copy?.pump.ended ?? []))
  }

  #start(stream: StreamNumber): Copy {
    const [ours, theirs] = socketpair()
    const fanout = new Fanout()
    const asked = this.#keeper.copy(this.#entry, stream, { fd: theirs, patienceMs: COPY_PATIENCE_MS })
    const copy: Copy = {
      fanout,
      started: asked.finally(() => closeSync(theirs)),
      pump: new OutputPump({ fd: ours, terminal: false, sink: fanout }),
      clients: new Map(),
    }
    this.#copies[stream] = copy
    copy.started.catch(() => this.#stop(stream, copy))
    void this.#watch(stream, copy)
    return copy
  }

  #forget(stream: StreamNumber, copy: Copy, sink: ByteSink): void {
    copy.clients.delete(sink)
    if (copy.clients.size === 0) this.#stop(stream, copy)
  }

  #stop(stream: StreamNumber, copy: Copy): void {
    if (this.#copies[stream] !== copy) return
    this.#copies[stream] = undefined
    copy.pump.close()
    this.#endCopy(stream)
  }

  #endCopy(stream: StreamNumber): void {
    this.#keeper.copy(this.#entry, stream, undefined).catch(() => {
      // The entry is gone with its container, and the copy with it.
    })
  }

  /** At a copy's end: was it the stream's, or did the keeper give it up? */
  async #watch(stream: StreamNumber, copy: Copy): Promise<void> {
    await copy.pump.ended
    if (this.#copies[stream] !== copy) return
    this.#copies[stream] = undefined
    for (let i = 0; i < 10 && !this.#decided(stream); i++) {
      await withDeadline(this.#news.promise, verdictMs / 10, () => undefined)
    }
    const state = this.#state?.streams[stream]
    // Also at the stream's end: the last bytes may be those that the copy did not take.
    const lostAt = state?.lostAt
    for (const { events } of copy.clients.values()) {
      if (lostAt === undefined) events.ended()
      else events.dropped(missed(lostAt, state?.bytes ?? lostAt))
    }
  }

  #decided(stream: StreamNumber): boolean {
    const state = this.#state?.streams[stream]
    return this.#finished || (state !== undefined && (state.ended || state.lostAt !== undefined))
  }
}

function missed(from: number, to: number): MonitorError {
  return new MonitorError(
    'resource-exhausted',
    `attached clients did not keep up: output from byte ${from} on (${to - from} bytes so far) is in the log only`,
  )
}
