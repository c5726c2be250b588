// `holdfast logs`: prints a container's CRI log file. Neither the daemon nor the monitor is asked.

import { once } from 'node:events'
import type { Writable } from 'node:stream'
import { MonitorError } from '../base/errors.ts'
import { numberOf, type CommandSpec, type ParsedCommand } from './command-line.ts'
import { hasEnded } from './container-exit.ts'
import { readContainerLog, type LogEntry } from './container-log.ts'
import { stateOption, statePaths, theContainer, type CommandContext } from './context.ts'
import type { SessionOutput } from './websocket-session.ts'

export const logsSpec: CommandSpec = {
  summary: 'Print the log of a container',
  usage: 'CONTAINER',
  options: {
    follow: { short: 'f', help: 'go on with what is written, until the container ends' },
    tail: { value: 'N', help: 'only the last N lines' },
    timestamps: { short: 't', help: 'print the time before each line' },
    ...stateOption,
  },
  positionals: [1, 1],
}

/** Runs `logs`. */
export async function logsCommand(parsed: ParsedCommand, context: CommandContext): Promise<number> {
  const [name = ''] = parsed.positionals
  const tail = parsed.values.has('tail') ? numberOf(parsed, 'tail', 0) : undefined
  const found = await theContainer(statePaths(parsed, context.env), name)
  const { logPath } = found.container
  if (logPath === '')
    throw new MonitorError('failed-precondition', `container ${name} was made without a log`)
  const options = { tail, follow: parsed.flags.has('follow'), ended: () => hasEnded(found) }
  const printer = new LogPrinter(context, parsed.flags.has('timestamps'))
  for await (const entry of readContainerLog(logPath, options)) await printer.print(entry)
  return 0
}

/** Log entries as the container wrote them: parts of a line joined, stderr to stderr. */
export class LogPrinter {
  readonly #output: SessionOutput
  readonly #timestamps: boolean
  /** Streams whose last entry did not end a line. */
  readonly #open = new Set<string>()

  constructor(output: SessionOutput, timestamps: boolean) {
    this.#output = output
    this.#timestamps = timestamps
  }

  async print(entry: LogEntry): Promise<void> {
    const parts = [entry.content]
    if (this.#timestamps && !this.#open.has(entry.stream)) parts.unshift(Buffer.from(`${entry.time} `))
    if (entry.partial) this.#open.add(entry.stream)
    else {
      this.#open.delete(entry.stream)
      parts.push(Buffer.from('\n'))
    }
    await writeAll(this.#output[entry.stream], Buffer.concat(parts))
  }
}

async function writeAll(to: Writable, bytes: Buffer): Promise<void> {
  if (bytes.length > 0 && !to.write(bytes)) await once(to, 'drain')
}
