// Memory, as proportional set size: idle pods beside bare idle Node processes, sessions, and clients that never read.

import { setTimeout as sleep } from 'node:timers/promises'
import { MonitorRig } from '../interop/monitor-rig.ts'
import { pssOf, serverOf } from '../interop/processes.ts'
import { Program, referee } from '../interop/programs.ts'
import type { UrlRequest } from '../interop/control.ts'
import { compare, limit } from './measure.ts'
import type { Benchmark, Measure } from './measure.ts'
import { withServers } from './stream-bench.ts'
import type { Rival } from './stream-bench.ts'

const counts = [1, 10, 50] as const
const settleMs = 2_000
const keeperMaxMb = 0.1
const podMaxRatio = 1.35

/** At 1 and 10 pods the figures are shown; the budget is for 50. */
export const podBench: Benchmark = {
  names: counts.flatMap((count) => [`keeper-${count}`, `server-${count}`, `pod-${count}`]),
  needsGo: false,
  run: async (effort) => {
    const wanted = effort.quick ? counts.slice(0, 2) : counts
    const pods = await podMemory(wanted)
    const bare = await bareMemory(wanted)
    return wanted.flatMap((count, i) => {
      const { keeper = NaN, server = NaN } = pods[i] ?? {}
      const node = bare[i] ?? NaN
      const rival = { unit: 'MB', peer: 'bare idle node' }
      const budget = { atMost: podMaxRatio }
      return [
        limit({ name: `keeper-${count}`, unit: 'MB' }, keeper, count === 1 ? 1 : keeperMaxMb),
        compare({ name: `server-${count}`, ...rival }, [server], [node], budget),
        compare({ name: `pod-${count}`, ...rival }, [keeper + server], [node], budget),
      ]
    })
  },
}

/** Means over all pods, in MB, at each count. */
async function podMemory(wanted: readonly number[]): Promise<{ keeper: number; server: number }[]> {
  const rigs: MonitorRig[] = []
  const seen = []
  try {
    for (const count of wanted) {
      while (rigs.length < count) {
        const rig = await MonitorRig.start({ env: { HOLDFAST_NODE: process.execPath } })
        rigs.push(rig)
        await rig.runContainer(`pod-${rigs.length}`, { args: ['sleep', '100000'] })
      }
      await sleep(settleMs)
      const mean = (pids: number[]): number =>
        pids.reduce((sum, pid) => sum + pssOf(pid), 0) / pids.length / 1000
      seen.push({
        keeper: mean(rigs.map(({ pid }) => pid)),
        server: mean(rigs.map(({ pid }) => serverOf(pid) ?? 0)),
      })
    }
  } finally {
    for (const rig of rigs) await rig.stop()
  }
  return seen
}

async function bareMemory(wanted: readonly number[]): Promise<number[]> {
  const nodes: Program[] = []
  const seen = []
  try {
    for (const count of wanted) {
      while (nodes.length < count) {
        const node = new Program(process.execPath, ['-e', 'process.stdout.write("r");setTimeout(()=>{},1e9)'])
        nodes.push(node)
        await node.until(/r/)
      }
      await sleep(settleMs)
      seen.push(nodes.reduce((sum, { pid }) => sum + pssOf(pid), 0) / nodes.length / 1000)
    }
  } finally {
    for (const node of nodes) {
      node.kill('SIGKILL')
      await node.exited
    }
  }
  return seen
}

const sessionMaxKb = { spdy: 64, ws: 40 } as const

export const sessionBenches: readonly Benchmark[] = (['spdy', 'ws'] as const).map((transport) => ({
  names: [`session-${transport}`],
  needsGo: true,
  run: async (effort) =>
    await withServers(async ({ ours, theirs }) => {
      const count = effort.quick ? 10 : 100
      const request = { kind: 'exec', id: 'bench', cmd: ['cat'], stdin: true, stdout: true } as const
      const flags = ['--stdin', '--transport', transport]
      const each = async (rival: Rival): Promise<number> =>
        (await grown(rival, request, flags, count)) / count
      const what = { name: `session-${transport}`, unit: 'KB' }
      const value = await each(ours)
      return [
        limit(what, value, sessionMaxKb[transport], { peer: 'cri-streaming', peerValue: await each(theirs) }),
      ]
    }),
}))

export const unreadBench: Benchmark = {
  names: ['unread-100'],
  needsGo: true,
  run: async (effort) =>
    await withServers(async ({ ours, theirs }): Promise<Measure[]> => {
      const count = effort.quick ? 10 : 100
      const request = {
        kind: 'exec',
        id: 'bench',
        cmd: ['dd', 'if=/dev/zero', 'bs=64k'],
        stdout: true,
      } as const
      const mb = async (rival: Rival): Promise<number> =>
        (await grown(rival, request, ['--unread'], count)) / 1000
      const value = await mb(ours)
      const rival = { peer: 'cri-streaming', peerValue: await mb(theirs) }
      return [limit({ name: 'unread-100', unit: 'MB' }, value, 32, rival)]
    }),
}

/** How many KB a server grows by when `count` sessions are open, after a first one has loaded what all need. */
async function grown(
  rival: Rival,
  request: Partial<UrlRequest>,
  flags: readonly string[],
  count: number,
): Promise<number> {
  const first = await hold(rival, request, flags, 1)
  await first.stop()
  await sleep(settleMs)
  const pss = (): number => rival.pids.reduce((sum, pid) => sum + pssOf(pid), 0)
  const before = pss()
  const held = await hold(rival, request, flags, count)
  await sleep(settleMs)
  const after = pss()
  await held.stop()
  return after - before
}

async function hold(
  rival: Rival,
  request: Partial<UrlRequest>,
  flags: readonly string[],
  count: number,
): Promise<Program> {
  const client = new Program(referee('driver'), ['hold', ...flags])
  for (let i = 1; i <= count; i++) {
    client.write(`${await rival.url(request)}\n`)
    await client.until(new RegExp(`(open\\n){${i}}`))
  }
  return client
}
