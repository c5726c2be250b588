// A pod's shared namespaces: made and pinned by `holdfast-monitor pause`, unmounted at the monitor's end.

import { spawn } from 'node:child_process'
import { rmSync } from 'node:fs'
import { join } from 'node:path'
import { MonitorError } from '../base/errors.ts'

/** In the order in which conmon-rs answers them, always all five (conmon.md §2.3). */
export const namespaceTypes = ['ipc', 'pid', 'net', 'user', 'uts'] as const

export type NamespaceType = (typeof namespaceTypes)[number]

export interface PodNamespacesRequest {
  readonly podId: string
  readonly basePath: string
  readonly namespaces: readonly NamespaceType[]
}

/** Where a namespace is pinned: `<base>/netns/<podId>`. */
export function namespacePath(request: PodNamespacesRequest, type: NamespaceType): string {
  return join(request.basePath, `${type}ns`, request.podId)
}

/** Makes and pins them; the unselected ones are the host's. Rejects with podinit's own sentence. */
export async function createPodNamespaces(launcher: string, request: PodNamespacesRequest): Promise<void> {
  const flags = request.namespaces.map((type) => `--${type}`)
  await runQuietly(
    launcher,
    ['pause', '--base-path', request.basePath, '--pod-id', request.podId, ...flags],
    'create namespaces',
  )
}

/** Unpins them. What is not there any more is no error. */
export async function removePodNamespaces(request: PodNamespacesRequest): Promise<void> {
  const paths = namespaceTypes.map((type) => namespacePath(request, type))
  await runQuietly('umount', ['--lazy', '--quiet', ...paths], 'unmount namespaces').catch(() => undefined)
  for (const path of paths) rmSync(path, { force: true })
}

function runQuietly(command: string, args: readonly string[], what: string): Promise<void> {
  return new Promise((resolve, reject) => {
    const child = spawn(command, args, { stdio: ['ignore', 'ignore', 'pipe'] })
    let complaints = ''
    child.stderr.on('data', (chunk: Buffer) => {
      complaints = (complaints + chunk.toString()).slice(0, 4096)
    })
    child.once('error', (error) => reject(MonitorError.within(`${what}: run ${command}`, error)))
    child.once('close', (code, signal) => {
      if (code === 0) resolve()
      else
        reject(
          new MonitorError('internal', `${what}: ${complaints.trim() || `ended with ${signal ?? code}`}`),
        )
    })
  })
}
