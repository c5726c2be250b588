// Exec and attach sessions with the containers of a rig, over either transport.

import assert from 'node:assert/strict'
import type { Rig } from './rig.ts'
import { openSession, type SessionClient, type SessionEnd, type TransportName } from './session-client.ts'

export interface ExecOptions {
  readonly id: string
  readonly command: readonly string[]
  readonly transport: TransportName
  readonly tty?: boolean
  readonly stdin?: boolean
}

export interface AttachOptions {
  readonly id: string
  readonly transport: TransportName
  readonly tty?: boolean
  readonly stdin?: boolean
  readonly stdout?: boolean
  readonly stdinOnce?: boolean
}

/** How a session ended, and all that came. */
export interface Finished {
  readonly end: SessionEnd
  readonly stdout: Buffer
  readonly stderr: Buffer
}

/** Resolves when the session is set up; the process may not be there yet. */
export async function openExec(rig: Rig, exec: ExecOptions): Promise<SessionClient> {
  const { tty = false, stdin = false } = exec
  const streams = { tty, stdin, stdout: true, stderr: !tty }
  const url = await rig.client.serveExec({ id: exec.id, command: exec.command, ...streams })
  return openSession(exec.transport, url, streams)
}

export async function openAttach(rig: Rig, attach: AttachOptions): Promise<SessionClient> {
  const { tty = false, stdin = false, stdout = true } = attach
  const streams = { tty, stdin, stdout, stderr: stdout && !tty }
  const once = attach.stdinOnce === undefined ? {} : { stdinOnce: attach.stdinOnce }
  const url = await rig.client.serveAttach({ id: attach.id, ...streams, ...once })
  return openSession(attach.transport, url, streams)
}

/** Runs a command to its end. With input, sends it and ends stdin in the same frame where that is possible. */
export async function runExec(rig: Rig, exec: ExecOptions, input?: string | Buffer): Promise<Finished> {
  const session = await openExec(rig, input === undefined ? exec : { ...exec, stdin: true })
  if (input !== undefined) session.sendLast(input)
  return finish(session)
}

export async function finish(session: SessionClient): Promise<Finished> {
  const end = await session.ended
  return { end, stdout: session.stdout(), stderr: session.stderr() }
}

/** The failure's text; fails for a session that has an exit code. */
export function failureOf(end: SessionEnd): string {
  return 'failure' in end ? end.failure : assert.fail(`ended with ${JSON.stringify(end)}, not with a failure`)
}
