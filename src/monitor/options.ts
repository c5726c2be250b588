// The monitor's command line, conmon-rs's to the letter where clients can see it: flags, CONMON_ twins, messages, codes.

import { existsSync, mkdirSync, statSync } from 'node:fs'
import type { DiagnosticLevel } from '../base/diagnostics.ts'
import { MonitorError, messageOf } from '../base/errors.ts'

export interface MonitorOptions {
  readonly runtimePath: string
  readonly runtimeDirectory: string
  readonly runtimeRoot: string | undefined
  readonly logLevel: DiagnosticLevel | 'off'
  readonly logDriver: 'none' | 'stdout' | 'systemd'
}

/** What the command line asks for: run, or print and leave. */
export type Invocation = { readonly run: MonitorOptions } | { readonly print: string }

/** A command line that cannot be understood: exit code 2. */
export class UsageError extends Error {}

interface Flag {
  readonly long: string
  readonly short?: string
  readonly env?: string
  readonly value: 'none' | 'required' | 'optional'
}

const flags: readonly Flag[] = [
  { long: 'version', short: 'v', env: 'CONMON_VERSION', value: 'optional' },
  { long: 'version-json', short: 'j', env: 'CONMON_VERSION_JSON', value: 'optional' },
  { long: 'vj', value: 'optional' },
  { long: 'log-level', short: 'l', env: 'CONMON_LOG_LEVEL', value: 'required' },
  { long: 'log-driver', short: 'd', env: 'CONMON_LOG_DRIVER', value: 'required' },
  { long: 'runtime', short: 'r', env: 'CONMON_RUNTIME', value: 'required' },
  { long: 'runtime-dir', env: 'CONMON_RUNTIME_DIR', value: 'required' },
  { long: 'runtime-root', env: 'CONMON_RUNTIME_ROOT', value: 'required' },
  { long: 'skip-fork', env: 'CONMON_SKIP_FORK', value: 'none' },
  { long: 'enable-tracing', short: 'e', env: 'CONMON_ENABLE_TRACING', value: 'none' },
  { long: 'tracing-endpoint', short: 't', env: 'CONMON_TRACING_ENDPOINT', value: 'required' },
  // Gone from conmon-rs 1.0, still sent by older clients: accepted, and each request says its own.
  { long: 'cgroup-manager', short: 'c', value: 'required' },
  { long: 'help', short: 'h', value: 'none' },
]

export const usage = `Usage: holdfast-monitor [OPTIONS]
       holdfast-monitor pause --pod-id ID [--base-path DIR] [--ipc] [--net] [--uts]

The monitor of one pod: keeps its containers' stdio, writes their logs, serves exec, attach and port-forward.
A container runtime starts it and speaks conmon-rs's Cap'n Proto RPC on DIR/conmon.sock.

Options (environment in brackets):
  -r, --runtime PATH        OCI runtime, runc or crun [CONMON_RUNTIME]
      --runtime-dir DIR     sockets and pidfile; one monitor per directory [CONMON_RUNTIME_DIR]
      --runtime-root DIR    --root of the OCI runtime [CONMON_RUNTIME_ROOT]
  -l, --log-level LEVEL     trace, debug, info, warn, error or off; default info [CONMON_LOG_LEVEL]
  -d, --log-driver DRIVER   the monitor's own messages: none, stdout or systemd; default systemd [CONMON_LOG_DRIVER]
      --skip-fork           stay in the foreground and write no pidfile [CONMON_SKIP_FORK]
  -v, --version[=full]      print the version
  -j, --version-json[=full] print the version as JSON
  -e, --enable-tracing      accepted for conmon-rs's clients
  -t, --tracing-endpoint URL
  -c, --cgroup-manager NAME accepted for clients of conmon-rs before 1.0
  -h, --help                print this
`

