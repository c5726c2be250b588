// Waiting times: a keystroke's echo, an exec's first byte, a monitor's start.

import { mkdtemp, rm } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { startMonitor } from '../../src/client/monitor-process.ts'
import { isAlive, waitFor } from '../interop/processes.ts'
import { Program, hostProgram, output, product, referee } from '../interop/programs.ts'
import { compare, limit, median } from './measure.ts'
import type { Benchmark, Effort, Measure } from './measure.ts'
import { withServers } from './stream-bench.ts'
import type { Rival } from './stream-bench.ts'

const transports = ['spdy', 'ws'] as const
const peer = 'cri-streaming'

export const echoBench: Benchmark = {
  names: transports.flatMap((transport) => [`echo-${transport}-p50`, `echo-${transport}-p99`]),
  needsGo: true,
  run: async (effort) =>
    await withServers(async ({ ours, theirs }) => {
      const measures: Measure[] = []
      for (const transport of transports) {
        const seen: [Echo[], Echo[]] = [[], []]
        for (let round = 0; round < effort.rounds; round++) {
          seen[0].push(await echo(transport, ours, effort))
          seen[1].push(await echo(transport, theirs, effort))
        }
        for (const which of ['p50', 'p99'] as const) {
          const [mine, other] = seen.map((list) => list.map((each) => each[which]))
          const what = { name: `echo-${transport}-${which}`, unit: 'us', peer }
          measures.push(compare(what, mine ?? [], other ?? [], { atMost: 1 }))
        }
      }
      return measures
    }),
}

interface Echo {
  readonly p50: number
  readonly p99: number
}

async function echo(transport: string, rival: Rival, effort: Effort): Promise<Echo> {
  const cmd = ['sh', '-c', 'stty raw -echo isig; echo R; exec cat']
  const url = await rival.url({ kind: 'exec', id: 'bench', cmd, tty: true, stdin: true, stdout: true })
  const count = effort.quick ? 200 : 2000
  const args = ['echo', '--tty', '--transport', transport, '--n', String(count), url]
  return JSON.parse(await output(referee('driver'), args, { timeoutMs: 60_000 })) as Echo
}

export const execStartBench: Benchmark = {
  names: transports.map((transport) => `exec-start-${transport}`),
  needsGo: true,
  run: async (effort) =>
    await withServers(async ({ ours, theirs }, rig) => {
      const measures: Measure[] = []
      for (const transport of transports) {
        const client = new Program(referee('driver'), ['first', '--transport', transport])
        const [mine, other, bare]: [number[], number[], number[]] = [[], [], []]
        const request = { kind: 'exec', id: 'bench', cmd: ['echo', 'x'], stdout: true } as const
        const command = `${rig.runtimePath} --root ${rig.runtimeRoot} exec bench echo x`
        for (let round = 0; round < (effort.quick ? 3 : 30); round++) {
          mine.push(await first(client, await ours.url(request)))
          other.push(await first(client, await theirs.url(request)))
          bare.push(await first(client, command))
        }
        await client.stop()
        const above = (values: number[]): number => median(values) - median(bare)
        const what = { name: `exec-start-${transport}`, unit: 'ms' }
        measures.push(limit(what, above(mine), 10, { peer, peerValue: above(other) }))
      }
      return measures
    }),
}

async function first(client: Program, line: string): Promise<number> {
  const before = client.stdout.length
  client.write(`${line}\n`)
  await client.until(new RegExp(`^[^]{${before}}.*\\n`))
  return Number(client.stdout.slice(before))
}

export const startBench: Benchmark = {
  names: ['monitor-start'],
  needsGo: false,
  run: async (effort) => {
    const [ours, bare]: [number[], number[]] = [[], []]
    for (let round = 0; round < (effort.quick ? 3 : 30); round++) {
      ours.push(await startTime())
      const begin = performance.now()
      await output(process.execPath, ['-e', '0'])
      bare.push(performance.now() - begin)
    }
    const what = { name: 'monitor-start', unit: 'ms', peer: 'node -e 0' }
    const old = process.versions.node.startsWith('20.')
    return [compare(what, ours, bare, { atMost: old ? 1.5 : 1.3 })]
  },
}

async function startTime(): Promise<number> {
  const directory = await mkdtemp(join(tmpdir(), 'holdfast-start-'))
  const begin = performance.now()
  const { pid } = await startMonitor({
    monitorPath: product('holdfast-monitor'),
    runtimePath: hostProgram('runc'),
    runtimeDir: directory,
    env: { ...process.env, HOLDFAST_NODE: process.execPath },
  })
  const took = performance.now() - begin
  process.kill(pid, 'SIGTERM')
  await waitFor('the end of the monitor', () => !isAlive(pid))
  await rm(directory, { recursive: true })
  return took
}
