// Mounts of the host below the state directory: the overlay of a container's root file system, pinned namespaces.
// Whatever is removed there is unmounted first, found in the kernel's own list.

import { readFile } from 'node:fs/promises'
import { MonitorError } from '../base/errors.ts'
import { runCommand } from './run-command.ts'

/** A mounted file system. */
export interface MountEntry {
  readonly mountpoint: string
  readonly type: string
  readonly superOptions: readonly string[]
}

/** The mounts that this process sees, in the order they were made. */
export async function readMounts(): Promise<MountEntry[]> {
  return parseMounts(await readFile('/proc/self/mountinfo', 'utf8'))
}

/** `id parent major:minor root mountpoint options [tags…] - type source superOptions`, spaces as \040. */
export function parseMounts(mountinfo: string): MountEntry[] {
  return mountinfo.split('\n').flatMap((line) => {
    const [before = '', after] = line.split(' - ')
    const mountpoint = before.split(' ')[4]
    if (after === undefined || mountpoint === undefined) return []
    const [type = '', , superOptions = ''] = after.split(' ')
    return [{ mountpoint: unescapeOctal(mountpoint), type, superOptions: superOptions.split(',') }]
  })
}

/** Unmounts `path` and everything below it, last first. Nothing mounted is fine. */
export async function unmountBelow(path: string): Promise<void> {
  const below = (await readMounts())
    .map(({ mountpoint }) => mountpoint)
    .filter((mountpoint) => mountpoint === path || mountpoint.startsWith(`${path}/`))
  for (const mountpoint of below.toReversed()) await unmount(mountpoint)
}

async function unmount(mountpoint: string): Promise<void> {
  if ((await runCommand('umount', [mountpoint])).code === 0) return
  // Somebody still looks at it: it goes when they are done.
  const { code, stderr } = await runCommand('umount', ['-l', mountpoint])
  if (code !== 0) throw new MonitorError('internal', `unmount ${mountpoint}: ${stderr.trim()}`)
}

/** Mounts an overlay of `lower` at `target`. False: this host or this file system cannot. */
export async function mountOverlay(
  target: string,
  layers: { readonly lower: string; readonly upper: string; readonly work: string },
): Promise<boolean> {
  // A colon or a comma would be read as part of the option.
  if (Object.values(layers).some((path) => /[:,\\]/.test(path))) return false
  const options = `lowerdir=${layers.lower},upperdir=${layers.upper},workdir=${layers.work}`
  return (await runCommand('mount', ['-t', 'overlay', 'overlay', '-o', options, target])).code === 0
}

function unescapeOctal(text: string): string {
  return text.replaceAll(/\\([0-7]{3})/g, (_, digits: string) => String.fromCharCode(parseInt(digits, 8)))
}