/** Parses arguments over environment. Throws UsageError (exit code 2) or MonitorError (exit code 1). */
export function parseOptions(
  args: readonly string[],
  env: Readonly<Record<string, string | undefined>>,
  version: { readonly text: (full: boolean) => string; readonly json: (full: boolean) => string },
): Invocation {
  const given = parseArguments(args)
  if (given.has('help')) return { print: usage }
  for (const [name, print] of [
    ['version', version.text],
    ['version-json', version.json],
    ['vj', version.json],
  ] as const) {
    const detail = given.get(name)
    if (detail === undefined) continue
    if (!['', 'default', 'full'].includes(detail)) {
      throw new UsageError(
        `invalid value '${detail}' for '--${name}[=<FORMAT>]'\n  [possible values: default, full]`,
      )
    }
    return { print: print(detail === 'full') }
  }
  const valueOf = (name: string): string | undefined => {
    const flag = flags.find((other) => other.long === name)
    return given.get(name) ?? (flag?.env === undefined ? undefined : env[flag.env])
  }
  return { run: checkOptions(valueOf) }
}

function parseArguments(args: readonly string[]): Map<string, string> {
  const given = new Map<string, string>()
  for (let i = 0; i < args.length; i++) {
    const argument = args[i] ?? ''
    const [flag, inline] = splitFlag(argument)
    if (flag === undefined) throw new UsageError(`unexpected argument '${argument}' found`)
    let value = inline
    if (value === undefined && flag.value === 'required') value = args[++i]
    if (value === undefined && flag.value === 'required') {
      throw new UsageError(`a value is required for '--${flag.long} <VALUE>' but none was supplied`)
    }
    if (inline !== undefined && flag.value === 'none') {
      throw new UsageError(`unexpected value '${inline}' for '--${flag.long}' found; no more were expected`)
    }
    given.set(flag.long, value ?? '')
  }
  return given
}

/** `--name=value`, `--name`, `-nvalue`, `-n=value` or `-n`. */
function splitFlag(argument: string): [Flag | undefined, string | undefined] {
  if (argument.startsWith('--')) {
    const equals = argument.indexOf('=')
    const name = equals < 0 ? argument.slice(2) : argument.slice(2, equals)
    return [flags.find((flag) => flag.long === name), equals < 0 ? undefined : argument.slice(equals + 1)]
  }
  const flag = argument.startsWith('-') ? flags.find((other) => other.short === argument[1]) : undefined
  const rest = argument.slice(2).replace(/^=/, '')
  return [flag, rest === '' ? undefined : rest]
}

function checkOptions(valueOf: (name: string) => string | undefined): MonitorOptions {
  const logLevel = oneOf('log-level', valueOf('log-level') ?? 'info', [
    'trace',
    'debug',
    'info',
    'warn',
    'error',
    'off',
  ])
  const logDriver = oneOf('log-driver', valueOf('log-driver') ?? 'systemd', ['none', 'stdout', 'systemd'])
  const runtimePath = valueOf('runtime') ?? ''
  if (runtimePath === '')
    throw new MonitorError('invalid-argument', 'validate config: --runtime flag not set')
  if (!existsSync(runtimePath)) {
    throw new MonitorError(
      'invalid-argument',
      `validate config: runtime path '${runtimePath}' does not exist`,
    )
  }
  const runtimeDirectory = valueOf('runtime-dir') ?? ''
  if (runtimeDirectory === '')
    throw new MonitorError('invalid-argument', 'validate config: --runtime-dir flag not set')
  makeDirectory('runtime-dir', runtimeDirectory)
  const runtimeRoot = valueOf('runtime-root')
  if (runtimeRoot !== undefined) makeDirectory('runtime-root', runtimeRoot)
  return {
    runtimePath,
    runtimeDirectory,
    runtimeRoot,
    logLevel: logLevel === 'trace' ? 'debug' : logLevel,
    logDriver,
  }
}

function oneOf<const T extends string>(name: string, value: string, values: readonly T[]): T {
  const known = values.find((other) => other === value)
  if (known !== undefined) return known
  throw new UsageError(
    `invalid value '${value}' for '--${name} <VALUE>'\n  [possible values: ${values.join(', ')}]`,
  )
}

function makeDirectory(flag: string, path: string): void {
  try {
    mkdirSync(path, { recursive: true, mode: 0o755 })
  } catch (error) {
    throw new MonitorError(
      'invalid-argument',
      `validate config: create --${flag} ${path}: ${messageOf(error)}`,
    )
  }
  if (!statSync(path).isDirectory()) {
    throw new MonitorError('invalid-argument', `validate config: --${flag} ${path} is not a directory`)
  }
}
