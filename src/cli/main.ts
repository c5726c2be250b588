// The table of commands, and the one place where errors become sentences and exit codes.

import { messageOf } from '../base/errors.ts'
import { commandHelp, parseCommand, programHelp, UsageError } from './command-line.ts'
import type { CommandSpec, ParsedCommand } from './command-line.ts'
import type { CommandContext } from './context.ts'
import { doctorCommand, doctorSpec } from './doctor-command.ts'
import { attachCommand, attachSpec, execCommand, execSpec } from './exec-command.ts'
import { EXIT_FAILED, EXIT_USAGE } from './exit-codes.ts'
import { logsCommand, logsSpec } from './logs-command.ts'
import { portForwardCommand, portForwardSpec } from './port-forward-command.ts'
import { psCommand, psSpec, rmCommand, rmSpec } from './ps-command.ts'
import { runCommand, runSpec } from './run-command.ts'
import { readable } from './session-end.ts'

const specs: Readonly<Record<string, CommandSpec>> = {
  run: runSpec,
  ps: psSpec,
  exec: execSpec,
  attach: attachSpec,
  'port-forward': portForwardSpec,
  logs: logsSpec,
  rm: rmSpec,
  doctor: doctorSpec,
}

const commands: Readonly<
  Record<string, (parsed: ParsedCommand, context: CommandContext) => Promise<number>>
> = {
  run: runCommand,
  ps: psCommand,
  exec: execCommand,
  attach: attachCommand,
  'port-forward': portForwardCommand,
  logs: logsCommand,
  rm: rmCommand,
  doctor: doctorCommand,
}

/** Runs `holdfast ARGS…` and gives its exit code; never rejects. */
export async function main(
  args: readonly string[],
  version: string,
  context: CommandContext,
): Promise<number> {
  const [name = '', ...rest] = args
  if (name === '--version' || name === '-V') {
    context.stdout.write(`holdfast ${version}\n`)
    return 0
  }
  if (name === '--help' || name === '-h' || name === 'help') {
    const [topic = ''] = rest
    const spec = specs[topic]
    context.stdout.write(spec === undefined ? programHelp(specs) : commandHelp(topic, spec))
    return 0
  }
  const spec = specs[name]
  const command = commands[name]
  if (spec === undefined || command === undefined) {
    const kind = name.startsWith('-') ? 'unknown option' : 'unknown command'
    context.say(name === '' ? 'error: missing command' : `error: ${kind} ${name}`)
    context.say('try: holdfast --help')
    return EXIT_USAGE
  }
  try {
    const parsed = parseCommand(name, spec, rest)
    if (parsed.flags.has('help')) {
      context.stdout.write(commandHelp(name, spec))
      return 0
    }
    return await command(parsed, context)
  } catch (error) {
    context.say(`error: ${readable(messageOf(error))}`)
    if (!(error instanceof UsageError)) return EXIT_FAILED
    context.say(`try: holdfast ${name} --help`)
    return EXIT_USAGE
  }
}
