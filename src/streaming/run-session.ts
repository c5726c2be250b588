// The one place that decides the order of a session: streams are there → run → status → close.

import { messageOf } from '../base/errors.ts'
import type { ExitStatus } from '../base/remote-stdio.ts'
import type { SessionOutcome } from '../wire/remote-status.ts'
import type { AttachSession, ExecSession, StreamingBackend } from './session.ts'
import type { Transport } from './transport.ts'

/** Sessions that a backend serves with a RemoteStdio. */
export type StdioSession = ExecSession | AttachSession

/** Runs an exec or attach session to its end. Never rejects: a failure is told to the client. */
export async function runSession(
  session: StdioSession,
  backend: StreamingBackend,
  transport: Transport,
): Promise<void> {
  transport.finish(await outcomeOf(session, backend, transport))
}

async function outcomeOf(
  session: StdioSession,
  backend: StreamingBackend,
  transport: Transport,
): Promise<SessionOutcome> {
  try {
    if (session.kind === 'exec') return exited(await backend.exec(session, transport.stdio))
    // Attach never reports the container's exit code.
    await backend.attach(session, transport.stdio)
    return { kind: 'success' }
  } catch (error) {
    return failureOf(session, messageOf(error))
  }
}

/** A failure of this session in the words of k8s.io/cri-streaming. */
export function failureOf(session: StdioSession, message: string): SessionOutcome {
  const step =
    session.kind === 'exec' ? 'error executing command in container' : 'error attaching to container'
  return { kind: 'failed', message: `${step}: ${message}` }
}

function exited(status: ExitStatus): SessionOutcome {
  return { kind: 'exited', status }
}
