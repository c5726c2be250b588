// config.json of a container: one pure function from what was asked for and what the host can do. It knows neither the
// CRI nor a file system; whoever calls it has resolved users, images and devices.

import { capabilitiesOfMask, chooseCapabilities, defaultCapabilities } from './capabilities.ts'
import type { HostAbilities, OciDevice, OciMount, ResourceLimits, SpecRequest } from './spec-request.ts'

/** The spec, and one sentence for each thing asked for that this host cannot give. */
export interface BuiltSpec {
  readonly spec: OciSpec
  readonly reductions: readonly string[]
}

/** config.json, as far as it is written here. */
export interface OciSpec {
  readonly ociVersion: string
  readonly process: {
    readonly terminal: boolean
    readonly user: SpecRequest['user']
    readonly args: readonly string[]
    readonly env: readonly string[]
    readonly cwd: string
    readonly capabilities: Readonly<Record<string, readonly string[]>>
    readonly noNewPrivileges: boolean
    readonly oomScoreAdj?: number
    readonly apparmorProfile?: string
  }
  readonly root: { readonly path: string; readonly readonly: boolean }
  readonly hostname?: string
  readonly mounts: readonly OciMount[]
  readonly annotations: Readonly<Record<string, string>>
  readonly linux: Readonly<Record<string, unknown>>
}

const usualMounts: readonly OciMount[] = [
  { destination: '/proc', type: 'proc', source: 'proc', options: ['nosuid', 'noexec', 'nodev'] },
  {
    destination: '/dev',
    type: 'tmpfs',
    source: 'tmpfs',
    options: ['nosuid', 'strictatime', 'mode=755', 'size=65536k'],
  },
  {
    destination: '/dev/pts',
    type: 'devpts',
    source: 'devpts',
    options: ['nosuid', 'noexec', 'newinstance', 'ptmxmode=0666', 'mode=0620', 'gid=5'],
  },
  {
    destination: '/dev/shm',
    type: 'tmpfs',
    source: 'shm',
    options: ['nosuid', 'noexec', 'nodev', 'mode=1777', 'size=65536k'],
  },
  { destination: '/dev/mqueue', type: 'mqueue', source: 'mqueue', options: ['nosuid', 'noexec', 'nodev'] },
  { destination: '/sys', type: 'sysfs', source: 'sysfs', options: ['nosuid', 'noexec', 'nodev', 'ro'] },
  {
    destination: '/sys/fs/cgroup',
    type: 'cgroup',
    source: 'cgroup',
    options: ['nosuid', 'noexec', 'nodev', 'relatime', 'ro'],
  },
]

const usualMaskedPaths = [
  '/proc/acpi',
  '/proc/asound',
  '/proc/kcore',
  '/proc/keys',
  '/proc/latency_stats',
  '/proc/timer_list',
  '/proc/timer_stats',
  '/proc/sched_debug',
  '/proc/scsi',
  '/sys/firmware',
  '/sys/devices/virtual/powercap',
]

const usualReadonlyPaths = ['/proc/bus', '/proc/fs', '/proc/irq', '/proc/sys', '/proc/sysrq-trigger']

/** The config.json of a container. */
export function buildSpec(request: SpecRequest, host: HostAbilities): BuiltSpec {
  const reductions: string[] = []
  const { privileged, limits } = request
  const oomScoreAdj =
    limits === undefined ? undefined : clampOomScoreAdj(limits.oomScoreAdj, host, reductions)
  const spec: OciSpec = {
    ociVersion: '1.0.2',
    process: {
      terminal: request.terminal,
      user: request.user,
      args: request.args,
      env: request.env,
      cwd: request.cwd,
      capabilities: capabilitySets(request, host, reductions),
      noNewPrivileges: request.noNewPrivileges,
      ...(oomScoreAdj === undefined ? {} : { oomScoreAdj }),
      ...(request.apparmorProfile === undefined ? {} : { apparmorProfile: request.apparmorProfile }),
    },
    root: { path: request.rootfs, readonly: request.readonlyRootfs },
    // Without a namespace of its own the name would be the host's.
    ...(request.namespaces.uts === undefined || request.hostname === ''
      ? {}
      : { hostname: request.hostname }),
    mounts: allMounts(request),
    annotations: request.annotations,
    linux: {
      cgroupsPath: request.cgroupsPath,
      namespaces: namespacesOf(request),
      resources: resourcesOf(request, host, reductions),
      devices: request.devices.map(deviceNode),
      sysctl: request.sysctls,
      maskedPaths: privileged ? [] : (request.maskedPaths ?? usualMaskedPaths),
      readonlyPaths: privileged ? [] : (request.readonlyPaths ?? usualReadonlyPaths),
      ...(privileged || request.seccomp === undefined ? {} : { seccomp: request.seccomp }),
      ...rootfsPropagation(request.mounts),
    },
  }
  return { spec, reductions }
}

