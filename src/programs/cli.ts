// holdfast: the command line for people.

import { dirname, join } from 'node:path'
import { fileURLToPath } from 'node:url'
import { EXIT_OUTPUT_GONE } from '../cli/exit-codes.ts'
import { main } from '../cli/main.ts'

const VERSION = '0.1.0'

for (const output of [process.stdout, process.stderr]) {
  output.on('error', (error: NodeJS.ErrnoException) => {
    // Whoever read our output has gone (`holdfast logs c | head`); the terminal is restored on exit.
    process.exit(error.code === 'EPIPE' ? EXIT_OUTPUT_GONE : 1)
  })
}
const { stdin, stdout, stderr, env } = process
const say = (text: string): void => {
  stderr.write(`${text}\n`)
}
// The bundle lies in lib/holdfast, the programs in bin beside lib.
const programs = join(dirname(fileURLToPath(import.meta.url)), '../../bin')
const code = main(process.argv.slice(2), VERSION, { stdin, stdout, stderr, env, say, programs })
// Not by running empty: a connection that closes slowly or a stdin that never ends must not hold the shell up.
void code.then((status) => stdout.write('', () => stderr.write('', () => process.exit(status))))
