// Runs test files with node:test, whose summary ends the output; fails when no test ran.
// usage: node dist/test/run.js [unit|system|interop|faults] [FILTER] [--all]      --all: the long tables, too

import { spawn } from 'node:child_process'
import { readdirSync } from 'node:fs'
import { join, relative } from 'node:path'

const apart = ['system', 'interop', 'faults', 'bench']
const args = process.argv.slice(2)
const [suite = 'all', filter = ''] = args.filter((arg) => arg !== '--all')
const root = import.meta.dirname

const files = readdirSync(root, { recursive: true, encoding: 'utf8' })
  .filter((file) => file.endsWith('.test.js') && belongs(file.split('/')[0] ?? '') && file.includes(filter))
  .map((file) => join(root, file))
  .toSorted()

if (files.length === 0) {
  process.stderr.write(`no test files for ${suite} ${filter}\n`)
  process.exit(1)
}
const nodeArgs = ['--enable-source-maps', '--test', '--test-reporter=spec', '--test-concurrency=1', ...files]
const env = args.includes('--all') ? { ...process.env, HOLDFAST_TEST_ALL: '1' } : process.env
const child = spawn(process.execPath, nodeArgs, { env, stdio: ['ignore', 'pipe', 'inherit'] })
let tail = ''
child.stdout.on('data', (chunk: Buffer) => {
  process.stdout.write(chunk)
  tail = (tail + chunk.toString()).slice(-4096)
})
child.on('close', (code) => {
  const ran = Number(/tests (\d+)/.exec(tail)?.[1] ?? 0)
  if (ran === 0)
    process.stderr.write(`no test ran in ${files.map((file) => relative(root, file)).join(' ')}\n`)
  process.exitCode = code === 0 && ran === 0 ? 1 : (code ?? 1)
})

function belongs(folder: string): boolean {
  if (suite === 'all') return folder === 'system' || !apart.includes(folder)
  return suite === 'unit' ? !apart.includes(folder) : folder === suite
}
