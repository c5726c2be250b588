// Runs the OCI runtime for a create or an exec and hands over the new process's stdio: pipes, or the terminal that
// comes over the console socket. Our ends are held by the keeper before the runtime starts; on failure nothing stays.

import { closeSync, readFileSync, rmSync } from 'node:fs'
import { MonitorError, isErrno } from '../base/errors.ts'
import { Closers, withDeadline } from '../base/lifetime.ts'
import type { TerminalSize } from '../base/remote-stdio.ts'
import { pipe2, read, setNonblock, setWinsize } from '../native/addon.ts'
import { ConsoleSocket } from '../native/terminal.ts'
import type { OciRunResult } from '../oci/oci-runtime.ts'
import type { ContainerContext } from './context.ts'

export interface LaunchPlan {
  /** Starts every error: `create container c1`. */
  readonly what: string
  /** The keeper's name for this process; its descriptors are held as NAME/in, NAME/out, NAME/err. */
  readonly name: string
  readonly terminal: boolean
  readonly stdin: boolean
  /**
   * Whether stdin's write end and the terminal are held, too. Not for execs: there the server's death must close them,
   * since that is how the process learns that its client is gone.
   */
  readonly holdInput: boolean
  /** The OCI runtime writes the new process's pid there. */
  readonly pidFile: string
  readonly runtimePidFile: string
  readonly env: readonly (readonly [string, string])[]
  /** Of the OCI runtime, for its process to inherit: crun's exec sets none. Absent: that of the launch. */
  readonly oomScoreAdj?: number | undefined
  /** The size that a new terminal gets as soon as it is here: its process may be about to look (case B32). */
  readonly terminalSize?: () => TerminalSize | undefined
  args(consoleSocket: string | undefined): readonly string[]
}

/** A process and our ends of its stdio, non-blocking, owned by the caller. */
export interface Launched {
  readonly pid: number
  readonly stdin: number | undefined
  readonly stdout: number | undefined
  readonly stderr: number | undefined
  readonly terminal: number | undefined
}

