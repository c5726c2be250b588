// The server's end of the keeper's channel: the only file that speaks to the keeper (PROTOCOL.md). It owns the channel's
// descriptor and nothing else: descriptors given to it stay the caller's, descriptors from it are the caller's.

import { constants } from 'node:os'
import type { MonitorError } from '../base/errors.ts'
import { Channel, keeperGone, refusal } from './channel.ts'
import {
  decodeExit,
  decodePumpState,
  flag,
  maskOf,
  signalsOf,
  state,
  toKeeper,
  toServer,
  type Incoming,
  type KeeperExit,
  type Outgoing,
  type PumpState,
} from './channel-messages.ts'

export type { KeeperExit, PumpState } from './channel-messages.ts'

/** What the keeper holds under a name. The descriptor now belongs to whoever reads this. */
export interface HeldEntry {
  readonly name: string
  readonly record: Buffer
  readonly fd: number | undefined
  readonly wake: boolean
  readonly pump: PumpState | undefined
}

/** Everything that the keeper told a new server. */
export interface Replay {
  readonly entries: HeldEntry[]
  readonly exits: KeeperExit[]
  readonly signals: number[]
  /** How many servers there have been, this one included. */
  readonly incarnation: number
  readonly keeperPid: number
  readonly protocol: number
}

/** The keeper's news. */
export interface KeeperListener {
  pumped(name: string, state: PumpState): void
  exited(exit: KeeperExit): void
  signalled(signals: readonly number[]): void
  /** The keeper is gone: the server must leave. */
  closed(): void
}

/** Output for the keeper to read and log. The descriptors stay the caller's, who closes them when `pump` has resolved. */
export interface PumpOptions {
  readonly stdout?: number
  readonly stderr?: number
  readonly log?: number
  /** The log's directory and its name there: needed for `limit`. */
  readonly directory?: number
  readonly logName?: string
  /** Bytes at which the log is renamed to NAME.1. */
  readonly limit?: number
  /** stdout is a terminal's master. */
  readonly terminal?: boolean
  /** Without a log: throw output away while no copy takes it. */
  readonly discard?: boolean
  readonly record?: Uint8Array
}

/** Speaks with the keeper. Messages are sent in the order of the calls, and done even if the server dies right after. */
export class KeeperClient {
  readonly #channel: Channel
  #synced = false
  #replay: { done: (replay: Replay) => void; fail: (error: MonitorError) => void } | undefined
  #entries: HeldEntry[] = []
  #exits: KeeperExit[] = []
  #signals: number[] = []
  #listener: KeeperListener | undefined
  #news: ((listener: KeeperListener) => void)[] = []

