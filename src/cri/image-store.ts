// Images by name: the built-in one, made from the host's static busybox, and directories given on the command line.
// Nothing is ever fetched.

import { createHash } from 'node:crypto'
import {
  copyFile,
  lstat,
  mkdir,
  mkdtemp,
  readFile,
  readdir,
  rename,
  stat,
  symlink,
  writeFile,
} from 'node:fs/promises'
import { basename, join } from 'node:path'
import { isErrno, messageOf, MonitorError } from '../base/errors.ts'
import { removeTree } from '../client/pod-state.ts'
import { runCommand } from './run-command.ts'

/** What an image's configuration says, as in the OCI image specification. */
export interface ImageDefaults {
  readonly entrypoint: readonly string[]
  readonly cmd: readonly string[]
  readonly env: readonly string[]
  readonly workingDir: string
  readonly user: string
  readonly stopSignal: string
}

export interface StoredImage {
  /** `sha256:…`, of what it was made from. */
  readonly id: string
  /** In full: `docker.io/library/busybox:latest`. */
  readonly names: readonly string[]
  readonly rootfs: string
  readonly defaults: ImageDefaults
  readonly size: number
  readonly files: number
  readonly builtIn: boolean
}

const builtInNames = ['docker.io/library/busybox:latest', 'holdfast.local/busybox:latest']

const busyboxPaths = ['/usr/bin/busybox', '/bin/busybox', '/usr/local/bin/busybox', '/sbin/busybox']

const usualPath = 'PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin'

export class ImageStore {
  readonly #images: StoredImage[] = []
  /** Why there is no built-in image. */
  #missing = ''

  /** Unpacks the built-in image below `directory` if it is not there yet. */
  async addBuiltIn(directory: string): Promise<void> {
    try {
      const busybox = await findBusybox()
      const rootfs = join(directory, 'busybox', 'rootfs')
      await unpackBusybox(busybox, rootfs)
      const binary = await readFile(join(rootfs, 'bin', 'busybox'))
      const id = `sha256:${createHash('sha256').update(binary).digest('hex')}`
      const defaults = { ...noDefaults, cmd: ['sh'], env: [usualPath] }
      const image = { id, names: builtInNames, rootfs, defaults, builtIn: true }
      this.#images.push({ ...image, ...(await measure(rootfs)) })
    } catch (error) {
      this.#missing = messageOf(error)
    }
  }

  /** Adds a directory as an image. `DIRECTORY.json` beside it, if there, is its OCI image configuration. */
  async addDirectory(name: string, rootfs: string): Promise<void> {
    const isDirectory = await stat(rootfs).then(
      (found) => found.isDirectory(),
      () => false,
    )
    if (!isDirectory) throw new MonitorError('invalid-argument', `image ${name}: ${rootfs} is no directory`)
    const full = fullName(name)
    const id = `sha256:${createHash('sha256').update(`${full}\0${rootfs}`).digest('hex')}`
    const defaults = await readDefaults(name, `${rootfs.replace(/\/+$/, '')}.json`)
    const others = this.#images.filter((image) => !image.names.includes(full))
    const image = { id, names: [full], rootfs, defaults, builtIn: false, ...(await measure(rootfs)) }
    this.#images.splice(0, this.#images.length, ...others, image)
  }

  list(): readonly StoredImage[] {
    return this.#images
  }

  /** Why there is no built-in image; empty when there is one. */
  get missing(): string {
    return this.#missing
  }

  /** By name, by id, or by the beginning of an id. */
  find(reference: string): StoredImage | undefined {
    if (reference === '') return undefined
    const full = fullName(reference)
    const hex = reference.replace(/^sha256:/, '')
    const byId = /^[0-9a-f]{7,64}$/.test(hex)
      ? this.#images.filter(({ id }) => id.startsWith(`sha256:${hex}`))
      : []
    return this.#images.find(({ names }) => names.includes(full)) ?? (byId.length === 1 ? byId[0] : undefined)
  }

  /** As find, but an unknown one is an error that says what there is. */
  get(reference: string): StoredImage {
    if (reference === '') throw new MonitorError('invalid-argument', 'missing required image name')
    const image = this.find(reference)
    if (image !== undefined) return image
    const known = this.#images.flatMap(({ names }) => names).join(', ')
    const others =
      known === '' ? `there is no image: ${this.#missing || 'none was given'}` : `there are: ${known}`
    throw new MonitorError(
      'not-found',
      `image ${reference} not found; ${others}. holdfastd fetches none: start it with --image NAME=ROOTFS_DIR ` +
        `(holdfast image import is not available yet)`,
    )
  }
}

/** Adds what may be left out: the registry, `library/` and the tag. A digest is taken off behind a tag. */
export function fullName(name: string): string {
  const [first = '', ...rest] = name.split('/')
  const hasRegistry = rest.length > 0 && (/[.:]/.test(first) || first === 'localhost')
  const registry = hasRegistry ? first : 'docker.io'
  const repository = hasRegistry ? rest.join('/') : rest.length === 0 ? `library/${name}` : name
  const [tagged = '', digest] = repository.split('@')
  const hasTag = basename(tagged).includes(':')
  if (digest !== undefined && !hasTag) return `${registry}/${tagged}@${digest}`
  return `${registry}/${tagged}${hasTag ? '' : ':latest'}`
}

