// Exec, attach, port-forward and what else goes to the pod's monitor. The daemon checks, asks for a URL and hands it on:
// it never touches a byte of a stream, except the collected ones of ExecSync.

import { MonitorError } from '../base/errors.ts'
import { MAX_CRI_CLIENT_MESSAGE_BYTES } from '../base/limits.ts'
import type { MonitorClient } from '../client/monitor-client.ts'
import type { StreamFlags } from './messages.ts'
import type { Pod } from './pod.ts'
import type { Member, Registry } from './registry.ts'

export interface ExecSyncAnswer {
  readonly stdout: Buffer
  readonly stderr: Buffer
  readonly exitCode: number
}

/** Room for the rest of the message. */
const envelopeBytes = 1024

export class StreamCalls {
  readonly #registry: Registry

  constructor(registry: Registry) {
    this.#registry = registry
  }

  async exec(request: StreamFlags & { readonly cmd: readonly string[] }): Promise<{ url: string }> {
    requireContainerId(request)
    refuseTtyWithStderr(request)
    if (!request.stdin && !request.stdout && !request.stderr) {
      throw new MonitorError('invalid-argument', 'one of stdin, stdout, or stderr must be set')
    }
    const { pod, container } = this.#running('exec in', request.containerId)
    requireCommand(container.id, request.cmd)
    const { tty, stdin, stdout, stderr, cmd } = request
    const session = { id: container.id, command: cmd, tty, stdin, stdout, stderr }
    return { url: await askForUrl(pod, async (monitor) => await monitor.serveExec(session)) }
  }

  async attach(request: StreamFlags): Promise<{ url: string }> {
    requireContainerId(request)
    refuseTtyWithStderr(request)
    if (!request.stdin && !request.stdout && !request.stderr) {
      throw new MonitorError('invalid-argument', 'one of stdin, stdout, and stderr must be set')
    }
    const { pod, container } = this.#running('attach to', request.containerId)
    const { tty, stdin, stdout, stderr } = request
    const { terminal, stdinOnce } = container.record
    if (tty !== terminal) {
      const has = terminal ? 'has a terminal' : 'has no terminal'
      throw new MonitorError(
        'invalid-argument',
        `attach to container ${container.id}: tty is ${tty}, but it ${has}`,
      )
    }
    const session = { id: container.id, tty, stdin, stdout, stderr, stdinOnce }
    return { url: await askForUrl(pod, async (monitor) => await monitor.serveAttach(session)) }
  }

  async portForward(request: {
    readonly podSandboxId: string
    readonly port: readonly number[]
  }): Promise<{ url: string }> {
    const pod = this.#registry.pod(request.podSandboxId)
    pod.requireReady('port-forward to')
    const wrong = request.port.find((port) => port < 1 || port > 65_535)
    if (wrong !== undefined) {
      throw new MonitorError('invalid-argument', `port-forward to pod ${pod.id}: ${wrong} is no port`)
    }
    const { net } = pod.record.namespaces
    const session = {
      podSandboxId: pod.id,
      ports: request.port,
      ...(net === undefined ? {} : { netnsPath: net }),
    }
    return { url: await askForUrl(pod, async (monitor) => await monitor.servePortForward(session)) }
  }

  /** Runs a command to its end. When `gone` fires the monitor kills it. */
  async execSync(
    request: { readonly containerId: string; readonly cmd: readonly string[]; readonly timeout: string },
    gone: AbortSignal,
  ): Promise<ExecSyncAnswer> {
    const { pod, container } = this.#running('exec in', request.containerId)
    requireCommand(container.id, request.cmd)
    const seconds = Number(request.timeout)
    if (seconds < 0) {
      throw new MonitorError('invalid-argument', `exec in container ${container.id}: the timeout is negative`)
    }
    const monitor = await clientOf(pod)
    const limit = { timeoutMs: seconds * 1000 }
    const outcome = await monitor.execSync(
      { id: container.id, command: request.cmd, ...limit },
      { signal: gone },
    )
    if (outcome.timedOut) {
      throw new MonitorError(
        'deadline-exceeded',
        `exec in container ${container.id}: the command timed out after ${seconds} s and was killed`,
      )
    }
    return { ...fit(outcome.stdout, outcome.stderr), exitCode: outcome.exitCode }
  }

  async reopenLog(containerId: string): Promise<void> {
    const { pod, container } = this.#running('reopen log of', containerId)
    const monitor = await clientOf(pod)
    await monitor.reopenLog(container.id)
  }

  #running(what: string, containerId: string): Member {
    const member = this.#registry.member(containerId)
    member.container.requireRunning(what)
    return member
  }
}

/** The monitor's connection, with the pod named when there is none. */
async function clientOf(pod: Pod): Promise<MonitorClient> {
  try {
    return await pod.monitor.client()
  } catch (error) {
    throw MonitorError.within(`pod ${pod.id}`, error, 'unavailable')
  }
}

/** A URL that got lost starts nothing: when the monitor's server dies over the call, its successor is asked. */
async function askForUrl(pod: Pod, ask: (monitor: MonitorClient) => Promise<string>): Promise<string> {
  const monitor = await clientOf(pod)
  try {
    return await ask(monitor)
  } catch (error) {
    if (!(error instanceof MonitorError) || error.code !== 'unavailable') throw error
    return await ask(monitor)
  }
}

function requireContainerId({ containerId }: { readonly containerId: string }): void {
  if (containerId === '') throw new MonitorError('invalid-argument', 'missing required container_id')
}

function refuseTtyWithStderr({ tty, stderr }: StreamFlags): void {
  if (tty && stderr) throw new MonitorError('invalid-argument', 'tty and stderr cannot both be true')
}

function requireCommand(containerId: string, command: readonly string[]): void {
  if (command.length === 0) {
    throw new MonitorError('invalid-argument', `exec in container ${containerId}: missing required cmd`)
  }
  if (command.some((arg) => arg.includes('\0'))) {
    throw new MonitorError('invalid-argument', `exec in container ${containerId}: cmd contains a zero byte`)
  }
}

/** Both streams fit into what clients take in one message; the rest is thrown away, as the interface wants it. */
function fit(stdout: Buffer, stderr: Buffer): { stdout: Buffer; stderr: Buffer } {
  const room = MAX_CRI_CLIENT_MESSAGE_BYTES - envelopeBytes
  if (stdout.length + stderr.length <= room) return { stdout, stderr }
  // The smaller one is kept whole as far as half the room goes.
  const errors = Math.min(stderr.length, Math.max(room / 2, room - stdout.length))
  return { stdout: stdout.subarray(0, room - errors), stderr: stderr.subarray(0, errors) }
}
