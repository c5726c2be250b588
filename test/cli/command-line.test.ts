import assert from 'node:assert/strict'
import { test } from 'node:test'
import { MonitorError } from '../../src/base/errors.ts'
import {
  commandHelp,
  numberOf,
  parseCommand,
  programHelp,
  type CommandSpec,
} from '../../src/cli/command-line.ts'
import { checkLeaks } from '../support/leak-check.ts'

checkLeaks()

const exec: CommandSpec = {
  summary: 'Run a command in a container',
  usage: 'CONTAINER [--] CMD [ARG…]',
  options: {
    interactive: { short: 'i', help: 'pass stdin on' },
    tty: { short: 't', help: 'a terminal' },
    state: { value: 'DIR', help: 'where pods are kept' },
  },
  commandAfter: 1,
  positionals: [1, 1],
}
const logs: CommandSpec = {
  summary: 'Print the log of a container',
  usage: 'CONTAINER',
  options: { tail: { value: 'N', help: 'only the last N lines' } },
  positionals: [1, 1],
}

const parsed: [string, string[], { flags: string[]; positionals: string[]; command: string[] }][] = [
  ['plain', ['c', 'ls'], { flags: [], positionals: ['c'], command: ['ls'] }],
  [
    'joined switches',
    ['-it', 'c', 'sh'],
    { flags: ['interactive', 'tty'], positionals: ['c'], command: ['sh'] },
  ],
  [
    'switches after the container',
    ['c', '-it', '--', 'ls', '-l'],
    { flags: ['interactive', 'tty'], positionals: ['c'], command: ['ls', '-l'] },
  ],
  [
    "the command's own options",
    ['c', 'ls', '-t', '--', '-i'],
    { flags: [], positionals: ['c'], command: ['ls', '-t', '--', '-i'] },
  ],
  [
    'dashes in the command',
    ['-i', 'c', '--', 'sh', '--', '-t'],
    { flags: ['interactive'], positionals: ['c'], command: ['sh', '--', '-t'] },
  ],
  [
    'an option value before the container',
    ['--state', 'x', 'c', 'ls'],
    { flags: [], positionals: ['c'], command: ['ls'] },
  ],
  ['no command', ['c'], { flags: [], positionals: ['c'], command: [] }],
  [
    'an empty argument in the command',
    ['c', 'echo', ''],
    { flags: [], positionals: ['c'], command: ['echo', ''] },
  ],
]
for (const [name, args, expected] of parsed) {
  test(`parses ${name}`, () => {
    const { flags, positionals, command } = parseCommand('exec', exec, args)
    assert.deepEqual({ flags: [...flags].toSorted(), positionals, command }, expected)
  })
}

const refused: [string, CommandSpec, string[], RegExp][] = [
  ['an unknown option', exec, ['--nope', 'c', 'ls'], /^unknown option --nope$/],
  ['an unknown letter', exec, ['-ix', 'c', 'ls'], /^unknown option -x$/],
  ['a missing value', logs, ['c', '--tail'], /--tail/],
  ['a value for a switch', exec, ['--tty=yes', 'c'], /--tty/],
  ['a missing container', exec, [], /^missing argument: CONTAINER/],
  ['a second container', logs, ['c', 'd'], /^unexpected argument d$/],
]
for (const [name, spec, args, message] of refused) {
  test(`refuses ${name}`, () => {
    assert.throws(
      () => parseCommand('x', spec, args),
      (error: unknown) =>
        error instanceof MonitorError && error.code === 'invalid-argument' && message.test(error.message),
    )
  })
}

test('asks for help without the arguments', () => {
  assert.ok(parseCommand('exec', exec, ['--help']).flags.has('help'))
  assert.ok(parseCommand('exec', exec, ['-h']).flags.has('help'))
})

test('takes numbers only where a number is wanted', () => {
  assert.equal(numberOf(parseCommand('logs', logs, ['c', '--tail', '12']), 'tail', 0), 12)
  assert.equal(numberOf(parseCommand('logs', logs, ['c']), 'tail', 7), 7)
  for (const bad of ['-1', 'ten', '1.5', '', '99999999999'])
    assert.throws(
      () => numberOf(parseCommand('logs', logs, ['c', `--tail=${bad}`]), 'tail', 0),
      /wants a number/,
    )
})

test('help names every option with its value and its letter', () => {
  const help = commandHelp('exec', exec)
  assert.match(help, /^usage: holdfast exec \[OPTIONS\] CONTAINER/)
  assert.match(help, /^ {2}-i, --interactive +pass stdin on$/m)
  assert.match(help, /^ {6}--state DIR +where pods are kept$/m)
  assert.match(help, /^ {2}-h, --help /m)
})

test('the program help names every command', () => {
  const help = programHelp({ exec, logs })
  assert.match(help, /^ {2}exec {2}Run a command/m)
  assert.match(help, /^ {2}logs {2}Print the log/m)
})