const noDefaults: ImageDefaults = {
  entrypoint: [],
  cmd: [],
  env: [],
  workingDir: '',
  user: '',
  stopSignal: '',
}

async function readDefaults(name: string, path: string): Promise<ImageDefaults> {
  let text: string
  try {
    text = await readFile(path, 'utf8')
  } catch (error) {
    if (isErrno(error, 'ENOENT')) return { ...noDefaults, env: [usualPath] }
    throw MonitorError.within(`image ${name}`, error)
  }
  try {
    const { config = {} } = JSON.parse(text) as { config?: Record<string, never> }
    return {
      entrypoint: config['Entrypoint'] ?? [],
      cmd: config['Cmd'] ?? [],
      env: config['Env'] ?? [usualPath],
      workingDir: config['WorkingDir'] ?? '',
      user: config['User'] ?? '',
      stopSignal: config['StopSignal'] ?? '',
    }
  } catch (error) {
    throw MonitorError.within(`image ${name}: read ${path}`, error, 'invalid-argument')
  }
}

async function findBusybox(): Promise<string> {
  for (const path of busyboxPaths) {
    try {
      if (isStatic(await readFile(path))) return path
    } catch (error) {
      if (!isErrno(error, 'ENOENT')) throw MonitorError.within(`read ${path}`, error)
    }
  }
  throw new MonitorError(
    'not-found',
    `the built-in image needs a static busybox (Debian package busybox-static); none of ${busyboxPaths.join(', ')} is one`,
  )
}

const PT_INTERP = 3

/** True for a 64-bit little-endian ELF file that names no dynamic loader. */
export function isStatic(file: Buffer): boolean {
  if (file.length < 64 || file.readUInt32BE(0) !== 0x7f454c46 || file[4] !== 2 || file[5] !== 1) return false
  const tableAt = Number(file.readBigUInt64LE(32))
  const entryBytes = file.readUInt16LE(54)
  const entries = file.readUInt16LE(56)
  for (let i = 0; i < entries; i++) {
    const at = tableAt + i * entryBytes
    if (at + 4 > file.length || file.readUInt32LE(at) === PT_INTERP) return false
  }
  return true
}

/** Makes the directory complete under another name first, so that a daemon killed in the middle leaves no half image. */
async function unpackBusybox(busybox: string, rootfs: string): Promise<void> {
  if (await exists(rootfs)) return
  const parent = join(rootfs, '..')
  await mkdir(parent, { recursive: true, mode: 0o755 })
  const half = await mkdtemp(join(parent, 'new-'))
  try {
    await fillRootfs(busybox, join(half, 'rootfs'))
    await rename(join(half, 'rootfs'), rootfs)
  } finally {
    await removeTree(half)
  }
}

async function fillRootfs(busybox: string, root: string): Promise<void> {
  for (const name of [
    'bin',
    'dev',
    'etc',
    'home',
    'proc',
    'root',
    'run',
    'sys',
    'tmp',
    'usr',
    'var/log',
    'var/tmp',
  ]) {
    await mkdir(join(root, name), { recursive: true, mode: 0o755 })
  }
  await copyFile(busybox, join(root, 'bin', 'busybox'))
  const { code, stdout, stderr } = await runCommand(busybox, ['--list'])
  if (code !== 0) throw new MonitorError('internal', `run ${busybox} --list: ${stderr.trim()}`)
  for (const applet of stdout.split('\n')) {
    // The list has busybox itself in it: that link would replace the program.
    if (/^[A-Za-z0-9_[.+-]+$/.test(applet) && applet !== 'busybox')
      await symlink('busybox', join(root, 'bin', applet))
  }
  await symlink('bin', join(root, 'sbin'))
  for (const name of ['bin', 'sbin']) await symlink('../bin', join(root, 'usr', name))
  await writeFile(
    join(root, 'etc/passwd'),
    'root:x:0:0:root:/root:/bin/sh\nnobody:x:65534:65534:nobody:/:/bin/false\n',
  )
  await writeFile(join(root, 'etc/group'), 'root:x:0:\ntty:x:5:\nnogroup:x:65534:\n')
  // mkdir and writeFile are subject to the umask; these modes are not.
  await runCommand('chmod', ['1777', join(root, 'tmp'), join(root, 'var/tmp')])
  await runCommand('chmod', ['755', root, join(root, 'bin/busybox')])
}

async function exists(path: string): Promise<boolean> {
  return await lstat(path).then(
    () => true,
    () => false,
  )
}

/** Bytes and files of a tree; links and other devices' files are not followed. */
async function measure(root: string): Promise<{ size: number; files: number }> {
  let size = 0
  let files = 0
  for (const entry of await readdir(root, { withFileTypes: true, recursive: true }).catch(() => [])) {
    files++
    if (entry.isFile())
      size += (await lstat(join(entry.parentPath, entry.name)).catch(() => ({ size: 0 }))).size
  }
  return { size, files }
}