/** What the OCI runtime said of its failure, at most. */
const maxErrorBytes = 4096
/** The terminal is on its way when the runtime has exited with 0. */
const consoleGraceMs = 2000
// oxlint-disable-next-line no-control-regex -- crun paints what it says on a terminal
const colours = /\x1b\[[\d;]*m/g

/** The process's descriptors; `theirs` are closed as soon as the runtime has them. */
interface Ends {
  readonly stdio: [number | undefined, number | undefined, number | undefined]
  readonly stdin: number | undefined
  readonly stdout: number | undefined
  readonly stderr: number | undefined
  /** Where the runtime's own complaints arrive: with pipes that is the process's stderr. */
  readonly complaints: number
  /** Closes the process's ends, once. */
  readonly closeTheirs: () => void
}

/** Rejects with the OCI runtime's own message when it fails. */
export async function launch(context: ContainerContext, plan: LaunchPlan): Promise<Launched> {
  const ours = new Closers()
  const theirs = new Closers()
  const held: string[] = []
  let consoleSocket: ConsoleSocket | undefined
  try {
    const ends = openEnds(plan, ours, theirs)
    const hold = async (suffix: string, fd: number | undefined): Promise<void> => {
      if (fd === undefined) return
      held.push(`${plan.name}/${suffix}`)
      await context.keeper.hold(`${plan.name}/${suffix}`, { fd })
    }
    await Promise.all([
      hold('in', plan.holdInput ? ends.stdin : undefined),
      hold('out', ends.stdout),
      hold('err', ends.stderr),
    ])
    if (plan.terminal) consoleSocket = ConsoleSocket.listen(context.directory)
    const terminal = await run(context, plan, ends, consoleSocket)
    if (terminal !== undefined) ours.add(() => closeSync(terminal))
    const pid = readPidFile(plan)
    if (plan.holdInput) await hold('tty', terminal)
    if (plan.terminal) closeSync(ends.complaints)
    ours.release()
    return { pid, stdin: ends.stdin, stdout: ends.stdout, stderr: ends.stderr, terminal }
  } catch (error) {
    await Promise.allSettled(held.map((name) => context.keeper.drop(name)))
    throw MonitorError.within(plan.what, error)
  } finally {
    theirs.close()
    ours.close()
    consoleSocket?.close()
    rmSync(plan.runtimePidFile, { force: true })
  }
}

function openEnds(plan: LaunchPlan, ours: Closers, theirs: Closers): Ends {
  const closeTheirs = (): void => theirs.close()
  const [stdinTheirs, stdin] = plan.stdin && !plan.terminal ? openPipe(theirs, ours) : [undefined, undefined]
  if (plan.terminal) {
    const [complaints, out] = openPipe(ours, theirs)
    setNonblock(complaints)
    return {
      stdio: [undefined, out, out],
      stdin: undefined,
      stdout: undefined,
      stderr: undefined,
      complaints,
      closeTheirs,
    }
  }
  const [stdout, stdoutTheirs] = openPipe(ours, theirs)
  const [stderr, stderrTheirs] = openPipe(ours, theirs)
  for (const fd of [stdin, stdout, stderr]) if (fd !== undefined) setNonblock(fd)
  return {
    stdio: [stdinTheirs, stdoutTheirs, stderrTheirs],
    stdin,
    stdout,
    stderr,
    complaints: stderr,
    closeTheirs,
  }
}

function openPipe(readEnd: Closers, writeEnd: Closers): [number, number] {
  const [reader, writer] = pipe2()
  readEnd.add(() => closeSync(reader))
  writeEnd.add(() => closeSync(writer))
  return [reader, writer]
}

/** Runs the OCI runtime to its end; resolves to the terminal's master, if there is to be one. */
async function run(
  context: ContainerContext,
  plan: LaunchPlan,
  ends: Ends,
  consoleSocket: ConsoleSocket | undefined,
): Promise<number | undefined> {
  // A runtime that ends without sending the terminal ends the wait for it (cases B09, M05).
  const over = new AbortController()
  const receiving = consoleSocket?.receive(over.signal).then((terminal) => {
    const size = plan.terminalSize?.()
    if (size !== undefined) setWinsize(terminal, size.height, size.width)
    return terminal
  })
  receiving?.catch(() => undefined)
  try {
    const { runtimePidFile, env, oomScoreAdj } = plan
    const options = { runtimePidFile, stdio: ends.stdio, env, oomScoreAdj }
    const result = await context.runtime.run(plan.args(consoleSocket?.path), options, ends.closeTheirs)
    if (result.code !== 0) {
      over.abort()
      const complaints = readComplaints(ends.complaints)
      // crun complains of a command on the command's own terminal.
      throw runtimeFailed(result, complaints === '' ? await complaintsOnTerminal(receiving) : complaints)
    }
    if (receiving === undefined) return undefined
    return await withDeadline(receiving, consoleGraceMs, () => {
      throw new MonitorError('internal', `${context.runtime.name} sent no terminal`)
    })
  } catch (error) {
    over.abort()
    receiving?.then(closeSync, () => undefined)
    throw error
  }
}

/** The text has conmon-rs's form. */
function runtimeFailed(result: OciRunResult, complaints: string): MonitorError {
  const how = result.code === null ? `signal ${result.signal}` : String(result.code)
  return new MonitorError(
    'internal',
    `child command exited with: ${how}${complaints === '' ? '' : `: ${complaints}`}`,
  )
}

/** What lies in the pipe or terminal, as valid text without colours, and without white space at its ends. */
function readComplaints(fd: number): string {
  const buffer = Buffer.alloc(maxErrorBytes)
  const length = read(fd, buffer)
  return length <= 0 ? '' : buffer.toString('utf8', 0, length).replace(colours, '').trim()
}

async function complaintsOnTerminal(receiving: Promise<number> | undefined): Promise<string> {
  try {
    return receiving === undefined ? '' : readComplaints(await receiving)
  } catch {
    // There is no terminal: the runtime said nothing at all.
    return ''
  }
}

function readPidFile(plan: LaunchPlan): number {
  let text: string
  try {
    text = readFileSync(plan.pidFile, 'utf8')
  } catch (error) {
    throw MonitorError.within('read pidfile', error)
  }
  const pid = Number(text)
  if (!/^\d+\s*$/.test(text) || pid <= 0) {
    throw new MonitorError('internal', `read pidfile ${plan.pidFile}: no pid in it`)
  }
  return pid
}

/** The pid in a file that a run of the OCI runtime left; undefined: no such file. */
export function readPidIfThere(path: string): number | undefined {
  try {
    const pid = Number(readFileSync(path, 'utf8'))
    return Number.isSafeInteger(pid) && pid > 0 ? pid : undefined
  } catch (error) {
    if (isErrno(error, 'ENOENT')) return undefined
    throw error
  }
}
