// The server that the keeper starts: takes over what is held, listens, says `ready`, and leaves when it is told to.

import {
  closeSync,
  constants,
  openSync,
  readFileSync,
  readlinkSync,
  rmSync,
  writeSync,
  ftruncateSync,
} from 'node:fs'
import { join } from 'node:path'
import { Diagnostics } from '../base/diagnostics.ts'
import { MonitorError, messageOf } from '../base/errors.ts'
import { ExitTable } from '../container/exit-table.ts'
import type { ContainerContext } from '../container/context.ts'
import { KeeperClient, type HeldEntry } from '../keeper/keeper-client.ts'
import { Monitor } from '../monitor/monitor.ts'
import { UsageError, parseOptions, type MonitorOptions } from '../monitor/options.ts'
import { OwnCgroup } from '../monitor/own-cgroup.ts'
import { restore, type Held } from '../monitor/restore.ts'
import { versionJson, versionText } from '../monitor/version.ts'
import { flock } from '../native/addon.ts'
import { listenUnix } from '../native/unix-socket.ts'
import { OciRuntime } from '../oci/oci-runtime.ts'
import { RpcServer } from '../rpc/rpc-server.ts'

// Only the keeper's signals count; orders come as `signalled`.
for (const signal of ['SIGTERM', 'SIGINT', 'SIGHUP'] as const) process.on(signal, () => undefined)

const keeper = new KeeperClient()
main().catch((error: unknown) => {
  // The keeper restarts a server that dies, and the next one reports these last words.
  process.stderr.write(`${error instanceof Error ? (error.stack ?? error.message) : String(error)}\n`)
  process.exit(1)
})

async function main(): Promise<void> {
  const options = await parseCommandLine()
  if (options === undefined) return
  const snapshot = await keeper.replay()
  const diagnostics = openDiagnostics(options)
  const held: Held = new Map(snapshot.entries.map((entry) => [entry.name, entry]))
  await reportLastWords(held, snapshot.incarnation, diagnostics)
  let rpcListener: number
  try {
    rpcListener = await openListener(options, held, snapshot.keeperPid)
  } catch (error) {
    await giveUp(1, `Error: ${messageOf(error)}`)
    return
  }
  const launcher = readlinkSync(`/proc/${snapshot.keeperPid}/exe`)
  const exits = new ExitTable(keeper)
  const context: ContainerContext = {
    keeper,
    exits,
    runtime: new OciRuntime({ path: options.runtimePath, root: options.runtimeRoot, launcher }),
    diagnostics,
    directory: options.runtimeDirectory,
    launcher,
  }
  const ownCgroup = new OwnCgroup(snapshot.keeperPid, diagnostics)
  const monitor = new Monitor({ context, keeperPid: snapshot.keeperPid, ownCgroup })
  const rpc = new RpcServer({ calls: monitor, diagnostics })
  for (const exit of snapshot.exits) exits.exited(exit)
  keeper.listen({
    pumped: (name, state) => monitor.pumped(name, state),
    exited: (exit) => exits.exited(exit),
    signalled: (signals) => {
      stop(monitor, rpc, signals).catch((error: unknown) => {
        diagnostics.error(`stop: ${messageOf(error)}`)
        process.exit(1)
      })
    },
    closed: () => process.exit(1),
  })
  await restore(monitor, context, held)
  handleUnknown(held, monitor, diagnostics)
  rpc.listen(rpcListener)
  await keeper.ready({
    pidfile: join(options.runtimeDirectory, 'pidfile'),
    sockets: [join(options.runtimeDirectory, 'conmon.sock')],
    keepStdout: options.logDriver === 'stdout',
  })
  if (options.logDriver !== 'stdout') letGoOfStdout()
  if (snapshot.incarnation <= 1) reportOomScore(snapshot.keeperPid, diagnostics)
  if (snapshot.signals.length > 0) await stop(monitor, rpc, snapshot.signals)
}

/** Undefined: the launcher has been told what to say. */
async function parseCommandLine(): Promise<MonitorOptions | undefined> {
  try {
    const invocation = parseOptions(process.argv.slice(2), process.env, {
      text: versionText,
      json: versionJson,
    })
    if ('run' in invocation) return invocation.run
    writeSync(1, invocation.print)
    await giveUp(0, '')
  } catch (error) {
    if (error instanceof UsageError)
      await giveUp(2, `error: ${error.message}\n\nFor more information, try '--help'.`)
    else await giveUp(1, `Error: ${messageOf(error)}`)
  }
  return undefined
}

