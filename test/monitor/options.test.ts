import assert from 'node:assert/strict'
import { existsSync, mkdtempSync, rmSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { after, describe, test } from 'node:test'
import { MonitorError } from '../../src/base/errors.ts'
import { UsageError, parseOptions } from '../../src/monitor/options.ts'
import { versionJson, versionText } from '../../src/monitor/version.ts'
import { checkLeaks } from '../support/leak-check.ts'

checkLeaks()

const directory = mkdtempSync(join(tmpdir(), 'holdfast-options-'))
after(() => rmSync(directory, { recursive: true }))
const version = { text: versionText, json: versionJson }
const runtime = process.execPath
const required = ['--runtime', runtime, '--runtime-dir', directory]

function parse(args: readonly string[], env: Record<string, string> = {}) {
  return parseOptions(args, env, version)
}

describe('the command line', () => {
  test('takes what conmon-rs clients pass', () => {
    const root = join(directory, 'root')
    const args = [...required, '--runtime-root', root, '--log-level=debug', '--log-driver', 'stdout']
    assert.deepEqual(parse([...args, '--cgroup-manager', 'systemd', '--enable-tracing', '-t', 'http://x']), {
      run: {
        runtimePath: runtime,
        runtimeDirectory: directory,
        runtimeRoot: root,
        logLevel: 'debug',
        logDriver: 'stdout',
      },
    })
    assert.ok(existsSync(root))
  })

  test('takes short flags with their values in every form', () => {
    for (const args of [
      ['-r', runtime, '-l', 'error'],
      [`-r${runtime}`, '-lerror'],
      [`-r=${runtime}`, '-l=error'],
    ]) {
      const invocation = parse([...args, '--runtime-dir', directory])
      assert.ok('run' in invocation)
      assert.equal(invocation.run.logLevel, 'error')
      assert.equal(invocation.run.runtimePath, runtime)
    }
  })

  test('takes the environment where no flag is given', () => {
    const env = { CONMON_RUNTIME: runtime, CONMON_RUNTIME_DIR: directory, CONMON_LOG_LEVEL: 'off' }
    const invocation = parse([], env)
    assert.ok('run' in invocation)
    assert.equal(invocation.run.logLevel, 'off')
    const overridden = parse(['--log-level', 'warn'], env)
    assert.ok('run' in overridden)
    assert.equal(overridden.run.logLevel, 'warn')
  })

  for (const [title, args, message] of [
    ['an unknown flag', ['--nope'], /unexpected argument '--nope' found/],
    ['a word', ['word'], /unexpected argument 'word' found/],
    ['a flag without its value', ['--runtime'], /a value is required for '--runtime <VALUE>'/],
    ['a value where none belongs', ['--skip-fork=yes'], /unexpected value 'yes' for '--skip-fork'/],
    [
      'an unknown level',
      [...required, '--log-level', 'loud'],
      /invalid value 'loud' for '--log-level <VALUE>'/,
    ],
    ['an unknown driver', [...required, '--log-driver', 'x'], /possible values: none, stdout, systemd/],
    ['an unknown version form', ['--version=long'], /invalid value 'long' for '--version\[=<FORMAT>\]'/],
  ] as const) {
    test(`refuses ${title} as wrong usage`, () => {
      assert.throws(
        () => parse(args),
        (error: Error) => error instanceof UsageError && message.test(error.message),
      )
    })
  }

  test('names what is missing or wrong in the configuration', () => {
    const file = join(directory, 'file')
    writeFileSync(file, '')
    for (const [args, message] of [
      [[], /--runtime flag not set/],
      [['--runtime', '/no/such'], /runtime path '\/no\/such' does not exist/],
      [['--runtime', runtime], /--runtime-dir flag not set/],
      [['--runtime', runtime, '--runtime-dir', file], /--runtime-dir .*file/],
      [[...required, '--runtime-root', file], /--runtime-root .*file/],
    ] as const) {
      assert.throws(
        () => parse(args),
        (error: Error) => error instanceof MonitorError && message.test(error.message),
      )
    }
  })
})

describe('the version', () => {
  test("is one line of JSON with conmon-rs's keys in order", () => {
    const invocation = parse(['--version-json'])
    assert.ok('print' in invocation)
    assert.match(invocation.print, /^\{.*\}\n$/)
    assert.deepEqual(Object.keys(JSON.parse(invocation.print) as object), [
      'verbose',
      'version',
      'tag',
      'commit',
      'build_date',
      'target',
      'rust_version',
      'cargo_version',
      'cargo_tree',
    ])
  })

  test('is verbose only when asked', () => {
    for (const [flag, verbose] of [
      ['-j', false],
      ['-j=full', true],
      ['--vj', false],
    ] as const) {
      const invocation = parse([flag])
      assert.ok('print' in invocation)
      const info = JSON.parse(invocation.print) as { verbose: boolean; cargo_tree: string }
      assert.equal(info.verbose, verbose)
      assert.equal(info.cargo_tree !== '', verbose)
    }
    const text = parse(['--version=full'])
    assert.ok('print' in text)
    assert.match(text.print, /^version: \d+\.\d+\.\d+\n[\s\S]*\n\ncargo tree: /)
  })
})
