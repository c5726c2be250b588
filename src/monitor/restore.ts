// A server that finds something held goes on where its predecessor died: containers, execs, listeners, namespaces.
// Each entity is restored by itself; what cannot be is one diagnostic and costs only that entity.

import { closeSync, rmSync } from 'node:fs'
import { setTimeout as sleep } from 'node:timers/promises'
import { messageOf } from '../base/errors.ts'
import { OCI_RUNTIME_ADOPT_MS } from '../base/limits.ts'
import { Container } from '../container/container.ts'
import type { ContainerContext } from '../container/context.ts'
import { ExecProcess } from '../container/exec-process.ts'
import { readPidIfThere } from '../container/launch.ts'
import { isAlive, killTree } from '../container/process-tree.ts'
import { decodeRecord, encodeRecord, type ContainerRecord, type ExecRecord } from '../container/record.ts'
import type { HeldEntry } from '../keeper/keeper-client.ts'
import { logPathNames, reopenLogFile } from '../log/log-file.ts'
import type { AttachRecord } from './attach-endpoints.ts'
import type { Monitor, NamespacesRecord } from './monitor.ts'

/** Everything held, by name; what is taken over is taken out. */
export type Held = Map<string, HeldEntry>

/** Restores all but the lock and the RPC listener, which the caller took. Leaves `held` with what nobody knew. */
export async function restore(monitor: Monitor, context: ContainerContext, held: Held): Promise<void> {
  await guard(context, 'namespaces', () => restoreNamespaces(monitor, held))
  for (const name of [...held.keys()].filter((name) => /^container\/[^/]+$/.test(name))) {
    await guard(context, name, () => restoreContainer(monitor, context, held, name))
  }
  for (const name of [...held.keys()].filter((name) => /^exec\/[^/]+$/.test(name))) {
    await guard(context, name, () => restoreExec(monitor, context, held, name))
  }
  for (const name of new Set([...held.keys()].flatMap((name) => /^attach\/[^/]+/.exec(name)?.[0] ?? []))) {
    await guard(context, name, () => restoreAttach(monitor, context, held, name))
  }
  const listener = take(held, 'listener/http')?.fd
  if (listener !== undefined) await monitor.adoptStreaming(listener)
  await context.exits.claimStrays()
}

async function guard(context: ContainerContext, name: string, step: () => Promise<void>): Promise<void> {
  try {
    await step()
  } catch (error) {
    context.diagnostics.error(`restore ${name}: ${messageOf(error)}`)
  }
}

async function restoreNamespaces(monitor: Monitor, held: Held): Promise<void> {
  const entry = take(held, 'namespaces')
  if (entry === undefined) return
  monitor.adoptNamespaces(decodeRecord<NamespacesRecord>(entry.name, entry.record), take(held, 'netns')?.fd)
}

async function restoreContainer(
  monitor: Monitor,
  context: ContainerContext,
  held: Held,
  name: string,
): Promise<void> {
  const record = decodeRecord<ContainerRecord>(name, held.get(name)!.record)
  take(held, name)
  const io = take(held, `${name}/io`)
  const stdin = take(held, `${name}/in`)?.fd
  const terminal = take(held, `${name}/tty`)?.fd
  const stdout = take(held, `${name}/out`)?.fd
  const stderr = take(held, `${name}/err`)?.fd
  if (record.state !== 'creating') {
    for (const fd of [stdout, stderr]) if (fd !== undefined) closeSync(fd)
    await dropAll(context, [`${name}/out`, `${name}/err`])
    const relogged = await relogIfUnnamed(context, record, io)
    const input = await stdinAfterClient(context, record, stdin)
    monitor.containers.add(
      Container.adopt(context, relogged, { stdin: input, terminal, pump: io?.pump, logInode: 0 }),
    )
    return
  }
  const pid = await settleRuntime(record)
  const master = record.terminal ? terminal : undefined
  if (pid !== undefined && (record.terminal ? master !== undefined : stdout !== undefined)) {
    await context.keeper.hold(name, { record: encodeRecord(record) })
    const launched = { pid, stdin, stdout, stderr, terminal: master }
    monitor.containers.add(await Container.adoptCreated(context, record, launched))
    return
  }
  // The caller's create failed with its connection; the bundle is left to its delete.
  for (const fd of [stdin, terminal, stdout, stderr]) if (fd !== undefined) closeSync(fd)
  if (pid !== undefined) await context.keeper.kill(pid, 9)
  await dropAll(context, [name, ...['in', 'tty', 'out', 'err', 'io'].map((suffix) => `${name}/${suffix}`)])
  context.diagnostics.warn(
    `container ${record.id}: its creation was cut short by the server's death and is given up`,
  )
}

