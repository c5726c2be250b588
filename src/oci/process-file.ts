// The process of an exec, as `runc exec --process` takes it: the container's own process from config.json, with another
// command. So user, directory, environment, capabilities and limits are the container's with either runtime: crun 1.8
// takes none of them otherwise.

import { readFileSync } from 'node:fs'
import { join } from 'node:path'
import { MonitorError } from '../base/errors.ts'

interface ProcessSpec {
  readonly env?: readonly string[]
}

/** The JSON text. Throws when the bundle's config.json cannot be read. */
export function processFileText(bundlePath: string, command: readonly string[], terminal: boolean): string {
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
  return JSON.stringify({ ...spec, env: withTerm, args: command, terminal, consoleSize: undefined })
}
