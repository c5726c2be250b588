// C conmon, driven as CRI-O and podman do: one for each container, started with a pipe on which it tells the pid.

import { spawn } from 'node:child_process'
import { mkdir } from 'node:fs/promises'
import { join } from 'node:path'
import type { Readable } from 'node:stream'
import { hostProgram } from '../interop/programs.ts'

export interface ConmonContainer {
  readonly log: string
  /** Written when the container has exited and the log is whole. */
  readonly exitFile: string
  /** A seqpacket socket, as our attachContainer makes one. */
  readonly attachSocket: string
}

/** Creates a container under a conmon of its own; its files are in `directory`. */
export async function createUnderConmon(options: {
  readonly id: string
  readonly bundle: string
  readonly directory: string
  readonly runtimePath: string
  readonly runtimeRoot: string
}): Promise<ConmonContainer> {
  const { id, bundle, directory, runtimePath, runtimeRoot } = options
  const [exits, sockets] = [join(directory, 'exits'), join(directory, 'sockets')]
  await mkdir(exits, { recursive: true })
  await mkdir(sockets, { recursive: true })
  const log = join(directory, 'log')
  const flags = {
    '-c': id,
    '-u': id,
    '-n': id,
    '-r': runtimePath,
    '-b': bundle,
    '-p': join(directory, 'pidfile'),
    '-P': join(directory, 'conmon.pid'),
    '-l': `k8s-file:${log}`,
    '--exit-dir': exits,
    '--socket-dir-path': sockets,
    '--log-level': 'error',
  }
  const runtimeArgs = ['--runtime-arg', '--root', '--runtime-arg', runtimeRoot]
  const args = [...Object.entries(flags).flat(), ...runtimeArgs]
  const child = spawn(hostProgram('conmon'), args, {
    stdio: ['ignore', 'ignore', 'inherit', 'pipe'],
    env: { ...process.env, _OCI_SYNCPIPE: '3' },
  })
  let answer = ''
  // One line; conmon itself keeps the pipe open.
  for await (const chunk of child.stdio[3] as Readable) {
    answer += String(chunk)
    if (answer.includes('\n')) break
  }
  const pid = /"pid":\s*(-?\d+)/.exec(answer)?.[1]
  if (pid === undefined || Number(pid) <= 0) throw new Error(`conmon did not create ${id}: ${answer}`)
  return { log, exitFile: join(exits, id), attachSocket: join(sockets, id, 'attach') }
}
