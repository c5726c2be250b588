// A container's own writable copy of its image: an overlay where the host can, else a plain copy.

import { mkdir } from 'node:fs/promises'
import { join } from 'node:path'
import { MonitorError } from '../base/errors.ts'
import { removeTree } from '../client/pod-state.ts'
import type { ContainerPaths } from '../client/pod-state.ts'
import type { SaidOnce } from './host.ts'
import { mountOverlay, unmountBelow } from './mounts.ts'
import { runCommand } from './run-command.ts'

export class RootfsMaker {
  readonly #said: SaidOnce

  constructor(said: SaidOnce) {
    this.#said = said
  }

  /** Fills `paths.rootfs` from the image's directory. The image is never written to. */
  async make(paths: ContainerPaths, image: string): Promise<void> {
    const layers = { lower: image, upper: join(paths.bundle, 'upper'), work: join(paths.bundle, 'work') }
    for (const path of [paths.rootfs, layers.upper, layers.work]) {
      await mkdir(path, { recursive: true, mode: 0o755 })
    }
    if (await mountOverlay(paths.rootfs, layers)) return
    this.#said.warn('no overlay file system here: each container gets a full copy of its image')
    await removeTree(layers.upper)
    await removeTree(layers.work)
    // cp keeps owners, modes, devices and links as they are; copy-on-write where the file system can.
    const copy = ['-a', '--reflink=auto', '--', `${image}/.`, paths.rootfs]
    const { code, stderr } = await runCommand('cp', copy)
    if (code !== 0) throw new MonitorError('internal', `copy image ${image}: ${stderr.trim()}`)
  }

  /** Removes the bundle with the rootfs. */
  async remove(paths: ContainerPaths): Promise<void> {
    await unmountBelow(paths.bundle)
    await removeTree(paths.bundle)
  }
}
