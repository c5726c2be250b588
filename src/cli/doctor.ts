// What this host lacks to run pods: each check says what it found and, where something is wrong, what to do.
// Looks only; changes nothing. The host is a parameter, so that tests can describe one.

import { constants } from 'node:fs'
import { access, readFile, open, stat } from 'node:fs/promises'
import { execFile } from 'node:child_process'
import { release } from 'node:os'
import { delimiter, join } from 'node:path'
import { isErrno, messageOf } from '../base/errors.ts'

/** What a check found. `lacks`: pods do not run; `weak`: they run with less. */
export interface Finding {
  readonly what: string
  readonly state: 'ok' | 'weak' | 'lacks'
  readonly found: string
  readonly advice?: string
}

/** The host, as far as the checks ask. */
export interface Host {
  /** The text of a file; undefined where there is none. */
  read(path: string): Promise<string | undefined>
  exists(path: string): Promise<boolean>
  /** The path of a program in $PATH. */
  which(name: string): Promise<string | undefined>
  /** The first line that a program prints; rejects when it fails. */
  firstLine(command: string, args: readonly string[]): Promise<string>
  /** True for an executable that needs no loader; undefined where there is none. */
  isStatic(path: string): Promise<boolean | undefined>
  readonly kernel: string
  readonly arch: string
  readonly nodeVersion: string
  /** Where the programs of this holdfast are. */
  readonly monitorPath: string
}

/** Runs all checks. */
export async function examine(host: Host): Promise<Finding[]> {
  return [
    checkKernel(host),
    checkNode(host),
    await checkMonitor(host),
    await checkCapabilities(host),
    await checkCgroups(host),
    await checkRuntimes(host),
    await checkBusybox(host),
    await checkTerminals(host),
  ]
}

function checkKernel({ kernel, arch }: Host): Finding {
  const what = 'kernel'
  const found = `Linux ${kernel} on ${arch}`
  const [major = 0, minor = 0] = kernel.split(/[.-]/).map(Number)
  if (major < 5 || (major === 5 && minor < 10))
    return { what, state: 'lacks', found, advice: 'holdfast needs Linux 5.10 or newer (pidfds, close_range)' }
  if (arch !== 'x64' && arch !== 'arm64')
    return { what, state: 'weak', found, advice: 'holdfast is made and tested for x86-64 and arm64 only' }
  return { what, state: 'ok', found }
}

function checkNode({ nodeVersion }: Host): Finding {
  const [major = 0, minor = 0] = nodeVersion.split('.').map(Number)
  if (major > 20 || (major === 20 && minor >= 19)) return { what: 'Node', state: 'ok', found: nodeVersion }
  return {
    what: 'Node',
    state: 'lacks',
    found: nodeVersion,
    advice: 'install Node 20.19 or newer; HOLDFAST_NODE names the one that monitors use',
  }
}

async function checkMonitor(host: Host): Promise<Finding> {
  const what = 'monitor'
  if (!(await host.exists(host.monitorPath)))
    return { what, state: 'lacks', found: `no ${host.monitorPath}`, advice: 'build it: npm run build' }
  try {
    return {
      what,
      state: 'ok',
      found: `${host.monitorPath}: ${await host.firstLine(host.monitorPath, ['--version'])}`,
    }
  } catch (error) {
    const advice = 'it must run on this machine: build it here (npm run build), and off a noexec mount'
    return { what, state: 'lacks', found: `${host.monitorPath} does not start: ${messageOf(error)}`, advice }
  }
}

/** Numbers of linux/capability.h, and what is lost without them. */
const neededCapabilities = {
  CHOWN: 0,
  DAC_OVERRIDE: 1,
  KILL: 5,
  SETGID: 6,
  SETUID: 7,
  NET_ADMIN: 12,
  SYS_CHROOT: 18,
  SYS_ADMIN: 21,
}
const usefulCapabilities = { SYS_RESOURCE: 24, MKNOD: 27 }

async function checkCapabilities(host: Host): Promise<Finding> {
  const what = 'privilege'
  const status = (await host.read('/proc/self/status')) ?? ''
  const effective = BigInt(`0x${/^CapEff:\s*([0-9a-f]+)$/m.exec(status)?.[1] ?? '0'}`)
  const lacking = (wanted: Record<string, number>): string =>
    Object.entries(wanted)
      .filter(([, bit]) => (effective & (1n << BigInt(bit))) === 0n)
      .map(([name]) => `CAP_${name}`)
      .join(' ')
  const uid = /^Uid:\s*\d+\s+(\d+)/m.exec(status)?.[1] ?? '?'
  const lost = lacking(neededCapabilities)
  if (uid !== '0' || lost !== '') {
    const found = uid === '0' ? `root without ${lost}` : `user ${uid}`
    return { what, state: 'lacks', found, advice: 'run as root; in a container, with the privileges named' }
  }
  const weak = lacking(usefulCapabilities)
  if (weak === '') return { what, state: 'ok', found: 'root with what is needed' }
  const advice =
    'the keeper cannot protect itself from the OOM killer, and some limits and devices are not set'
  return { what, state: 'weak', found: `root without ${weak}`, advice }
}

