// One exec or attach session in front of a person or in a pipeline: stdin, the terminal and its keys to the session.

import type { Readable } from 'node:stream'
import { ReadStream, WriteStream } from 'node:tty'
import type { TerminalSize } from '../base/remote-stdio.ts'
import { DETACH_TIMEOUT_MS } from '../base/limits.ts'
import { DetachKeys } from './detach-keys.ts'
import { LocalTerminal } from './local-terminal.ts'
import type { SessionEnd } from './session-end.ts'
import { WebSocketSession, type SessionOutput } from './websocket-session.ts'

/** The local end of a session. */
export interface LocalStdio extends SessionOutput {
  readonly stdin: Readable
}

/** What kind of session it is. */
export interface Interaction {
  /** The URL from the monitor. */
  readonly url: string
  /** Pass stdin on. */
  readonly stdin: boolean
  /** The remote end is a terminal. */
  readonly tty: boolean
  /** Typed in a terminal, these end the session and leave the container alone; empty: nothing does. */
  readonly detachKeys: Buffer
  /** Make what runs there paint its screen anew. */
  readonly redraw: boolean
  /** Runs when the session is open, before input is sent; a rejection ends it. */
  readonly whenOpen?: () => Promise<void>
}

/** Runs the session to its end. The terminal is as it was when this returns or throws. */
export async function interact(interaction: Interaction, local: LocalStdio): Promise<SessionEnd> {
  let session: WebSocketSession | undefined
  let stopInput = (): void => {}
  // Raw before there is a session: its size can then be sent at once, and nothing is painted in the wrong mode.
  const terminal = openTerminal(interaction, local, (size) => session?.resize(size))
  try {
    const opened = await WebSocketSession.open(interaction.url, local)
    session = opened
    if (terminal?.size !== undefined) announce(opened, terminal.size, interaction.redraw)
    await interaction.whenOpen?.()
    if (!interaction.stdin) return await opened.ended
    const input = new Input(opened, local.stdin, terminal === undefined ? noKeys : interaction.detachKeys)
    stopInput = () => input.stop()
    const end = await opened.ended
    return input.detached ? { kind: 'detached' } : end
  } finally {
    stopInput()
    terminal?.restore()
    session?.hangUp()
  }
}

const noKeys = Buffer.alloc(0)

/** The terminal in front of us, where one end is a terminal and the other types. */
function openTerminal(
  { tty, stdin }: Interaction,
  local: LocalStdio,
  onResize: (size: TerminalSize) => void,
): LocalTerminal | undefined {
  if (!tty || !stdin || !(local.stdin instanceof ReadStream)) return undefined
  const screen = [local.stdout, local.stderr].find((stream) => stream instanceof WriteStream)
  return new LocalTerminal(local.stdin, screen, onResize)
}

/** stdin on its way to the session, but for the detach keys. */
class Input {
  readonly #session: WebSocketSession
  readonly #stdin: Readable
  readonly #keys: DetachKeys
  #goodbye: NodeJS.Timeout | undefined
  detached = false

  constructor(session: WebSocketSession, stdin: Readable, detachKeys: Buffer) {
    this.#session = session
    this.#stdin = stdin
    this.#keys = new DetachKeys(detachKeys, this.#send, this.#detach)
    session.onDrain = () => stdin.resume()
    // An error of stdin is its end: a terminal that is gone gives EIO.
    stdin.on('data', this.#typed).on('end', this.#ended).on('error', this.#ended)
  }

  /** Takes no more: what is not read yet is for whoever reads stdin next. */
  stop(): void {
    clearTimeout(this.#goodbye)
    this.#session.onDrain = undefined
    this.#stdin.off('data', this.#typed).off('end', this.#ended)
    this.#stdin.pause()
  }

  readonly #typed = (chunk: Buffer): void => this.#keys.write(chunk)

  readonly #send = (bytes: Buffer): void => {
    if (!this.#session.sendInput(bytes)) this.#stdin.pause()
  }

  readonly #ended = (): void => {
    this.#keys.flush()
    this.#session.endInput()
  }

  /** To the server the end of a terminal's input means detach; it answers with the end of the session. */
  readonly #detach = (): void => {
    this.detached = true
    this.#session.endInput()
    this.#goodbye = setTimeout(() => this.#session.hangUp(), DETACH_TIMEOUT_MS)
  }
}

/** The size, and for what is running already a size that differs first, so that it paints its screen. */
function announce(session: WebSocketSession, size: TerminalSize, redraw: boolean): void {
  if (redraw) session.resize({ width: size.width + 1, height: size.height + 1 })
  session.resize(size)
}
