// `holdfast run`: a pod with one container, through holdfastd. In the foreground its output comes here (typed into: by
// attach, before it starts; else from its log, which loses nothing to a slow reader) and its exit code is ours.

import { randomBytes, randomUUID } from 'node:crypto'
import { join } from 'node:path'
import { messageOf, MonitorError } from '../base/errors.ts'
import { FOREGROUND_EXIT_NEWS_MS } from '../base/limits.ts'
import type { FoundContainer } from '../client/pod-lookup.ts'
import type { StatePaths } from '../client/pod-state.ts'
import { UsageError, type CommandSpec, type ParsedCommand } from './command-line.ts'
import { exitCodeWithin, hasEnded } from './container-exit.ts'
import { readContainerLog } from './container-log.ts'
import { endpointOf, endpointOption, stateOption, statePaths, theContainer } from './context.ts'
import type { CommandContext } from './context.ts'
import { CriClient, type CriContainerConfig, type CriPodConfig } from './cri-client.ts'
import { parseDetachKeys } from './detach-keys.ts'
import { attachUrl, requireTerminal } from './exec-command.ts'
import { interact } from './interactive.ts'
import { LogPrinter } from './logs-command.ts'
import { logRoot, removePod } from './ps-command.ts'
import { conclude, exitCodeOfFailure, readable } from './session-end.ts'

/** The image that is always there. */
const BUILT_IN_IMAGE = 'busybox'

export const runSpec: CommandSpec = {
  summary: 'Run a command in a new pod',
  usage: '[--] [CMD [ARG…]]',
  options: {
    detach: { short: 'd', help: 'leave it running and print its id' },
    interactive: { short: 'i', help: "pass this command's stdin on" },
    tty: { short: 't', help: 'give it a terminal' },
    name: { value: 'NAME', help: 'name of the pod and of its container' },
    image: { value: 'IMAGE', help: `the image (${BUILT_IN_IMAGE}: built in)` },
    rm: { help: 'remove the pod when the command has ended' },
    'detach-keys': { value: 'KEYS', help: 'leave a terminal with these (ctrl-p,ctrl-q); empty: no keys' },
    ...stateOption,
    ...endpointOption,
  },
  commandAfter: 0,
  positionals: [0, 0],
  notes: [
    "Exits with the command's exit code; 125 to 127 if it could not be started; 121 if the session broke. After detach",
    'keys the pod runs on. An interrupt stops a pod that is not typed into.',
  ],
}

/** A container that was created, and how to talk about it. */
interface Created {
  readonly cri: CriClient
  /** Removes the pod: one that never ran must not stay. */
  readonly undo: () => Promise<void>
  readonly found: FoundContainer
  readonly name: string
}

/** Runs `run`. */
export async function runCommand(parsed: ParsedCommand, context: CommandContext): Promise<number> {
  const detach = parsed.flags.has('detach')
  const tty = parsed.flags.has('tty')
  const stdin = parsed.flags.has('interactive')
  if (detach && parsed.flags.has('rm')) throw new UsageError('--detach and --rm exclude each other')
  const detachKeys = parseDetachKeys(parsed.values.get('detach-keys') ?? 'ctrl-p,ctrl-q')
  if (tty && stdin && !detach) requireTerminal(context, 'run')
  const paths = statePaths(parsed, context.env)
  const cri = await CriClient.connect(endpointOf(parsed, context.env))
  try {
    const created = await create(cri, parsed, paths)
    let end: RunEnd
    if (detach) end = await startOnly(created, context)
    else if (stdin || tty) end = await runAttached(created, { stdin, tty, detachKeys }, context)
    else end = await runLogged(created, context)
    if (parsed.flags.has('rm') && end.over) await created.undo()
    return end.code
  } catch (error) {
    // A daemon that is not there is no command that is not there.
    const refused =
      error instanceof MonitorError && error.code !== 'unavailable' && error.code !== 'not-found'
    const code = refused ? exitCodeOfFailure(error.message) : undefined
    if (code === undefined) throw error
    context.say(`error: run ${parsed.command[0]}: ${readable(messageOf(error))}`)
    return code
  } finally {
    cri.close()
  }
}

/** The exit code for the command line, and whether the container has ended. */
interface RunEnd {
  readonly code: number
  readonly over: boolean
}

