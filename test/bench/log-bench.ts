// The container log: a container writes lines as fast as it can, to our monitor, to C conmon and through `cat > file`.
// A rate is that of the container's bytes, from the log's first one until the exit is reported.

import { existsSync, statSync } from 'node:fs'
import { copyFile, mkdir, rm } from 'node:fs/promises'
import { join } from 'node:path'
import { makeBundle } from '../interop/bundle.ts'
import { MonitorRig } from '../interop/monitor-rig.ts'
import { waitFor } from '../interop/processes.ts'
import { Program, output, referee, repository, run } from '../interop/programs.ts'
import { createUnderConmon } from './conmon.ts'
import { compare } from './measure.ts'
import type { Benchmark, Effort, Measure } from './measure.ts'

/** One container under test: how to create it, where its log and its exit show. */
interface Subject {
  readonly log: string
  readonly exitFile: string
  /** Undefined: no client. */
  readonly attachSocket?: string
}

export const logBench: Benchmark = {
  names: ['log-80', 'log-80-cat', 'log-16k', 'log-16k-cat'],
  needsGo: false,
  run: async (effort) => {
    return await withRig(async (rig) => [
      ...(await lineBench(rig, 'log-80', 80, effort)),
      ...(await lineBench(rig, 'log-16k', 16_384, effort)),
    ])
  },
}

export const attachedLogBench: Benchmark = {
  names: ['log-attached'],
  needsGo: true,
  run: async (effort) => {
    return await withRig(async (rig) => {
      const [ours, theirs]: [number[], number[]] = [[], []]
      for (let round = 0; round < effort.rounds; round++) {
        ours.push(await rate(rig, await underMonitor(rig, 80, effort.bytes, true), effort.bytes))
        theirs.push(await rate(rig, await underConmon(rig, 80, effort.bytes, true), effort.bytes))
      }
      const what = { name: 'log-attached', unit: 'MB/s', peer: 'conmon, attached' }
      return [compare(what, ours, theirs, { atLeast: 1.5 })]
    })
  },
}

async function lineBench(rig: MonitorRig, name: string, line: number, effort: Effort): Promise<Measure[]> {
  const [ours, conmon, cat]: [number[], number[], number[]] = [[], [], []]
  for (let round = 0; round < effort.rounds; round++) {
    ours.push(await rate(rig, await underMonitor(rig, line, effort.bytes, false), effort.bytes))
    conmon.push(await rate(rig, await underConmon(rig, line, effort.bytes, false), effort.bytes))
    cat.push(await catRate(rig, line, effort.bytes))
  }
  const unit = 'MB/s'
  const small = line < 1024
  return [
    compare({ name, unit, peer: 'conmon' }, ours, conmon, { atLeast: small ? 2.5 : 1.9 }),
    compare({ name: `${name}-cat`, unit, peer: 'cat > file' }, ours, cat, { atLeast: small ? 0.6 : 0.8 }),
  ]
}

async function withRig(measure: (rig: MonitorRig) => Promise<Measure[]>): Promise<Measure[]> {
  // Not on a disk, whose speed would be measured instead.
  const rig = await MonitorRig.start(existsSync('/dev/shm') ? { base: '/dev/shm' } : {})
  try {
    await copyFile(await lineWriter(), join(rig.rootfs, 'bin', 'lines'))
    return await measure(rig)
  } finally {
    await rig.stop()
  }
}

async function lineWriter(): Promise<string> {
  const path = join(repository, '.cache', 'bench', 'lines')
  await mkdir(join(repository, '.cache', 'bench'), { recursive: true })
  const source = join(repository, 'test', 'bench', 'lines.c')
  await output('musl-gcc', ['-static', '-O2', '-o', path, source])
  return path
}

const subjectId = 'lines'

async function underMonitor(
  rig: MonitorRig,
  line: number,
  bytes: number,
  attached: boolean,
): Promise<Subject> {
  await rig.create(subjectId, { args: ['lines', String(line), String(bytes)] })
  const subject = { log: rig.logOf(subjectId), exitFile: rig.exitFileOf(subjectId) }
  if (!attached) return subject
  const attachSocket = join(rig.directory, 'attach', 'socket')
  await rig.client.attachContainer({ id: subjectId, socketPath: attachSocket })
  return { ...subject, attachSocket }
}

async function underConmon(
  rig: MonitorRig,
  line: number,
  bytes: number,
  attached: boolean,
): Promise<Subject> {
  const directory = join(rig.directory, 'conmon')
  const bundle = join(directory, 'bundle')
  await makeBundle(bundle, rig.rootfs, { args: ['lines', String(line), String(bytes)] })
  const { runtimePath, runtimeRoot } = rig
  const { attachSocket, ...subject } = await createUnderConmon({
    id: subjectId,
    bundle,
    directory,
    runtimePath,
    runtimeRoot,
  })
  return attached ? { ...subject, attachSocket } : subject
}

async function rate(rig: MonitorRig, subject: Subject, bytes: number): Promise<number> {
  const client = subject.attachSocket === undefined ? undefined : await attach(subject.attachSocket)
  await rig.startContainer(subjectId)
  await waitFor('the first log entry', () => sizeOf(subject.log) > 0)
  const begin = performance.now()
  await waitFor('the exit', () => existsSync(subject.exitFile), 300_000)
  const seconds = (performance.now() - begin) / 1000
  await client?.exited
  await rig.deleteContainer(subjectId)
  if (sizeOf(subject.log) < bytes) throw new Error(`${subject.log}: only ${sizeOf(subject.log)} bytes`)
  for (const path of [subject.log, subject.exitFile]) await rm(path)
  return bytes / 1e6 / seconds
}

async function attach(path: string): Promise<Program> {
  const client = new Program(referee('driver'), ['attach', path])
  await client.until(/attached/)
  return client
}

async function catRate(rig: MonitorRig, line: number, bytes: number): Promise<number> {
  const path = join(rig.directory, 'cat')
  const writer = join(rig.rootfs, 'bin', 'lines')
  const begin = performance.now()
  await run('sh', ['-c', `"${writer}" ${line} ${bytes} | cat >"${path}"`], { timeoutMs: 300_000 })
  const seconds = (performance.now() - begin) / 1000
  await rm(path)
  return bytes / 1e6 / seconds
}

function sizeOf(path: string): number {
  return statSync(path, { throwIfNoEntry: false })?.size ?? 0
}
