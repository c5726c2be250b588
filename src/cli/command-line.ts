// The command line as a value: which command, its options, its arguments; and the help texts, from the same table.
// Every mistake is a UsageError, found before anything is done.

import { parseArgs } from 'node:util'
import { MonitorError, messageOf } from '../base/errors.ts'

/** The command line makes no sense: exit code 2. */
export class UsageError extends MonitorError {
  constructor(message: string, options?: { cause?: unknown }) {
    super('invalid-argument', message, options)
  }
}

/** One option of a command. */
export interface OptionSpec {
  readonly short?: string
  /** The value's name in the help; absent: a switch. */
  readonly value?: string
  readonly help: string
}

/** One command, as the table of commands describes it. */
export interface CommandSpec {
  readonly summary: string
  /** What follows the options: `CONTAINER [--] CMD [ARG…]`. */
  readonly usage: string
  readonly options: Readonly<Record<string, OptionSpec>>
  /** How many arguments come before a command whose own options are left alone; absent: all are arguments. */
  readonly commandAfter?: number
  /** Fewest and most arguments before the command. */
  readonly positionals: readonly [number, number]
  /** Further lines of the help. */
  readonly notes?: readonly string[]
}

/** What was asked for. */
export interface ParsedCommand {
  readonly name: string
  readonly flags: ReadonlySet<string>
  readonly values: ReadonlyMap<string, string>
  readonly positionals: readonly string[]
  /** What runs in the container. */
  readonly command: readonly string[]
}

/** Options that every command knows. */
const commonOptions: Readonly<Record<string, OptionSpec>> = {
  help: { short: 'h', help: 'show this help' },
}

/** Parses what follows the command's name. */
export function parseCommand(name: string, spec: CommandSpec, args: readonly string[]): ParsedCommand {
  const options = { ...spec.options, ...commonOptions }
  const [own, command] = splitCommand(spec, options, args)
  let parsed
  try {
    parsed = parseArgs({
      args: own,
      options: parseArgsOptions(options),
      strict: true,
      allowPositionals: true,
    })
  } catch (error) {
    throw new UsageError(explain(error), { cause: error })
  }
  const flags = new Set<string>()
  const values = new Map<string, string>()
  for (const [key, value] of Object.entries(parsed.values)) {
    if (typeof value === 'string') values.set(key, value)
    else if (value === true) flags.add(key)
  }
  const [least, most] = spec.positionals
  if (!flags.has('help')) {
    if (parsed.positionals.length < least) throw new UsageError(`missing argument: ${spec.usage}`)
    const extra = parsed.positionals[most]
    if (extra !== undefined) throw new UsageError(`unexpected argument ${extra}`)
  }
  return { name, flags, values, positionals: parsed.positionals, command }
}

/** The option's value as a whole number, or `fallback` where it is absent. */
export function numberOf(parsed: ParsedCommand, option: string, fallback: number): number {
  const text = parsed.values.get(option)
  if (text === undefined) return fallback
  if (!/^\d{1,9}$/.test(text)) throw new UsageError(`--${option} wants a number, not ${JSON.stringify(text)}`)
  return Number(text)
}

/** The help of one command. */
export function commandHelp(name: string, spec: CommandSpec): string {
  const rows = Object.entries({ ...spec.options, ...commonOptions }).map(
    ([option, { short, value, help }]) => {
      const left = `${short === undefined ? '    ' : `-${short}, `}--${option}${value === undefined ? '' : ` ${value}`}`
      return [left, help] as const
    },
  )
  const width = Math.max(...rows.map(([left]) => left.length))
  const lines = [
    `usage: holdfast ${name} [OPTIONS] ${spec.usage}`.trimEnd(),
    '',
    `${spec.summary}.`,
    '',
    ...rows.map(([left, help]) => `  ${left.padEnd(width)}  ${help}`),
  ]
  if (spec.notes !== undefined) lines.push('', ...spec.notes)
  return `${lines.join('\n')}\n`
}

/** The help of the program. */
export function programHelp(commands: Readonly<Record<string, CommandSpec>>): string {
  const width = Math.max(...Object.keys(commands).map((name) => name.length))
  return [
    'usage: holdfast COMMAND [OPTIONS] [ARGUMENTS]',
    '',
    'Pods and containers whose exec, attach and port-forward sessions outlive the runtime daemon.',
    '',
    ...Object.entries(commands).map(([name, { summary }]) => `  ${name.padEnd(width)}  ${summary}`),
    '',
    'holdfast COMMAND --help explains one; holdfast --version prints the version.',
    '',
  ].join('\n')
}

/** Cuts the container's command off: after `--`, or after the arguments that come before it. */
function splitCommand(
  spec: CommandSpec,
  options: Readonly<Record<string, OptionSpec>>,
  args: readonly string[],
): [string[], string[]] {
  if (spec.commandAfter === undefined) return [[...args], []]
  const dashes = args.indexOf('--')
  const head = dashes < 0 ? args : args.slice(0, dashes)
  // Not strict: mistakes are found when the own part is parsed; here only positions count.
  const { tokens } = parseArgs({
    args: [...head],
    options: parseArgsOptions(options),
    strict: false,
    allowPositionals: true,
    tokens: true,
  })
  const first = tokens.filter((token) => token.kind === 'positional')[spec.commandAfter]
  if (first !== undefined) return [head.slice(0, first.index), args.slice(first.index)]
  return [[...head], dashes < 0 ? [] : args.slice(dashes + 1)]
}

function parseArgsOptions(options: Readonly<Record<string, OptionSpec>>) {
  return Object.fromEntries(
    Object.entries(options).map(([name, { short, value }]) => [
      name,
      {
        type: value === undefined ? ('boolean' as const) : ('string' as const),
        ...(short === undefined ? {} : { short }),
      },
    ]),
  )
}

/** node:util's sentence, without its advice, which does not fit a command line with a command behind it. */
function explain(error: unknown): string {
  const text = messageOf(error)
  const unknown = /^Unknown option '([^']*)'/.exec(text)
  if (unknown !== null) return `unknown option ${unknown[1]}`
  return (
    text
      .split('\n')[0]
      ?.replace(/\.$/, '')
      .replace(/^Option/, 'option') ?? text
  )
}