function capabilitySets(
  request: SpecRequest,
  host: HostAbilities,
  reductions: string[],
): Record<string, readonly string[]> {
  const { add, drop, ambient } = request.capabilities
  const possible = new Set(capabilitiesOfMask(host.capabilityMask))
  const wanted = chooseCapabilities(defaultCapabilities, request.privileged ? ['ALL'] : add, drop)
  const given = wanted.filter((name) => possible.has(name))
  const named = new Set(chooseCapabilities([], [...add, ...ambient].filter(isNotAll), []))
  const missing = [...named].filter((name) => !possible.has(name))
  if (missing.length > 0) reductions.push(`this host cannot give ${missing.join(', ')}`)
  const inherited = chooseCapabilities([], ambient, drop).filter((name) => possible.has(name))
  const all = [...new Set([...given, ...inherited])]
  return { bounding: all, effective: all, permitted: all, inheritable: inherited, ambient: inherited }
}

function isNotAll(name: string): boolean {
  return !/^(CAP_)?ALL$/i.test(name)
}

/** Lowering it needs CAP_SYS_RESOURCE; both runtimes fail to start a container that asks for it in vain. */
function clampOomScoreAdj(wanted: number, host: HostAbilities, reductions: string[]): number {
  if (wanted >= host.minOomScoreAdj) return wanted
  reductions.push(`this host cannot lower oom_score_adj below ${host.minOomScoreAdj}`)
  return host.minOomScoreAdj
}

function allMounts(request: SpecRequest): OciMount[] {
  const replaced = new Set(request.mounts.map(({ destination }) => trimSlash(destination)))
  const usual = usualMounts
    .filter(({ destination }) => !replaced.has(destination))
    .map((mount) => (request.privileged ? writable(mount) : mount))
  // A mount below another one comes after it; else they keep their order.
  const added = request.mounts.toSorted((a, b) => depth(a.destination) - depth(b.destination))
  return [...usual, ...added]
}

function writable(mount: OciMount): OciMount {
  return mount.options?.includes('ro')
    ? { ...mount, options: mount.options.filter((option) => option !== 'ro') }
    : mount
}

function trimSlash(path: string): string {
  return path.length > 1 ? path.replace(/\/+$/, '') : path
}

function depth(path: string): number {
  return path.split('/').filter(Boolean).length
}

function namespacesOf(request: SpecRequest): { type: string; path?: string }[] {
  const { net, ipc, uts } = request.namespaces
  return [
    { type: 'mount' },
    ...(request.hostPid ? [] : [{ type: 'pid' }]),
    ...(net === undefined ? [] : [{ type: 'network', path: net }]),
    ...(ipc === undefined ? [] : [{ type: 'ipc', path: ipc }]),
    ...(uts === undefined ? [] : [{ type: 'uts', path: uts }]),
  ]
}

function resourcesOf(
  request: SpecRequest,
  host: HostAbilities,
  reductions: string[],
): Record<string, unknown> {
  const allowed = request.devices.map(({ type, major, minor, access }) => ({
    allow: true,
    type,
    major,
    minor,
    access,
  }))
  // The OCI runtimes allow null, zero, full, random, urandom, tty and terminals by themselves.
  const devices = request.privileged
    ? [{ allow: true, access: 'rwm' }]
    : [{ allow: false, access: 'rwm' }, ...allowed]
  const { limits } = request
  if (limits === undefined) return { devices }
  const hugepageLimits = limits.hugepages.filter(({ limit }) => limit > 0)
  if (!host.hugetlb && hugepageLimits.length > 0) reductions.push('this host cannot limit huge pages')
  return {
    devices,
    memory: nonEmpty({ limit: limits.memoryBytes, swap: host.swapLimit ? swapOf(limits) : 0 }),
    cpu: nonEmpty({
      shares: limits.cpuShares,
      quota: limits.cpuQuota,
      period: limits.cpuPeriod,
      cpus: limits.cpusetCpus,
      mems: limits.cpusetMems,
    }),
    ...(host.hugetlb ? { hugepageLimits: limits.hugepages } : {}),
    ...(Object.keys(limits.unified).length === 0 ? {} : { unified: limits.unified }),
  }
}

/** Memory plus swap. A memory limit without a word about swap means no swap, as in other runtimes. */
function swapOf(limits: ResourceLimits): number {
  return limits.memorySwapBytes === 0 ? limits.memoryBytes : limits.memorySwapBytes
}

function nonEmpty(values: Record<string, string | number>): Record<string, string | number> {
  return Object.fromEntries(Object.entries(values).filter(([, value]) => value !== 0 && value !== ''))
}

/** The node; what may be done with it is said in the resources. */
function deviceNode(device: OciDevice): Omit<OciDevice, 'access'> {
  const { path, type, major, minor, fileMode, uid, gid } = device
  return { path, type, major, minor, fileMode, uid, gid }
}

/** Mounts that arrive later from the host, or go back to it, need a root that lets them through. */
function rootfsPropagation(mounts: readonly OciMount[]): { rootfsPropagation?: string } {
  const has = (option: string): boolean => mounts.some(({ options }) => options?.includes(option))
  if (has('rshared')) return { rootfsPropagation: 'rshared' }
  return has('rslave') ? { rootfsPropagation: 'rslave' } : {}
}
