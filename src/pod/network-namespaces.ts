// Handles on network namespaces: descriptors, checked to be namespaces. A path is looked at once, when it is given;
// what it names later does not matter (case B75).

import { closeSync, constants, fstatSync, openSync } from 'node:fs'
import { MonitorError } from '../base/errors.ts'
import { isNsfs } from '../native/addon.ts'

/** A pod has one network. None is closed for another: sessions would dial in whatever gets its number next. */
const maxHandles = 16

export class NetworkNamespaces {
  readonly #handles: { readonly inode: number; readonly fd: number }[] = []
  #own: number | undefined

  /** The pod's namespace, held by the keeper too. */
  get own(): number | undefined {
    return this.#own
  }

  setOwn(fd: number): void {
    this.#own = fd
  }

  /** A handle for the namespace at path; empty: the host's. Throws when it is no network namespace. */
  open(path: string): string {
    const fd = openNamespace(path === '' ? '/proc/self/ns/net' : path)
    const { ino } = fstatSync(fd)
    if (this.#own !== undefined && fstatSync(this.#own).ino === ino) {
      closeSync(fd)
      return handleOf(this.#own)
    }
    const known = this.#handles.find((handle) => handle.inode === ino)
    if (known !== undefined) {
      closeSync(fd)
      return handleOf(known.fd)
    }
    if (this.#handles.length === maxHandles) {
      closeSync(fd)
      throw new MonitorError(
        'resource-exhausted',
        `open network namespace ${path}: there are ${maxHandles} others already`,
      )
    }
    this.#handles.push({ inode: ino, fd })
    return handleOf(fd)
  }

  close(): void {
    for (const handle of this.#handles.splice(0)) closeSync(handle.fd)
    if (this.#own !== undefined) closeSync(this.#own)
    this.#own = undefined
  }
}

/** Opens a namespace file; anything else is refused, and nothing is ever dialled in it. */
export function openNamespace(path: string): number {
  let fd: number
  try {
    fd = openSync(path, constants.O_RDONLY | constants.O_NONBLOCK)
  } catch (error) {
    throw MonitorError.within(`open network namespace ${path}`, error, 'not-found')
  }
  if (isNsfs(fd)) return fd
  closeSync(fd)
  throw new MonitorError('failed-precondition', `open network namespace ${path}: not a namespace`)
}

/** The path by which an open descriptor can be opened again. */
function handleOf(fd: number): string {
  return `/proc/self/fd/${fd}`
}
