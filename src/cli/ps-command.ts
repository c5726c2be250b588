// `holdfast ps`: pods and containers as holdfastd knows them; without a daemon, what the state directory and the
// monitors say. `holdfast rm`: removes pods.

import { rm } from 'node:fs/promises'
import { dirname, join } from 'node:path'
import { isErrno, messageOf, MonitorError } from '../base/errors.ts'
import { oneBeginningWith, readPods } from '../client/pod-lookup.ts'
import type { StatePaths } from '../client/pod-state.ts'
import type { CommandSpec, ParsedCommand } from './command-line.ts'
import { endpointOf, endpointOption, shortId, stateOption, statePaths, withMonitor } from './context.ts'
import type { CommandContext } from './context.ts'
import { CriClient } from './cri-client.ts'
import { EXIT_FAILED } from './exit-codes.ts'
import { formatAge, formatTable } from './table.ts'

export const psSpec: CommandSpec = {
  summary: 'List pods and their containers',
  usage: '',
  options: {
    all: { short: 'a', help: 'those that have ended, too' },
    quiet: { short: 'q', help: 'only the ids of containers' },
    ...stateOption,
    ...endpointOption,
  },
  positionals: [0, 0],
}

export const rmSpec: CommandSpec = {
  summary: 'Stop and remove pods with all their containers',
  usage: 'POD…',
  options: { ...stateOption, ...endpointOption },
  positionals: [1, 1000],
}

/** One line of the list. */
interface Row {
  readonly containerId: string
  readonly name: string
  readonly image: string
  readonly state: string
  readonly createdAt: string
  readonly podId: string
  readonly pod: string
}

/** Runs `ps`. */
export async function psCommand(parsed: ParsedCommand, context: CommandContext): Promise<number> {
  let rows
  try {
    rows = await rowsFromDaemon(endpointOf(parsed, context.env))
  } catch (error) {
    if (!(error instanceof MonitorError) || error.code !== 'unavailable') throw error
    context.say(`no daemon answers; this is what the state directory and the monitors say`)
    rows = await rowsFromState(statePaths(parsed, context.env))
  }
  const all = parsed.flags.has('all')
  const shown = rows
    .filter(({ state }) => all || state === 'running' || state === 'ready')
    .toSorted((a, b) => (BigInt(a.createdAt) < BigInt(b.createdAt) ? 1 : -1))
  if (parsed.flags.has('quiet')) {
    for (const { containerId } of shown) if (containerId !== '') context.stdout.write(`${containerId}\n`)
    return 0
  }
  const now = Date.now()
  const cells = shown.map((row) => [
    shortId(row.containerId) || '-',
    row.name || '-',
    row.image || '-',
    row.state,
    formatAge(now - Number(BigInt(row.createdAt) / 1_000_000n)),
    shortId(row.podId),
    row.pod,
  ])
  context.stdout.write(
    formatTable([['CONTAINER', 'NAME', 'IMAGE', 'STATE', 'AGE', 'POD ID', 'POD'], ...cells]),
  )
  return 0
}

/** Runs `rm`. */
export async function rmCommand(parsed: ParsedCommand, context: CommandContext): Promise<number> {
  const cri = await CriClient.connect(endpointOf(parsed, context.env))
  let code = 0
  try {
    for (const wanted of parsed.positionals) {
      try {
        const id = await podIdOf(cri, wanted)
        await removePod(cri, id, statePaths(parsed, context.env))
        context.stdout.write(`${id}\n`)
      } catch (error) {
        if (error instanceof MonitorError && error.code === 'unavailable') throw error
        // The others are removed all the same.
        context.say(`error: remove pod ${wanted}: ${messageOf(error)}`)
        code = EXIT_FAILED
      }
    }
  } finally {
    cri.close()
  }
  return code
}

async function podIdOf(cri: CriClient, wanted: string): Promise<string> {
  const pods = await cri.listPods()
  const exact = pods.find(({ id, metadata }) => id === wanted || metadata.name === wanted)
  return (exact ?? oneBeginningWith('pod', wanted, pods, ({ id }) => id)).id
}

/** Stops and removes a pod, and the directory of logs that `holdfast run` made for it. */
export async function removePod(cri: CriClient, podId: string, paths: StatePaths): Promise<void> {
  const ours = logRoot(paths)
  const pod = (await readPods(paths)).find((candidate) => candidate.pod.id === podId)?.pod
  await cri.stopPod(podId)
  await cri.removePod(podId)
  if (pod !== undefined && dirname(pod.logDirectory) === ours)
    await rm(pod.logDirectory, { recursive: true, force: true })
}

/** Where `holdfast run` puts logs: a pod's directory belongs to whoever made the pod. */
export function logRoot(paths: StatePaths): string {
  return join(paths.root, 'logs')
}

async function rowsFromDaemon(endpoint: string): Promise<Row[]> {
  const cri = await CriClient.connect(endpoint)
  try {
    const [pods, containers] = await Promise.all([cri.listPods(), cri.listContainers()])
    return pods.flatMap((pod) => {
      const common = { podId: pod.id, pod: pod.metadata.name }
      const inside = containers.filter((container) => container.pod_sandbox_id === pod.id)
      if (inside.length === 0) {
        const state = pod.state.replace('SANDBOX_', '').toLowerCase()
        return [{ ...common, containerId: '', name: '', image: '', state, createdAt: pod.created_at }]
      }
      return inside.map((container) => ({
        ...common,
        containerId: container.id,
        name: container.metadata.name,
        image: container.image.image,
        state: container.state.replace('CONTAINER_', '').toLowerCase(),
        createdAt: container.created_at,
      }))
    })
  } finally {
    cri.close()
  }
}

async function rowsFromState(paths: StatePaths): Promise<Row[]> {
  const rows: Row[] = []
  for (const { pod, containers, paths: podPaths } of await readPods(paths)) {
    const states = await statesFromMonitor(podPaths)
    const common = { podId: pod.id, pod: pod.name }
    if (containers.length === 0)
      rows.push({
        ...common,
        containerId: '',
        name: '',
        image: '',
        state: pod.state,
        createdAt: pod.createdAt,
      })
    for (const { id, name, image, state, createdAt } of containers) {
      // The record is as old as the daemon's death; a running one may have ended since then.
      const now = state === 'running' ? (states?.get(id) ?? 'exited') : state
      rows.push({
        ...common,
        containerId: id,
        name,
        image,
        state: states === undefined ? `${state}?` : now,
        createdAt,
      })
    }
  }
  return rows
}

/** The states of the containers that the monitor knows; undefined when it does not answer. */
async function statesFromMonitor(
  pod: Parameters<typeof withMonitor>[0],
): Promise<ReadonlyMap<string, string> | undefined> {
  try {
    const containers = await withMonitor(pod, (monitor) => monitor.listContainers())
    return new Map(containers.map(({ id, state }) => [id, state]))
  } catch (error) {
    if (error instanceof MonitorError || isErrno(error, 'ENOENT', 'ECONNREFUSED')) return undefined
    throw error
  }
}