async function checkCgroups(host: Host): Promise<Finding> {
  const what = 'cgroups'
  if (await host.exists('/sys/fs/cgroup/cgroup.controllers')) return { what, state: 'ok', found: 'v2' }
  const mounts = (await host.read('/proc/self/mounts')) ?? ''
  const v1 = /^\S+ (\S+) cgroup \S*\bmemory\b/m.test(mounts)
  const unified = /^\S+ (\S+) cgroup2 /m.exec(mounts)?.[1]
  if (unified === undefined) {
    if (v1) return { what, state: 'ok', found: 'v1' }
    const advice = 'mount cgroup v2: mount -t cgroup2 none /sys/fs/cgroup'
    return { what, state: 'lacks', found: 'none mounted with the memory controller', advice }
  }
  const controllers = ((await host.read(join(unified, 'cgroup.controllers'))) ?? '').trim()
  if (controllers === '')
    return { what, state: 'ok', found: `hybrid (v1, and v2 without controllers at ${unified})` }
  const hierarchy = controllers.split(' ')[0] ?? ''
  const advice =
    `crun refuses a hybrid host with a controller on its v2 mount: use runc (holdfastd --runtime runc), or mount ` +
    `${hierarchy} as v1 once: mkdir -p /sys/fs/cgroup/${hierarchy} && ` +
    `mount -t cgroup -o ${hierarchy} cgroup /sys/fs/cgroup/${hierarchy}`
  const state = (await host.which('runc')) === undefined ? 'lacks' : 'weak'
  return { what, state, found: `hybrid, with ${controllers} on v2 at ${unified}`, advice }
}

async function checkRuntimes(host: Host): Promise<Finding> {
  const what = 'OCI runtime'
  const found: string[] = []
  const broken: string[] = []
  for (const name of ['runc', 'crun']) {
    const path = await host.which(name)
    if (path === undefined) continue
    try {
      found.push(`${path} (${await host.firstLine(path, ['--version'])})`)
    } catch (error) {
      broken.push(`${path} does not start: ${messageOf(error)}`)
    }
  }
  if (found.length > 0) return { what, state: 'ok', found: found.join(', ') }
  const advice = 'install one: apt-get install runc (or crun)'
  return { what, state: 'lacks', found: broken.join(', ') || 'neither runc nor crun in $PATH', advice }
}

async function checkBusybox(host: Host): Promise<Finding> {
  const what = 'built-in image'
  const path = await host.which('busybox')
  const advice = 'install the static one: apt-get install busybox-static'
  if (path === undefined) return { what, state: 'lacks', found: 'no busybox in $PATH', advice }
  if ((await host.isStatic(path)) !== true)
    return { what, state: 'lacks', found: `${path} is not statically linked`, advice }
  return { what, state: 'ok', found: `${path} (static)` }
}

async function checkTerminals(host: Host): Promise<Finding> {
  if (await host.exists('/dev/ptmx')) return { what: 'terminals', state: 'ok', found: '/dev/ptmx' }
  return {
    what: 'terminals',
    state: 'lacks',
    found: 'no /dev/ptmx',
    advice: 'mount -t devpts devpts /dev/pts, and make /dev/ptmx',
  }
}

/** This host. */
export function thisHost(monitorPath: string): Host {
  return {
    read: async (path) => {
      try {
        return await readFile(path, 'utf8')
      } catch {
        // A file that cannot be read answers no question either.
        return undefined
      }
    },
    exists: async (path) => {
      try {
        await stat(path)
        return true
      } catch {
        return false
      }
    },
    which,
    firstLine: (command, args) =>
      new Promise((resolve, reject) => {
        execFile(command, [...args], { timeout: 10_000 }, (error, stdout) => {
          if (error) reject(error)
          else resolve(stdout.split('\n')[0] ?? '')
        })
      }),
    isStatic,
    kernel: release(),
    arch: process.arch,
    nodeVersion: process.versions.node,
    monitorPath,
  }
}

async function which(name: string): Promise<string | undefined> {
  for (const directory of (process.env['PATH'] ?? '').split(delimiter)) {
    const path = join(directory || '.', name)
    try {
      await access(path, constants.X_OK)
      return path
    } catch {
      // Not here; the next directory may have it.
    }
  }
  return undefined
}

/** PT_INTERP of elf.h: the program header that names a loader. */
const PT_INTERP = 3

/** Looks for a loader in the program headers of a little-endian 64-bit ELF file. */
async function isStatic(path: string): Promise<boolean | undefined> {
  let file
  try {
    file = await open(path, 'r')
  } catch (error) {
    if (isErrno(error, 'ENOENT')) return undefined
    throw error
  }
  try {
    const head = Buffer.alloc(4096)
    const { bytesRead } = await file.read(head, 0, head.length, 0)
    if (bytesRead < 64 || head.readUInt32BE(0) !== 0x7f454c46 || head[4] !== 2 || head[5] !== 1) return false
    const offset = Number(head.readBigUInt64LE(32))
    const size = head.readUInt16LE(54)
    for (let i = 0; i < head.readUInt16LE(56); i++) {
      const at = offset + i * size
      if (at + 4 <= bytesRead && head.readUInt32LE(at) === PT_INTERP) return false
    }
    return true
  } finally {
    await file.close()
  }
}
