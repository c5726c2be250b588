// `holdfast doctor`: prints what the checks of doctor.ts found.

import { join } from 'node:path'
import type { CommandSpec, ParsedCommand } from './command-line.ts'
import type { CommandContext } from './context.ts'
import { examine, thisHost } from './doctor.ts'

const words = { ok: 'ok', weak: 'weak', lacks: 'LACKS' } as const

export const doctorSpec: CommandSpec = {
  summary: 'Say what this host lacks to run pods, and what to do',
  usage: '',
  options: {},
  positionals: [0, 0],
  notes: ['Exits with 1 if something is missing without which pods do not run.'],
}

/** Runs `doctor`. */
export async function doctorCommand(_parsed: ParsedCommand, context: CommandContext): Promise<number> {
  const findings = await examine(thisHost(join(context.programs, 'holdfast-monitor')))
  const width = Math.max(...findings.map(({ what }) => what.length))
  for (const { what, state, found, advice } of findings) {
    context.stdout.write(`${words[state].padEnd(5)}  ${what.padEnd(width)}  ${found}\n`)
    if (state !== 'ok' && advice !== undefined) context.stdout.write(`${' '.repeat(width + 9)}-> ${advice}\n`)
  }
  return findings.some(({ state }) => state === 'lacks') ? 1 : 0
}
