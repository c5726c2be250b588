// The directories of a pod, and the files in them that its containers see: resolv.conf, hosts, hostname, /dev/shm.

import { chmod, copyFile, mkdir, writeFile } from 'node:fs/promises'
import { join } from 'node:path'
import { isErrno } from '../base/errors.ts'
import type { PodPaths, PodRecord } from '../client/pod-state.ts'
import type { DnsConfig, PodSandboxConfig } from './messages.ts'

/** The kernel's limit. */
export const maxHostnameBytes = 64

/** The pod's hostname in its own network: its configuration's, else its name as far as it fits. */
export function podHostname(pod: PodRecord<PodSandboxConfig>): string {
  return pod.config.hostname || pod.name.slice(0, maxHostnameBytes)
}

/** What the files say. */
export interface PodIdentity {
  readonly hostname: string
  readonly hostNetwork: boolean
  readonly dns: DnsConfig | null
}

/** Only root may look into a pod's directory; what containers see is mounted from it. */
export async function makePodDirectories(paths: PodPaths): Promise<void> {
  for (const path of [
    paths.directory,
    paths.containers,
    paths.bundles,
    paths.exits,
    paths.ooms,
    paths.namespaces,
  ]) {
    await mkdir(path, { recursive: true, mode: 0o700 })
  }
}

export async function writePodFiles(paths: PodPaths, identity: PodIdentity): Promise<void> {
  const { hostname, hostNetwork, dns } = identity
  await mkdir(paths.shm, { recursive: true })
  // As /dev/shm is everywhere; mkdir's mode is subject to the umask.
  await chmod(paths.shm, 0o1777)
  await mkdir(paths.etc, { recursive: true, mode: 0o755 })
  if (dns !== null) await put(paths, 'resolv.conf', resolvConf(dns))
  else if (hostNetwork) await copyFromHost(paths, 'resolv.conf')
  if (hostNetwork) await copyFromHost(paths, 'hosts')
  else await put(paths, 'hosts', `127.0.0.1\tlocalhost\n::1\tlocalhost\n127.0.0.1\t${hostname}\n`)
  if (!hostNetwork) await put(paths, 'hostname', `${hostname}\n`)
}

function resolvConf({ servers, searches, options }: DnsConfig): string {
  return [
    ...(searches.length > 0 ? [`search ${searches.join(' ')}`] : []),
    ...servers.map((server) => `nameserver ${server}`),
    ...(options.length > 0 ? [`options ${options.join(' ')}`] : []),
    '',
  ].join('\n')
}

async function put(paths: PodPaths, name: string, text: string): Promise<void> {
  await writeFile(join(paths.etc, name), text, { mode: 0o644 })
}

async function copyFromHost(paths: PodPaths, name: string): Promise<void> {
  try {
    await copyFile(`/etc/${name}`, join(paths.etc, name))
  } catch (error) {
    if (!isErrno(error, 'ENOENT')) throw error
  }
}