  /** `channel` is the inherited descriptor. */
  constructor(channel = 3) {
    this.#channel = new Channel(channel, {
      message: (message, fds) => this.#take(message, fds),
      closed: () => {
        this.#replay?.fail(keeperGone('read what is held'))
        this.#tell((listener) => listener.closed())
      },
    })
  }

  /** What is held, the unclaimed exits and unacknowledged signals. Once, right after the construction. */
  replay(): Promise<Replay> {
    return new Promise((done, fail) => {
      if (this.#channel.closed) fail(keeperGone('read what is held'))
      this.#replay = { done, fail }
    })
  }

  /** From now on the listener hears the news, first what came since `replay`. */
  listen(listener: KeeperListener): void {
    this.#listener = listener
    const news = this.#news
    this.#news = []
    for (const tell of news) tell(listener)
  }

  /** Keeps a descriptor, a record or both under a name, instead of what was there. `wake`: see PROTOCOL.md. */
  hold(name: string, options: { fd?: number; record?: Uint8Array; wake?: boolean }): Promise<void> {
    return this.#ask(`hold ${name}`, {
      type: toKeeper.HOLD,
      flags: options.wake === true ? flag.WAKE : 0,
      name,
      payload: options.record ?? Buffer.alloc(0),
      fds: options.fd === undefined ? [] : [options.fd],
    })
  }

  /** Replaces the record of an entry. */
  record(name: string, record: Uint8Array): Promise<void> {
    return this.#ask(`record ${name}`, { type: toKeeper.RECORD, name, payload: record })
  }

  /** Closes everything of an entry in the keeper. */
  drop(name: string): Promise<void> {
    return this.#ask(`drop ${name}`, { type: toKeeper.DROP, name })
  }

  /** Makes the keeper read these to their end, into the log. */
  pump(name: string, options: PumpOptions): Promise<void> {
    const given = [
      [options.stdout, flag.OUT],
      [options.stderr, flag.ERR],
      [options.log, flag.LOG],
      [options.directory, flag.DIRECTORY],
    ] as const
    const fds: number[] = []
    let flags =
      (options.terminal === true ? flag.TERMINAL : 0) | (options.discard === true ? flag.DISCARD : 0)
    for (const [fd, bit] of given) {
      if (fd === undefined) continue
      fds.push(fd)
      flags |= bit
    }
    const logName = Buffer.from(options.directory === undefined ? '' : (options.logName ?? ''))
    return this.#ask(`pump ${name}`, {
      type: toKeeper.PUMP,
      flags,
      name,
      c: logName.length,
      b: options.limit ?? 0,
      payload: Buffer.concat([logName, options.record ?? Buffer.alloc(0)]),
      fds,
    })
  }

  /** Makes the pump go on in another file, from the next entry on. */
  relog(name: string, fd: number): Promise<void> {
    return this.#ask(`relog ${name}`, { type: toKeeper.RELOG, name, fds: [fd] })
  }

  /** Also sends what is read from here on into a unix stream socket; undefined ends that. */
  copy(name: string, stream: 0 | 1, options: { fd: number; patienceMs: number } | undefined): Promise<void> {
    return this.#ask(`copy ${name}`, {
      type: toKeeper.COPY,
      name,
      a: stream,
      b: options?.patienceMs ?? 0,
      fds: options === undefined ? [] : [options.fd],
    })
  }

  /** Keeps the exit status of a pid until it is claimed. False: the pid is neither alive nor remembered. */
  watch(pid: number): Promise<boolean> {
    return this.#find(`watch ${pid}`, { type: toKeeper.WATCH, a: pid })
  }

  /** The exit with this number is dealt with. */
  claimed(number: number): Promise<void> {
    return this.#ask(`claim exit ${number}`, { type: toKeeper.CLAIMED, a: number })
  }

  /** Signals a child of the keeper. False: it is gone. */
  kill(pid: number, signal: number): Promise<boolean> {
    return this.#find(`kill ${pid}`, { type: toKeeper.KILL, a: pid, b: signal })
  }

  /**
   * The launcher may write the pidfile and leave. The keeper removes these files at the end; call again to change them.
   * `keepStdout`: later servers shall have the launch's stdout; without it this server should let go of its own, too.
   */
  ready(options: { pidfile?: string; sockets: readonly string[]; keepStdout?: boolean }): Promise<void> {
    const paths = [options.pidfile ?? '', ...options.sockets].map((path) => `${path}\0`).join('')
    return this.#ask('tell that the server is ready', {
      type: toKeeper.READY,
      flags: options.keepStdout === true ? flag.KEEP_STDOUT : 0,
      payload: Buffer.from(paths),
    })
  }

  /** The first server cannot serve: the launcher prints the text and exits with the code. The caller exits then. */
  failed(code: number, text: string): Promise<void> {
    const message = { type: toKeeper.FAILED, a: code, payload: Buffer.from(text) }
    return this.#ask('tell that the server has failed', message)
  }

  /** The caller exits with 0 right after: the keeper starts a server when there is something to do. */
  sleep(): void {
    this.#channel.send({ type: toKeeper.SLEEP, a: this.#channel.heard })
  }

  /** The caller exits then, and the keeper with this code. */
  quit(code: number): void {
    this.#channel.send({ type: toKeeper.QUIT, a: code })
  }

  /** These signals are dealt with. */
  sigack(signals: readonly number[]): void {
    this.#channel.send({ type: toKeeper.SIGACK, a: maskOf(signals) })
  }

  /** Ends the watching of the channel; the descriptor stays open. For tests. */
  close(): void {
    this.#channel.close()
  }

  async #find(what: string, message: Outgoing): Promise<boolean> {
    const errno = await this.#channel.request(what, message)
    if (errno !== 0 && errno !== constants.errno.ESRCH) throw refusal(what, errno)
    return errno === 0
  }

  async #ask(what: string, message: Outgoing): Promise<void> {
    const errno = await this.#channel.request(what, message)
    if (errno !== 0) throw refusal(what, errno)
  }

  #take(message: Incoming, fds: readonly number[]): void {
    const pump = decodePumpState(message)
    switch (message.type) {
      case toServer.HELD: {
        const record = pump === undefined ? message.payload : message.payload.subarray(8 * state.WORDS)
        const wake = (message.flags & flag.WAKE) !== 0
        this.#entries.push({ name: message.name, record, fd: fds[0], wake, pump })
        break
      }
      case toServer.EXITED: {
        const exit = decodeExit(message)
        if (this.#synced) this.#tell((listener) => listener.exited(exit))
        else this.#exits.push(exit)
        break
      }
      case toServer.SIGNALLED: {
        const signals = signalsOf(message.a)
        if (this.#synced) this.#tell((listener) => listener.signalled(signals))
        else this.#signals = signals
        break
      }
      case toServer.PUMPED:
        if (pump !== undefined) this.#tell((listener) => listener.pumped(message.name, pump))
        break
      case toServer.SYNC:
        this.#replayed(message)
        break
      default: // a newer keeper's message: not for us
    }
  }

  #replayed(message: Incoming): void {
    this.#synced = true
    this.#replay?.done({
      entries: this.#entries,
      exits: this.#exits,
      signals: this.#signals,
      incarnation: Number(message.a),
      keeperPid: Number(message.b),
      protocol: message.c,
    })
    this.#replay = undefined
    this.#entries = []
    this.#exits = []
    this.#signals = []
  }

  #tell(news: (listener: KeeperListener) => void): void {
    if (this.#listener === undefined) this.#news.push(news)
    else news(this.#listener)
  }
}