async function create(cri: CriClient, parsed: ParsedCommand, paths: StatePaths): Promise<Created> {
  const image = parsed.values.get('image') ?? BUILT_IN_IMAGE
  const name =
    parsed.values.get('name') ?? `${image.replace(/^.*\/|[:@].*$/g, '')}-${randomBytes(3).toString('hex')}`
  if ((await cri.listPods()).some(({ metadata }) => metadata.name === name))
    throw new MonitorError(
      'already-exists',
      `a pod named ${name} exists already; remove it with: holdfast rm ${name}`,
    )
  const uid = randomUUID()
  // As a kubelet labels: crictl shows the pod of a container by them.
  const labels = {
    'io.kubernetes.pod.name': name,
    'io.kubernetes.pod.namespace': 'default',
    'io.kubernetes.pod.uid': uid,
  }
  const pod: CriPodConfig = {
    metadata: { name, uid, namespace: 'default', attempt: 0 },
    hostname: name,
    log_directory: join(logRoot(paths), `${name}_${uid}`),
    labels,
  }
  const stdin = parsed.flags.has('interactive')
  const container: CriContainerConfig = {
    metadata: { name, attempt: 0 },
    image: { image },
    labels: { ...labels, 'io.kubernetes.container.name': name },
    command: parsed.command,
    envs: parsed.flags.has('tty') ? [{ key: 'TERM', value: Buffer.from('xterm') }] : [],
    log_path: `${name}.log`,
    stdin,
    // In the foreground the end of our stdin is the end of the container's.
    stdin_once: stdin && !parsed.flags.has('detach'),
    tty: parsed.flags.has('tty'),
  }
  const podId = await cri.runPod(pod)
  const undo = (): Promise<void> => removePod(cri, podId, paths)
  const containerId = await orUndo(undo, cri.createContainer(podId, container, pod))
  return { cri, undo, name, found: await theContainer(paths, containerId) }
}

/** The step's result; if it fails, its error, after `undo`. */
async function orUndo<T>(undo: () => Promise<void>, step: Promise<T>): Promise<T> {
  try {
    return await step
  } catch (error) {
    // The first error is the one that explains.
    await undo().catch(() => {})
    throw error
  }
}

async function startOnly({ cri, found, undo }: Created, context: CommandContext): Promise<RunEnd> {
  await orUndo(undo, cri.startContainer(found.container.id))
  context.stdout.write(`${found.container.id}\n`)
  return { code: 0, over: false }
}

/** Attached before it starts, so that the first output is not missed. */
async function runAttached(
  { cri, found, name, undo }: Created,
  how: { readonly stdin: boolean; readonly tty: boolean; readonly detachKeys: Buffer },
  context: CommandContext,
): Promise<RunEnd> {
  const url = await orUndo(undo, attachUrl(found, how.stdin))
  const whenOpen = (): Promise<void> => cri.startContainer(found.container.id)
  // Rejects only while the session is being opened.
  const end = await orUndo(undo, interact({ ...how, url, redraw: false, whenOpen }, context))
  if (end.kind === 'success') return { code: await exitCodeOf(found), over: true }
  return { code: conclude(end, `run ${name}`, context.say), over: false }
}

async function runLogged({ cri, found, name, undo }: Created, context: CommandContext): Promise<RunEnd> {
  const { id, logPath } = found.container
  await orUndo(undo, cri.startContainer(id))
  // Once: a second interrupt ends us at once.
  const stop = (): void => {
    context.say(`stopping ${name}`)
    cri
      .stopContainer(id, 2)
      .catch((error: unknown) => context.say(`error: stop ${name}: ${messageOf(error)}`))
  }
  process.once('SIGINT', stop).once('SIGTERM', stop)
  try {
    const printer = new LogPrinter(context, false)
    const options = { tail: undefined, follow: true, ended: () => hasEnded(found) }
    for await (const entry of readContainerLog(logPath, options)) await printer.print(entry)
  } finally {
    process.off('SIGINT', stop).off('SIGTERM', stop)
  }
  return { code: await exitCodeOf(found), over: true }
}

async function exitCodeOf(found: FoundContainer): Promise<number> {
  const code = await exitCodeWithin(found, FOREGROUND_EXIT_NEWS_MS)
  if (code !== undefined) return code
  throw new MonitorError(
    'deadline-exceeded',
    `container ${found.container.name} ended, but its exit code was not reported`,
  )
}