/** A server killed between renaming a log and `relog` leaves an open log without a name. */
async function relogIfUnnamed(
  context: ContainerContext,
  record: ContainerRecord,
  io: HeldEntry | undefined,
): Promise<ContainerRecord> {
  const inode = io?.pump?.inode ?? 0
  if (record.logPath === '' || inode === 0 || logPathNames(record.logPath, inode)) return record
  try {
    const fd = reopenLogFile(record.logPath, inode, true)
    try {
      await context.keeper.relog(`container/${record.id}/io`, fd)
    } finally {
      closeSync(fd)
    }
  } catch (error) {
    // The container counts for more than its log.
    context.diagnostics.error(`container ${record.id}: go on in its log: ${messageOf(error)}`)
    return record
  }
  const relogged = { ...record, relogged: true }
  await context.keeper.record(`container/${record.id}`, encodeRecord(relogged))
  return relogged
}

/** A stdinOnce client died with the server: so does the container's stdin. */
async function stdinAfterClient(
  context: ContainerContext,
  record: ContainerRecord,
  stdin: number | undefined,
): Promise<number | undefined> {
  if (stdin === undefined || !record.stdinTaken) return stdin
  closeSync(stdin)
  await context.keeper.drop(`container/${record.id}/in`)
  return undefined
}

async function restoreExec(
  monitor: Monitor,
  context: ContainerContext,
  held: Held,
  name: string,
): Promise<void> {
  const record = decodeRecord<ExecRecord>(name, held.get(name)!.record)
  take(held, name)
  const stdout = take(held, `${name}/out`)?.fd
  const stderr = take(held, `${name}/err`)?.fd
  const pid = record.pid > 0 ? record.pid : await settleRuntime(record)
  rmSync(record.pidFile, { force: true })
  rmSync(record.pidFile.replace(/\.pid$/, '.json'), { force: true })
  if (pid === undefined || record.kind === 'sync') {
    for (const fd of [stdout, stderr]) if (fd !== undefined) closeSync(fd)
    await dropAll(context, [name, `${name}/out`, `${name}/err`])
    if (pid !== undefined) {
      // Nobody can collect it any more.
      await killTree(context.keeper, pid)
      const exit = await context.exits.wait(pid)
      await context.keeper.claimed(exit.number)
    }
    return
  }
  const fds = { ...(stdout === undefined ? {} : { stdout }), ...(stderr === undefined ? {} : { stderr }) }
  const process = ExecProcess.adopt(context, name, { ...record, pid }, fds)
  const container = monitor.containers.all().find((other) => other.id === record.containerId)
  container?.trackExec(process)
  // Its container has exited: nobody else ends it.
  if (container === undefined || container.state === 'exited') await process.kill()
}

async function restoreAttach(
  monitor: Monitor,
  context: ContainerContext,
  held: Held,
  name: string,
): Promise<void> {
  const entry = take(held, name)
  const connections = [...held.keys()]
    .filter((other) => other.startsWith(`${name}/`))
    .flatMap((other) => take(held, other)!)
  // Without its listener the container has exited.
  const record = entry === undefined ? undefined : decodeRecord<AttachRecord>(name, entry.record)
  const container = monitor.containers.all().find((other) => other.id === record?.containerId)
  const fds = connections.flatMap((connection) =>
    connection.fd === undefined ? [] : [{ name: connection.name, fd: connection.fd }],
  )
  if (container !== undefined && record !== undefined && entry?.fd !== undefined) {
    monitor.attachEndpoints.adopt(container, record, { name, fd: entry.fd, connections: fds })
    return
  }
  for (const fd of [entry?.fd, ...fds.map((connection) => connection.fd)]) if (fd !== undefined) closeSync(fd)
  await dropAll(context, [name, ...connections.map((connection) => connection.name)])
}

/**
 * Waits until the OCI runtime of a dead server has gone, and kills it when it takes too long. Resolves to the pid that it
 * left; undefined: it never ran, or failed.
 */
async function settleRuntime(record: {
  pidFile: string
  runtimePidFile: string
}): Promise<number | undefined> {
  const runtime = readPidIfThere(record.runtimePidFile)
  if (runtime !== undefined) {
    const deadline = Date.now() + OCI_RUNTIME_ADOPT_MS
    while (isAlive(runtime) && Date.now() < deadline) await sleep(20)
    if (isAlive(runtime)) process.kill(runtime, 'SIGKILL')
    rmSync(record.runtimePidFile, { force: true })
  }
  return readPidIfThere(record.pidFile)
}

async function dropAll(context: ContainerContext, names: readonly string[]): Promise<void> {
  await Promise.allSettled(names.map((name) => context.keeper.drop(name)))
}

function take(held: Held, name: string): HeldEntry | undefined {
  const entry = held.get(name)
  held.delete(name)
  return entry
}
