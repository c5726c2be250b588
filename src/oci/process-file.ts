// The process of an exec, as `runc exec --process` takes it: the container's own process from config.json, with another
// command. So user, directory, environment, capabilities and limits are the container's with either runtime: crun 1.8
// takes none of them otherwise.

import { readFileSync } from 'node:fs'
import { join } from 'node:path'
import { MonitorError } from '../base/errors.ts'

interface ProcessSpec {
  readonly env?: readonly string[]
  readonly oomScoreAdj?: number
}

/** What an exec changes. */
export interface ProcessChange {
  readonly command: readonly string[]
  readonly terminal: boolean
  /** Of the terminal, when it is known already. */
  readonly size: { readonly width: number; readonly height: number } | undefined
}

/** The kernel's limits on one string and, with the usual stack limit, on all of them: execve(2). */
const maxStringBytes = 128 * 1024
const maxTotalBytes = 2 * 1024 * 1024

export interface ProcessFile {
  /** The JSON. */
  readonly text: string
  /** What crun does not apply to an exec: to be set before it is started. */
  readonly oomScoreAdj: number | undefined
}

/**
 * The process file of an exec. Throws `invalid-argument` for what execve would refuse, which crun and runc tell only afterwards, and when
 * the bundle's config.json cannot be read.
 */
export function processFileOf(bundlePath: string, process: ProcessChange): ProcessFile {
  const { command, terminal, size } = process
  const path = join(bundlePath, 'config.json')
  let spec: ProcessSpec
  try {
    const config = JSON.parse(readFileSync(path, 'utf8')) as { process?: ProcessSpec }
    spec = config.process ?? {}
  } catch (error) {
    throw MonitorError.within(`read ${path}`, error)
  }
  const env = spec.env ?? []
  // TERM as containerd sets it, where the container says none.
  const withTerm = terminal && !env.some((entry) => entry.startsWith('TERM=')) ? [...env, 'TERM=xterm'] : env
  checkSize([...command, ...withTerm])
  const text = JSON.stringify({ ...spec, env: withTerm, args: command, terminal, consoleSize: size })
  return { text, oomScoreAdj: spec.oomScoreAdj }
}

function checkSize(strings: readonly string[]): void {
  const sizes = strings.map((text) => Buffer.byteLength(text) + 1)
  const total = sizes.reduce((sum, size) => sum + size, 0)
  if (total <= maxTotalBytes && sizes.every((size) => size <= maxStringBytes)) return
  throw new MonitorError(
    'invalid-argument',
    `argument list too long: at most ${maxStringBytes} bytes a string and ${maxTotalBytes} bytes in all (E2BIG)`,
  )
}
