// OCI bundles with a static busybox, for tests and benchmarks that drive a monitor without any daemon.

import { copyFile, mkdir, symlink, writeFile } from 'node:fs/promises'
import { existsSync } from 'node:fs'
import { join } from 'node:path'
import { hostProgram, output } from './programs.ts'

export interface BundleOptions {
  readonly args: readonly string[]
  readonly terminal?: boolean
  /** Default: one of its own. The path of a network namespace that exists; 'host': the host's. */
  readonly network?: string
}

/** Fills `directory` with busybox and a link for each of its programs; a second call does nothing. */
export async function makeRootfs(directory: string): Promise<void> {
  if (existsSync(join(directory, 'bin', 'busybox'))) return
  for (const folder of ['bin', 'proc', 'dev', 'sys', 'tmp', 'etc']) {
    await mkdir(join(directory, folder), { recursive: true })
  }
  const busybox = hostProgram('busybox')
  const names = (await output(busybox, ['--list'])).trim().split('\n')
  for (const name of names.filter((each) => each !== 'busybox')) {
    await symlink('busybox', join(directory, 'bin', name))
  }
  await copyFile(busybox, join(directory, 'bin', 'busybox'))
}

/** Writes a bundle's config.json; the rootfs is shared and read-only. */
export async function makeBundle(bundle: string, rootfs: string, options: BundleOptions): Promise<void> {
  await mkdir(bundle, { recursive: true })
  await writeFile(join(bundle, 'config.json'), JSON.stringify(config(bundle, rootfs, options)))
}

function config(bundle: string, rootfs: string, { args, terminal = false, network }: BundleOptions): object {
  const namespaces: object[] = ['pid', 'ipc', 'uts', 'mount'].map((type) => ({ type }))
  if (network === undefined) namespaces.push({ type: 'network' })
  else if (network !== 'host') namespaces.push({ type: 'network', path: network })
  return {
    ociVersion: '1.0.2',
    hostname: 'interop',
    process: {
      terminal,
      args,
      cwd: '/',
      user: { uid: 0, gid: 0 },
      env: ['PATH=/bin', 'TERM=xterm'],
    },
    root: { path: rootfs, readonly: true },
    mounts: [
      { destination: '/proc', type: 'proc', source: 'proc' },
      { destination: '/dev', type: 'tmpfs', source: 'tmpfs', options: ['nosuid', 'mode=755'] },
      { destination: '/tmp', type: 'tmpfs', source: 'tmpfs', options: ['nosuid', 'mode=1777'] },
      {
        destination: '/dev/pts',
        type: 'devpts',
        source: 'devpts',
        options: ['nosuid', 'noexec', 'newinstance', 'ptmxmode=0666', 'mode=0620'],
      },
    ],
    // Without it two containers of one name would share a cgroup.
    linux: { namespaces, cgroupsPath: `/${bundle.slice(1).replaceAll('/', '-')}` },
  }
}
