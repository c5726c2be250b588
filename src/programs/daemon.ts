// holdfastd: reads the command line, then runs the daemon until it is told to end.

import { accessSync, constants, existsSync, writeSync } from 'node:fs'
import { dirname, join, resolve } from 'node:path'
import { fileURLToPath } from 'node:url'
import { parseArgs } from 'node:util'
import { Diagnostics } from '../base/diagnostics.ts'
import type { DiagnosticLevel } from '../base/diagnostics.ts'
import { messageOf, MonitorError } from '../base/errors.ts'
import { DEFAULT_ENDPOINT, DEFAULT_STATE_DIRECTORY } from '../client/pod-state.ts'
import { Daemon } from '../cri/daemon.ts'
import type { DaemonOptions } from '../cri/daemon.ts'
import { flock } from '../native/addon.ts'

const version = '0.1.0'

const usage = `usage: holdfastd [OPTION…]
A container runtime (CRI v1, gRPC) whose exec, attach and port-forward sessions outlive it.

  --state DIR           where pods and containers are kept (${DEFAULT_STATE_DIRECTORY}; or $HOLDFAST_STATE)
  --socket PATH         where clients connect (${DEFAULT_ENDPOINT}; or $HOLDFAST_ENDPOINT)
  --runtime PATH        the OCI runtime (runc, else crun, of $PATH)
  --monitor PATH        the holdfast-monitor program (beside this one)
  --image NAME=ROOTFS   a directory as an image, beside the built-in busybox; ROOTFS.json, if there, is its OCI
                        image configuration; may be given again
  --log-level LEVEL     debug, info (default), warn, error or off
  --version, -v         print the version
  --help, -h            print this
`

const logLevels = ['debug', 'info', 'warn', 'error', 'off'] as const

const here = dirname(fileURLToPath(import.meta.url))

/** Thrown for a command line that makes no sense. */
class UsageError extends Error {}

function print(fd: 1 | 2, text: string): void {
  try {
    writeSync(fd, text)
  } catch {
    // Nobody reads what the daemon says: no reason to end.
  }
}

function readOptions(): DaemonOptions | 'printed' {
  const { values } = parseCommandLine()
  if (values.help) {
    print(1, usage)
    return 'printed'
  }
  if (values.version) {
    print(1, `holdfastd ${version}\n`)
    return 'printed'
  }
  const { env } = process
  const logLevel = logLevels.find((level) => level === (values['log-level'] ?? 'info'))
  if (logLevel === undefined)
    throw new UsageError(`--log-level: ${values['log-level']} is none of ${logLevels.join(', ')}`)
  const socket = values.socket ?? env['HOLDFAST_ENDPOINT'] ?? DEFAULT_ENDPOINT
  return {
    state: resolve(values.state ?? env['HOLDFAST_STATE'] ?? DEFAULT_STATE_DIRECTORY),
    socket: resolve(socket.replace(/^unix:(\/\/)?/, '')),
    runtimePath: program('--runtime', values.runtime, inPath('runc') ?? inPath('crun')),
    monitorPath: program('--monitor', values.monitor, besides('holdfast-monitor')),
    protoPath: firstExisting([join(here, 'cri.proto'), resolve(here, '../../../proto/cri.proto')]),
    images: (values.image ?? []).map(readImage),
    logLevel,
    version,
    diagnostics: new Diagnostics((line) => print(2, line), logLevel satisfies DiagnosticLevel | 'off'),
    lock: flock,
  }
}

function parseCommandLine() {
  try {
    return parseArgs({
      options: {
        state: { type: 'string' },
        socket: { type: 'string' },
        runtime: { type: 'string' },
        monitor: { type: 'string' },
        image: { type: 'string', multiple: true },
        'log-level': { type: 'string' },
        version: { type: 'boolean', short: 'v', default: false },
        help: { type: 'boolean', short: 'h', default: false },
      },
    })
  } catch (error) {
    throw new UsageError(messageOf(error))
  }
}

function readImage(text: string): readonly [string, string] {
  const at = text.indexOf('=')
  if (at < 1 || at === text.length - 1)
    throw new UsageError(`--image ${text}: NAME=ROOTFS_DIRECTORY is wanted`)
  return [text.slice(0, at), resolve(text.slice(at + 1))]
}

/** The program that was named, or the usual one. Found out now, not when the first pod starts. */
function program(option: string, named: string | undefined, usual: string | undefined): string {
  const path = named === undefined ? usual : named.includes('/') ? resolve(named) : inPath(named)
  if (path === undefined) {
    const looked = named === undefined ? 'none was found' : `${named} is not in $PATH`
    throw new MonitorError('not-found', `${option}: ${looked}; name its path`)
  }
  if (!isProgram(path)) throw new MonitorError('not-found', `${option}: ${path} is no program`)
  return path
}

/** Also where root's programs are, which a user's $PATH may lack. */
function inPath(name: string): string | undefined {
  const directories = [...(process.env['PATH'] ?? '').split(':'), '/usr/local/sbin', '/usr/sbin', '/sbin']
  return directories
    .filter((directory) => directory.startsWith('/'))
    .map((directory) => join(directory, name))
    .find(isProgram)
}

/** dist/bin, seen from the bundle in dist/lib/holdfast or from the compiled file in dist/src/programs. */
function besides(name: string): string | undefined {
  return [dirname(process.argv[1] ?? here), resolve(here, '../../bin')]
    .map((directory) => join(directory, name))
    .find(isProgram)
}

function isProgram(path: string): boolean {
  try {
    accessSync(path, constants.X_OK)
    return true
  } catch {
    return false
  }
}

function firstExisting(paths: readonly string[]): string {
  const found = paths.find((path) => existsSync(path))
  if (found === undefined) throw new MonitorError('not-found', `the installation lacks ${paths[0]}`)
  return found
}

async function run(options: DaemonOptions): Promise<void> {
  if (process.getuid?.() !== 0) throw new MonitorError('failed-precondition', 'holdfastd must run as root')
  const daemon = new Daemon(options)
  const ended = new Promise<NodeJS.Signals>((resolveEnd) => {
    for (const signal of ['SIGTERM', 'SIGINT'] as const) process.once(signal, resolveEnd)
  })
  try {
    await daemon.start()
    options.diagnostics.info(`${await ended}: ending; pods run on`)
  } finally {
    await daemon.close()
  }
}

async function main(): Promise<void> {
  try {
    const options = readOptions()
    if (options !== 'printed') await run(options)
  } catch (error) {
    const wrongUsage = error instanceof UsageError
    print(2, wrongUsage ? `error: ${error.message}\n\n${usage}` : `holdfastd: ${messageOf(error)}\n`)
    process.exitCode = wrongUsage ? 2 : 1
  }
}

void main()
