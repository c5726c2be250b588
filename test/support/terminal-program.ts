// Starts a program on a terminal that reaches us over a console socket, as from an OCI runtime (fixtures/terminal.c).

import { spawn } from 'node:child_process'
import { mkdtempSync, rmSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { ConsoleSocket } from '../../src/native/terminal.ts'
import { fixtureProgram } from './fixture-program.ts'

/** A program on a terminal: its master (the caller closes it), its pid, its exit code or signal. */
export interface OnTerminal {
  readonly master: number
  readonly pid: number
  readonly exited: Promise<number | NodeJS.Signals>
}

/** Runs a command on a new terminal, in raw mode unless told otherwise. */
export async function startOnTerminal(command: readonly string[], options = ['-r']): Promise<OnTerminal> {
  const directory = mkdtempSync(join(tmpdir(), 'holdfast-terminal-'))
  const socket = ConsoleSocket.listen(directory)
  const child = spawn(fixtureProgram('terminal'), [...options, socket.path, ...command], {
    stdio: ['ignore', 'ignore', 'inherit'],
  })
  const exited = new Promise<number | NodeJS.Signals>((resolve) => {
    child.on('exit', (code, signal) => resolve(code ?? signal ?? 'SIGKILL'))
  })
  try {
    const master = await socket.receive(AbortSignal.timeout(10_000))
    return { master, pid: child.pid ?? 0, exited }
  } finally {
    rmSync(directory, { recursive: true })
  }
}
