// Bytes through exec sessions and port-forwards, by the same lean clients, against the Go library, in alternating rounds.

import { MonitorRig } from '../interop/monitor-rig.ts'
import { cpuOf } from '../interop/processes.ts'
import { Program, output, referee } from '../interop/programs.ts'
import { Yardstick } from '../interop/yardstick.ts'
import { compare } from './measure.ts'
import type { Benchmark, Effort, Measure } from './measure.ts'

/** One way to move bytes. */
interface Way {
  readonly name: string
  readonly kind: 'exec' | 'portforward'
  readonly transport: 'spdy' | 'ws'
  readonly upload: boolean
  readonly atLeast: number
}

const ways: readonly Way[] = [
  { name: 'exec-out-spdy', kind: 'exec', transport: 'spdy', upload: false, atLeast: 1.5 },
  { name: 'exec-out-ws', kind: 'exec', transport: 'ws', upload: false, atLeast: 1.5 },
  { name: 'exec-in-spdy', kind: 'exec', transport: 'spdy', upload: true, atLeast: 1.3 },
  { name: 'exec-in-ws', kind: 'exec', transport: 'ws', upload: true, atLeast: 2 },
  { name: 'forward-out-spdy', kind: 'portforward', transport: 'spdy', upload: false, atLeast: 1.5 },
  { name: 'forward-in-spdy', kind: 'portforward', transport: 'spdy', upload: true, atLeast: 1.5 },
]
const cpuAtMost = 0.7
const peer = 'cri-streaming'

export const streamBenches: readonly Benchmark[] = ways.map((way) => ({
  names: [way.name, `${way.name}-cpu`],
  needsGo: true,
  run: async (effort) => await withServers(async (rivals) => await wayBench(way, rivals, effort)),
}))

/** Who hands out URLs, and which processes do the work. */
export interface Rival {
  readonly url: MonitorRig['url']
  readonly pids: readonly number[]
}

/** Ours and theirs, with one container that both exec into: `bench`. */
export async function withServers(
  measure: (rivals: { ours: Rival; theirs: Rival }, rig: MonitorRig) => Promise<Measure[]>,
): Promise<Measure[]> {
  const rig = await MonitorRig.start()
  try {
    await rig.runContainer('bench', { args: ['sleep', '100000'] })
    const yardstick = await Yardstick.start(rig.runtimePath, rig.runtimeRoot)
    try {
      return await measure(
        {
          ours: { url: async (request) => await rig.url(request), pids: [rig.pid, await rig.serverPid()] },
          theirs: { url: async (request) => await yardstick.url(request), pids: [yardstick.pid] },
        },
        rig,
      )
    } finally {
      await yardstick.stop()
    }
  } finally {
    await rig.stop()
  }
}

async function wayBench(
  way: Way,
  { ours, theirs }: { ours: Rival; theirs: Rival },
  effort: Effort,
): Promise<Measure[]> {
  const target = new Program(referee('driver'), ['target'])
  try {
    const [, port = ''] = await target.until(/:(\d+)\n/)
    const seen: [Transfer[], Transfer[]] = [[], []]
    for (let round = 0; round < effort.rounds; round++) {
      seen[0].push(await transfer(way, ours, { port, effort }))
      seen[1].push(await transfer(way, theirs, { port, effort }))
    }
    const [rates, cpus] = [
      seen.map((list) => list.map(({ rate }) => rate)),
      seen.map((list) => list.map(({ cpu }) => cpu)),
    ]
    return [
      compare({ name: way.name, unit: 'MB/s', peer }, rates[0] ?? [], rates[1] ?? [], {
        atLeast: way.atLeast,
      }),
      compare({ name: `${way.name}-cpu`, unit: 's/GiB', peer }, cpus[0] ?? [], cpus[1] ?? [], {
        atMost: cpuAtMost,
      }),
    ]
  } finally {
    await target.stop()
  }
}

interface Transfer {
  /** MB/s. */
  readonly rate: number
  /** The server's CPU seconds per GiB. */
  readonly cpu: number
}

async function transfer(
  way: Way,
  rival: Rival,
  { port, effort: { bytes } }: { port: string; effort: Effort },
): Promise<Transfer> {
  const blocks = String(Math.ceil(bytes / 65_536))
  const cmd = way.upload
    ? ['dd', 'of=/dev/null', 'bs=64k', 'iflag=fullblock', `count=${blocks}`]
    : ['dd', 'if=/dev/zero', 'bs=64k', `count=${blocks}`]
  const url = await rival.url({ kind: way.kind, id: 'bench', cmd, stdin: way.upload, stdout: true })
  const args = [
    way.kind === 'exec' ? 'transfer' : 'forward',
    '--transport',
    way.transport,
    '--bytes',
    String(bytes),
  ]
  if (way.upload) args.push('--upload')
  if (way.kind === 'portforward') args.push('--port', port)
  const before = rival.pids.map(cpuOf)
  const printed = await output(referee('driver'), [...args, url], { timeoutMs: 300_000 })
  const cpu = rival.pids.reduce((sum, pid, i) => sum + cpuOf(pid) - (before[i] ?? 0), 0)
  const { seconds } = JSON.parse(printed) as { seconds: number }
  return { rate: bytes / 1e6 / seconds, cpu: (cpu / bytes) * 2 ** 30 }
}
