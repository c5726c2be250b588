// The RPC side by side with Cap'n Proto's C++ implementation: the same C++ client drives both servers in turn.

import { spawn } from 'node:child_process'
import type { ChildProcess } from 'node:child_process'
import { once } from 'node:events'
import { mkdtempSync, rmSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { passes, peer } from '../capnp/peers.ts'

export interface Measure {
  readonly name: string
  readonly value: number
  readonly unit: string
  readonly peer: string
  readonly peerValue: number
  readonly ratio: number
  /** The least ratio. */
  readonly budget: number
  readonly ok: boolean
}

/** What the C++ client prints, in this order; budgets from measurements on two cores. */
const lines = [
  { name: 'rpc: calls one after another', unit: 'calls/s', budget: 0.5 },
  { name: 'rpc: calls, 64 under way', unit: 'calls/s', budget: 0.8 },
  { name: 'rpc: replies of 10 MiB', unit: 'MiB/s', budget: 0.8 },
] as const
const rounds = 3
const calls = 5_000

/** Three rounds of both, in turn; medians. */
export async function benchRpc(): Promise<Measure[]> {
  const directory = mkdtempSync(join(tmpdir(), 'holdfast-bench-rpc-'))
  const serveMain = join(import.meta.dirname, '../rpc/serve-main.js')
  const ours = await started(process.execPath, [serveMain, join(directory, 'ours')])
  const theirs = await started(peer('server'), [join(directory, 'theirs')])
  try {
    const figures: { ours: number[]; theirs: number[] }[] = []
    for (let round = 0; round < rounds; round++) {
      figures.push({
        ours: await measure(join(directory, 'ours')),
        theirs: await measure(join(directory, 'theirs')),
      })
    }
    return lines.map((line, i) => {
      const value = median(figures.map((round) => round.ours[i] ?? NaN))
      const peerValue = median(figures.map((round) => round.theirs[i] ?? NaN))
      const ratio = value / peerValue
      return { ...line, value, peer: 'capnp C++', peerValue, ratio, ok: ratio >= line.budget }
    })
  } finally {
    await Promise.all([stopped(ours), stopped(theirs)])
    rmSync(directory, { recursive: true })
  }
}

async function measure(path: string): Promise<number[]> {
  const client = await passes('client', [path, 'bench', String(calls)])
  return client.printed.trim().split(' ').map(Number)
}

async function started(program: string, args: readonly string[]): Promise<ChildProcess> {
  const child = spawn(program, args, { stdio: ['ignore', 'pipe', 'inherit'] })
  await once(child.stdout, 'data')
  return child
}

async function stopped(child: ChildProcess): Promise<void> {
  child.kill('SIGKILL')
  await once(child, 'close')
}

function median(values: readonly number[]): number {
  return values.toSorted((a, b) => a - b)[Math.floor(values.length / 2)] ?? NaN
}
