// What the steps of the demo share: the narrator, claims that are checked, and what runs at the moment.

import type { ChildProcess } from 'node:child_process'
import { setTimeout as sleep } from 'node:timers/promises'
import { findContainer, findPod } from '../../src/client/pod-lookup.ts'
import { StatePaths, type PodPaths } from '../../src/client/pod-state.ts'
import { childrenOf, takeStock, type Belongings } from './host.ts'
import type { Installation } from './programs.ts'
import type { Terminal } from './terminal.ts'

/** The headline of a step. */
export function title(text: string): void {
  process.stdout.write(`\n== ${text}\n`)
}

let interrupted = false

/** The person has had enough: the next sentence, claim or wait throws, and the demo goes on to cleaning up. */
export function interrupt(): void {
  interrupted = true
}

/** One sentence of the narration. */
export function say(text: string): void {
  if (interrupted) throw new Error('interrupted')
  process.stdout.write(`   ${text}\n`)
}

/** A claim of the demo; `sentence` says what ought to be true. */
export function check(holds: boolean, sentence: string): asserts holds {
  if (interrupted) throw new Error('interrupted')
  if (!holds) throw new Error(sentence)
}

/** Waits until something is true; `sentence` says what. Resolves to the milliseconds it took. */
export async function waitFor(
  sentence: string,
  isTrue: () => boolean | Promise<boolean>,
  milliseconds = 15_000,
): Promise<number> {
  const from = performance.now()
  while (!(await isTrue())) {
    if (interrupted) throw new Error('interrupted')
    check(performance.now() - from < milliseconds, `${sentence} (waited ${milliseconds / 1000} s)`)
    await sleep(10)
  }
  return performance.now() - from
}

/** `3 ms`, `1.2 s`. */
export function span(milliseconds: number): string {
  return milliseconds < 1000
    ? `${Math.max(1, Math.round(milliseconds))} ms`
    : `${(milliseconds / 1000).toFixed(1)} s`
}

/** What runs, so that all of it can be ended whatever happened. */
export class Stage {
  readonly installation: Installation
  readonly paths: StatePaths
  /** Names of the pods that were started. */
  readonly pods: string[] = []
  readonly children: ChildProcess[] = []
  readonly terminals: Terminal[] = []
  shell: Terminal | undefined
  /** What must be gone at the end. */
  belongings: Belongings

  constructor(installation: Installation) {
    this.installation = installation
    this.paths = new StatePaths(installation.state)
    this.belongings = { directory: installation.directory, pods: [], networkNamespaces: [] }
  }

  /** Removes a pod; the traces it may leave are looked for at the end. */
  async remove(pod: string): Promise<void> {
    this.belongings = await takeStock(this.belongings, this.paths)
    const removed = await this.installation.run('rm', pod)
    if (removed.code !== 0) throw new Error(`holdfast rm removes the pod: ${removed.stderr}`)
  }

  /** The pod's keeper and server, by pid. */
  async monitorOf(pod: string): Promise<{ keeper: number; server: number; paths: PodPaths }> {
    const found = await findPod(this.paths, pod)
    const keeper = found.pod.monitorPid
    const [server = 0] = childrenOf(keeper, 'server.cjs')
    return { keeper, server, paths: found.paths }
  }

  /** The pid of the container's first process. */
  async containerPid(name: string): Promise<number> {
    return (await findContainer(this.paths, name)).container.pid
  }

  /** Ends every session, so that nobody waits for one. */
  endSessions(): void {
    for (const terminal of this.terminals) terminal.kill()
    for (const child of this.children) child.kill('SIGTERM')
  }

  /** Ends everything, whatever state it is in. */
  async tidy(): Promise<void> {
    this.endSessions()
    if (this.pods.length > 0 && !(await this.installation.daemonAnswers()))
      await this.installation.startDaemon()
    for (const pod of this.pods.splice(0)) await this.remove(pod)
    await this.installation.killDaemon('SIGTERM')
  }

  /** Leaves the pod and the daemon running, and says what to do with them. */
  leave(): void {
    const { directory, state, socket } = this.installation
    this.endSessions()
    this.installation.leaveDaemon()
    title('The pod runs on. To play with it')
    say(`export HOLDFAST_STATE=${state} HOLDFAST_ENDPOINT=${socket}`)
    say('dist/bin/holdfast ps')
    say('dist/bin/holdfast exec -it demo -- sh')
    say('dist/bin/holdfast logs -f --tail 3 demo')
    say('dist/bin/holdfast port-forward demo 8080')
    say(`crictl --runtime-endpoint unix://${socket} pods`)
    say(`kill -9 $(cat ${state}/holdfastd.lock)     # the daemon: your shell does not notice`)
    say(`dist/bin/holdfastd --state ${state} --socket ${socket} &`)
    say(`To end it: dist/bin/holdfast rm demo; kill $(cat ${state}/holdfastd.lock); rm -r ${directory}`)
  }
}
