// `holdfast exec` and `holdfast attach`: a URL from the pod's monitor, then the session itself. No daemon is asked.

import { ATTACHED_EXIT_NEWS_MS } from '../base/limits.ts'
import type { FoundContainer } from '../client/pod-lookup.ts'
import { UsageError, type CommandSpec, type ParsedCommand } from './command-line.ts'
import { stateOption, statePaths, theContainer, withMonitor, type CommandContext } from './context.ts'
import { exitCodeWithin } from './container-exit.ts'
import { parseDetachKeys } from './detach-keys.ts'
import { interact } from './interactive.ts'
import { conclude } from './session-end.ts'

export const execSpec: CommandSpec = {
  summary: 'Run a command in a running container',
  usage: 'CONTAINER [--] CMD [ARG…]',
  options: {
    interactive: { short: 'i', help: "pass this command's stdin on" },
    tty: { short: 't', help: 'give the command a terminal' },
    ...stateOption,
  },
  commandAfter: 1,
  positionals: [1, 1],
  notes: [
    "Exits with the command's exit code; 126 or 127 if it could not be started; 121 if the session broke (the",
    'command may have run); 125 if nothing ran.',
  ],
}

export const attachSpec: CommandSpec = {
  summary: "Join a running container's stdin, stdout and stderr",
  usage: 'CONTAINER',
  options: {
    'no-stdin': { help: 'watch only' },
    'detach-keys': { value: 'KEYS', help: 'leave a terminal with these (ctrl-p,ctrl-q); empty: no keys' },
    ...stateOption,
  },
  positionals: [1, 1],
  notes: [
    "Exits with the container's exit code; with 0 after the detach keys, or when stdin ends and the container does",
    'not; 121 if the session broke; 125 if there was none.',
  ],
}

/** Runs `exec`. */
export async function execCommand(parsed: ParsedCommand, context: CommandContext): Promise<number> {
  const [name = ''] = parsed.positionals
  const { command } = parsed
  if (command.length === 0) throw new UsageError('missing command to run')
  const tty = parsed.flags.has('tty')
  const stdin = parsed.flags.has('interactive')
  if (tty && stdin) requireTerminal(context, 'exec')
  const { container, podPaths } = await theContainer(statePaths(parsed, context.env), name)
  const url = await withMonitor(podPaths, (monitor) =>
    monitor.serveExec({ id: container.id, command, tty, stdin, stdout: true, stderr: !tty }),
  )
  const end = await interact({ url, stdin, tty, detachKeys: Buffer.alloc(0), redraw: false }, context)
  return conclude(end, `exec ${command[0]} in ${name}`, context.say)
}

/** Runs `attach`. */
export async function attachCommand(parsed: ParsedCommand, context: CommandContext): Promise<number> {
  const [name = ''] = parsed.positionals
  const detachKeys = parseDetachKeys(parsed.values.get('detach-keys') ?? 'ctrl-p,ctrl-q')
  const found = await theContainer(statePaths(parsed, context.env), name)
  const stdin = found.container.stdin && !parsed.flags.has('no-stdin')
  const url = await attachUrl(found, stdin)
  const tty = found.container.terminal
  const end = await interact({ url, stdin, tty, detachKeys, redraw: tty }, context)
  // Success is also the answer to the end of our input; then the container runs on.
  if (end.kind === 'success') return (await exitCodeWithin(found, ATTACHED_EXIT_NEWS_MS)) ?? 0
  return conclude(end, `attach ${name}`, context.say)
}

/** A URL to attach to the container. */
export async function attachUrl({ container, podPaths }: FoundContainer, stdin: boolean): Promise<string> {
  const { id, terminal: tty, stdinOnce } = container
  return withMonitor(podPaths, (monitor) =>
    monitor.serveAttach({ id, stdin, stdout: true, stderr: !tty, tty, stdinOnce, replayBytes: 0 }),
  )
}

/** A terminal in the container without one here could not be typed into as a person expects. */
export function requireTerminal(context: CommandContext, command: string): void {
  if ('isTTY' in context.stdin && context.stdin.isTTY === true) return
  throw new UsageError(`${command} -it: stdin is no terminal; leave -t (or -i) away`)
}