async function giveUp(code: number, text: string): Promise<void> {
  await keeper.failed(code, text === '' ? '' : `${text}\n`)
  process.exit(code)
}

function openDiagnostics(options: MonitorOptions): Diagnostics {
  // Without a driver, what is said stays in the last words that the keeper holds.
  const fd = options.logDriver === 'stdout' ? 1 : 2
  const write = (line: string): void => {
    try {
      writeSync(fd, line)
    } catch {
      // Nobody listens: the monitor goes on.
    }
  }
  return new Diagnostics(write, options.logLevel)
}

/** How the predecessor died, and what it said last, as one diagnostic. */
async function reportLastWords(held: Held, incarnation: number, diagnostics: Diagnostics): Promise<void> {
  const entry = held.get('last-words')
  held.delete('last-words')
  if (entry === undefined || incarnation <= 1) return
  const how = entry.record.toString()
  let words = ''
  if (entry.fd !== undefined) {
    words = readFileSync(`/proc/self/fd/${entry.fd}`, 'utf8').trim().slice(-4096)
    closeSync(entry.fd)
  }
  diagnostics.warn(
    `the server before this one died${how === '' ? '' : ` (${how})`}${words === '' ? '' : `; its last words: ${words}`}`,
  )
  await keeper.drop('last-words')
}

/** The first server takes the lock and makes the socket; its successors find both among what is held. */
async function openListener(
  options: MonitorOptions,
  held: Map<string, HeldEntry>,
  keeperPid: number,
): Promise<number> {
  const listener = held.get('listener/rpc')
  held.delete('listener/rpc')
  const lock = held.get('lock')
  held.delete('lock')
  if (lock === undefined) await takeLock(options.runtimeDirectory, keeperPid)
  if (listener?.fd !== undefined) return listener.fd
  const path = join(options.runtimeDirectory, 'conmon.sock')
  // Nobody holds the lock: what is there is stale.
  for (const name of ['conmon.sock', 'conmon-fd.sock'])
    rmSync(join(options.runtimeDirectory, name), { force: true })
  const fd = listenUnix(path)
  await keeper.hold('listener/rpc', { fd })
  return fd
}

async function takeLock(directory: string, keeperPid: number): Promise<void> {
  const path = join(directory, 'monitor.lock')
  const fd = openSync(path, constants.O_RDWR | constants.O_CREAT, 0o644)
  if (!flock(fd)) {
    const owner = readFileSync(path, 'utf8').trim()
    throw new MonitorError(
      'already-exists',
      `lock ${path}: a monitor runs in this directory already, pid ${owner}`,
    )
  }
  ftruncateSync(fd)
  writeSync(fd, String(keeperPid), 0)
  await keeper.hold('lock', { fd })
}

function handleUnknown(held: Held, monitor: Monitor, diagnostics: Diagnostics): void {
  for (const [name, entry] of held) {
    if (entry.pump !== undefined) monitor.pumped(name, entry.pump)
    else diagnostics.warn(`${name} is held and not known: it is kept, and nothing is done with it`)
  }
}

/** Whoever waits for the launch's stdout to end would wait for the pod. */
function letGoOfStdout(): void {
  closeSync(1)
  openSync('/dev/null', constants.O_WRONLY)
}

/** Without the privilege to protect itself, the monitor may be killed before its containers. */
function reportOomScore(keeperPid: number, diagnostics: Diagnostics): void {
  const score = readFileSync(`/proc/${keeperPid}/oom_score_adj`, 'utf8').trim()
  if (score === '-1000') return
  diagnostics.warn(`the keeper's oom_score_adj stays ${score}: lowering it to -1000 takes CAP_SYS_RESOURCE`)
}

let stopping: Promise<void> | undefined

function stop(monitor: Monitor, rpc: RpcServer, signals: readonly number[]): Promise<void> {
  stopping ??= (async () => {
    rpc.close()
    await monitor.stop()
    keeper.sigack(signals)
    keeper.quit(0)
    process.exit(0)
  })()
  return stopping
}
