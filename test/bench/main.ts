// Prints every budget with what was measured, ours and a rival's in the same run. No figure is asserted: `ok` only tells.
// usage: npm run bench -- [NAME…] [--json] [--quick]       NAME: a measure's name or a part of it

import { spawnSync } from 'node:child_process'
import { join } from 'node:path'
import { parseArgs } from 'node:util'
import { messageOf } from '../../src/base/errors.ts'
import { repository } from '../interop/programs.ts'
import { echoBench, execStartBench, startBench } from './latency-bench.ts'
import { attachedLogBench, logBench } from './log-bench.ts'
import { fullEffort, lineOf, quickEffort } from './measure.ts'
import type { Benchmark, Measure } from './measure.ts'
import { podBench, sessionBenches, unreadBench } from './memory-bench.ts'
import { benchRpc } from './rpc.ts'
import { streamBenches } from './stream-bench.ts'

const rpcBench: Benchmark = {
  names: ['rpc'],
  needsGo: false,
  run: async () =>
    (await benchRpc()).map((measure): Measure => ({ ...measure, budget: `>= ${measure.budget}` })),
}
const benchmarks: readonly Benchmark[] = [
  logBench,
  attachedLogBench,
  ...streamBenches,
  echoBench,
  execStartBench,
  startBench,
  podBench,
  ...sessionBenches,
  unreadBench,
  rpcBench,
]

const { values, positionals } = parseArgs({
  allowPositionals: true,
  options: { json: { type: 'boolean', default: false }, quick: { type: 'boolean', default: false } },
})
const effort = values.quick ? quickEffort : fullEffort
const isWanted = (name: string): boolean =>
  positionals.length === 0 || positionals.some((part) => name.includes(part))
const wanted = benchmarks.filter(({ names }) => names.some(isWanted))
if (wanted.length === 0) {
  process.stderr.write(`bench: no measure is called ${positionals.join(' or ')}; there are:\n`)
  process.stderr.write(`${benchmarks.flatMap(({ names }) => names).join(' ')}\n`)
  process.exit(2)
}
const hasGo = wanted.some(({ needsGo }) => needsGo) && buildReferees()

const missed: string[] = []
for (const benchmark of wanted) {
  if (benchmark.needsGo && !hasGo) {
    process.stderr.write(`bench: skipped without Go: ${benchmark.names.join(' ')}\n`)
    continue
  }
  try {
    for (const measure of await benchmark.run(effort)) show(measure)
  } catch (error) {
    process.exitCode = 1
    process.stderr.write(`bench: ${benchmark.names.join(' ')}: ${messageOf(error)}\n`)
  }
}
if (!values.json && missed.length > 0) process.stdout.write(`missed: ${missed.join(' ')}\n`)

function show(measure: Measure): void {
  if (!isWanted(measure.name)) return
  if (!measure.ok) missed.push(measure.name)
  process.stdout.write(`${values.json ? JSON.stringify(measure) : lineOf(measure)}\n`)
}

/** The streaming rival and its clients are Go programs; the other measures do without. */
function buildReferees(): boolean {
  const script = join(repository, 'test', 'interop', 'build-go.sh')
  return spawnSync('sh', [script, 'driver', 'yardstick'], { stdio: ['ignore', 2, 2] }).status === 0
}
