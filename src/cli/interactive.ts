// One exec or attach session in front of a person or in a pipeline: stdin, the terminal and its keys to the session.

import type { Readable } from 'node:stream'
import { ReadStream, WriteStream } from 'node:tty'
import type { TerminalSize } from '../base/remote-stdio.ts'
import { DetachKeys } from './detach-keys.ts'
import { LocalTerminal } from './local-terminal.ts'
import type { SessionEnd } from './session-end.ts'
import { WebSocketSession, type SessionOutput } from './websocket-session.ts'

/** How long a session may take to say goodbye after the person detached. */
const DETACH_MS = 1_000

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
  /** Runs when the session is open, before any input is sent; a rejection ends it. */
  readonly whenOpen?: () => Promise<void>
}

/** Runs the session to its end. The terminal is as it was when this returns or throws. */
export async function interact(interaction: Interaction, local: LocalStdio): Promise<SessionEnd> {
  const session = await WebSocketSession.open(interaction.url, local)
  let terminal: LocalTerminal | undefined
  let stopInput = (): void => {}
  let detached = false
  let goodbye: NodeJS.Timeout | undefined
  const detach = (): void => {
    detached = true
    // To the server the end of a terminal's input means detach; it answers with the end of the session.
    session.endInput()
    goodbye = setTimeout(() => session.hangUp(), DETACH_MS)
  }
  try {
    await interaction.whenOpen?.()
    if (interaction.tty && interaction.stdin && local.stdin instanceof ReadStream) {
      const screen = [local.stdout, local.stderr].find((stream) => stream instanceof WriteStream)
      terminal = new LocalTerminal(local.stdin, screen, (size) => session.resize(size))
      if (terminal.size !== undefined) announce(session, terminal.size, interaction.redraw)
    }
    const keys = new DetachKeys(
      terminal === undefined ? Buffer.alloc(0) : interaction.detachKeys,
      (bytes) => {
        if (!session.sendInput(bytes)) local.stdin.pause()
      },
      detach,
    )
    if (interaction.stdin) stopInput = passInput(session, local.stdin, keys)
    const end = await session.ended
    return detached ? { kind: 'detached' } : end
  } finally {
    clearTimeout(goodbye)
    stopInput()
    terminal?.restore()
    session.hangUp()
  }
}

/** Sends stdin to the session; returns what stops it. */
function passInput(session: WebSocketSession, stdin: Readable, keys: DetachKeys): () => void {
  const onData = (chunk: Buffer): void => keys.write(chunk)
  const onEnd = (): void => {
    keys.flush()
    session.endInput()
  }
  session.onDrain = () => stdin.resume()
  // An error of stdin is its end: a terminal that is gone gives EIO.
  stdin.on('data', onData).on('end', onEnd).on('error', onEnd)
  return () => {
    session.onDrain = undefined
    stdin.off('data', onData).off('end', onEnd)
    // Neither holds the process up any more nor eats what the shell is to read next.
    stdin.pause()
  }
}

/** The size, and for what is running already a size that differs first, so that it paints its screen. */
function announce(session: WebSocketSession, size: TerminalSize, redraw: boolean): void {
  if (redraw) session.resize({ width: size.width + 1, height: size.height + 1 })
  session.resize(size)
}
