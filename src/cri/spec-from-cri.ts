// CRI pod and container configuration to the request of oci-spec.ts: names resolved, limits parsed, what is not
// supported refused by name. It reads files of the host and of the image; it changes nothing.

import { existsSync } from 'node:fs'
import { readFile, stat } from 'node:fs/promises'
import { posix } from 'node:path'
import { messageOf, MonitorError } from '../base/errors.ts'
import type { PodPaths, PodRecord } from '../client/pod-state.ts'
import { chooseCapabilities, defaultCapabilities } from '../oci/capabilities.ts'
import { defaultSeccomp } from '../oci/seccomp.ts'
import type { OciSeccomp } from '../oci/seccomp.ts'
import type { OciDevice, OciMount, ResourceLimits, SpecRequest } from '../oci/spec-request.ts'
import { resolveUser } from './image-user.ts'
import type { ProcessUser } from './image-user.ts'
import type { StoredImage } from './image-store.ts'
import type {
  ContainerConfig,
  LinuxContainerResources,
  LinuxContainerSecurityContext,
  Mount,
  PodSandboxConfig,
  SecurityProfile,
} from './messages.ts'
import { podHostname } from './pod-files.ts'

/** Everything that a container's spec is made from. */
export interface SpecSource {
  readonly config: ContainerConfig
  readonly pod: PodRecord<PodSandboxConfig>
  readonly podPaths: PodPaths
  readonly image: StoredImage
  readonly rootfs: string
  readonly cgroupsPath: string
}

/** CRI-O's name for it, which a monitor knows (streaming.md §8 rule 46). */
const stdinOnceAnnotation = 'io.kubernetes.cri-o.StdinOnce'

/** The request for oci-spec.ts. */
export async function specRequest(source: SpecSource): Promise<SpecRequest> {
  const { config, pod, image } = source
  const security = config.linux?.securityContext ?? undefined
  refuseUnsupported(config, security)
  const user = await userOf(source, security)
  const capabilities = {
    add: security?.capabilities?.addCapabilities ?? [],
    drop: security?.capabilities?.dropCapabilities ?? [],
    ambient: security?.capabilities?.addAmbientCapabilities ?? [],
  }
  const resources = config.linux?.resources
  return {
    args: argsOf(config, image),
    env: envOf(source, user),
    cwd: config.workingDir || image.defaults.workingDir || '/',
    terminal: config.tty,
    user: { uid: user.uid, gid: user.gid, additionalGids: user.additionalGids },
    hostname: hostnameOf(pod),
    rootfs: source.rootfs,
    readonlyRootfs: security?.readonlyRootfs ?? false,
    mounts: mountsOf(source),
    devices: await devicesOf(config),
    namespaces: pod.namespaces,
    hostPid: security?.namespaceOptions?.pid === 'NODE',
    privileged: security?.privileged ?? false,
    capabilities,
    noNewPrivileges: security?.noNewPrivs ?? false,
    maskedPaths: security?.maskedPaths,
    readonlyPaths: security?.readonlyPaths,
    seccomp: await seccompOf(
      security?.seccomp ?? undefined,
      chooseCapabilities(defaultCapabilities, capabilities.add, capabilities.drop),
    ),
    apparmorProfile: apparmorOf(security?.apparmor ?? undefined),
    sysctls: pod.config.linux?.sysctls ?? {},
    limits: resources ? limitsOf(resources) : undefined,
    cgroupsPath: source.cgroupsPath,
    annotations: { ...config.annotations, ...(config.stdinOnce ? { [stdinOnceAnnotation]: 'true' } : {}) },
  }
}

/** Empty in the host's network, whose name is the host's. */
function hostnameOf(pod: PodRecord<PodSandboxConfig>): string {
  return pod.namespaces.uts === undefined ? '' : podHostname(pod)
}

function refuseUnsupported(
  config: ContainerConfig,
  security: LinuxContainerSecurityContext | undefined,
): void {
  const options = security?.namespaceOptions
  if (options?.pid === 'TARGET') throw unsupported('joining the pid namespace of another container')
  if (options?.usernsOptions?.mode === 'POD') throw unsupported('user namespaces')
  for (const mount of config.mounts) {
    if (mount.image !== null && mount.image.image !== '') throw unsupported('image volumes')
    if (mount.recursiveReadOnly) throw unsupported('recursive read-only mounts')
  }
}

function unsupported(what: string): MonitorError {
  return new MonitorError('unimplemented', `${what}: not supported yet`)
}

async function userOf(
  { config, image, rootfs }: SpecSource,
  security: LinuxContainerSecurityContext | undefined,
): Promise<ProcessUser> {
  if (security?.runAsGroup && !security.runAsUser && security.runAsUsername === '') {
    throw new MonitorError(
      'invalid-argument',
      `container ${config.metadata?.name}: run_as_group without a user`,
    )
  }
  return await resolveUser(rootfs, {
    uid: security?.runAsUser ? idNumber('run_as_user', security.runAsUser.value) : undefined,
    gid: security?.runAsGroup ? idNumber('run_as_group', security.runAsGroup.value) : undefined,
    username: security?.runAsUsername ?? '',
    supplementalGroups: (security?.supplementalGroups ?? []).map((id) => idNumber('supplemental group', id)),
    mergeGroups: security?.supplementalGroupsPolicy !== 'Strict',
    imageUser: image.defaults.user,
  })
}

function idNumber(what: string, value: string): number {
  const number = Number(value)
  if (number >= 0 && number < 2 ** 32 - 1) return number
  throw new MonitorError('invalid-argument', `${what} ${value} is no user or group id`)
}

/** As Kubernetes says: a command replaces both, arguments replace only the image's. */
function argsOf(config: ContainerConfig, image: StoredImage): string[] {
  const { entrypoint, cmd } = image.defaults
  const args =
    config.command.length > 0
      ? [...config.command, ...config.args]
      : [...entrypoint, ...(config.args.length > 0 ? config.args : cmd)]
  if (args.length === 0) {
    throw new MonitorError(
      'invalid-argument',
      `container ${config.metadata?.name}: neither it nor the image has a command`,
    )
  }
  for (const arg of args) refuseZero('an argument', arg)
  return args
}

/** The container's own win over the image's; of two with one name the last wins. */
function envOf({ config, image, pod }: SpecSource, user: ProcessUser): string[] {
  const env = new Map<string, string>()
  const hostname = hostnameOf(pod)
  if (hostname !== '') env.set('HOSTNAME', hostname)
  if (config.tty) env.set('TERM', 'xterm')
  for (const assignment of image.defaults.env) {
    const at = assignment.indexOf('=')
    if (at > 0) env.set(assignment.slice(0, at), assignment.slice(at + 1))
  }
  for (const { key, value } of config.envs) {
    if (key === '' || key.includes('=')) {
      throw new MonitorError(
        'invalid-argument',
        `environment variable ${JSON.stringify(key)} has no usable name`,
      )
    }
    env.set(key, utf8(key, value))
  }
  // The OCI runtimes take HOME from the container's passwd, crun only from there; one answer for both.
  if (!env.has('HOME')) env.set('HOME', user.home)
  for (const [name, value] of env) refuseZero(`environment variable ${name}`, `${name}${value}`)
  return [...env].map(([name, value]) => `${name}=${value}`)
}

/** config.json is text: other bytes would be replaced without a word. */
function utf8(name: string, value: Uint8Array): string {
  try {
    return new TextDecoder('utf-8', { fatal: true, ignoreBOM: true }).decode(value)
  } catch {
    throw new MonitorError('invalid-argument', `environment variable ${name}: its value is not UTF-8`)
  }
}

function refuseZero(what: string, text: string): void {
  if (text.includes('\0')) throw new MonitorError('invalid-argument', `${what} contains a zero byte`)
}

const propagations = {
  PROPAGATION_PRIVATE: 'rprivate',
  PROPAGATION_HOST_TO_CONTAINER: 'rslave',
  PROPAGATION_BIDIRECTIONAL: 'rshared',
} as const

function mountsOf({ config, podPaths }: SpecSource): OciMount[] {
  const own = config.mounts.map((mount) => bindMount(mount))
  const taken = new Set(own.map(({ destination }) => destination))
  const shared: OciMount[] = [
    ['/dev/shm', podPaths.shm],
    ['/etc/resolv.conf', `${podPaths.etc}/resolv.conf`],
    ['/etc/hosts', `${podPaths.etc}/hosts`],
    ['/etc/hostname', `${podPaths.etc}/hostname`],
  ].flatMap(([destination = '', source = '']) =>
    taken.has(destination) || !existsSync(source)
      ? []
      : [{ destination, type: 'bind', source, options: ['rbind', 'rprivate', 'rw'] }],
  )
  return [...shared, ...own]
}

function bindMount(mount: Mount): OciMount {
  const { containerPath, hostPath } = mount
  if (!posix.isAbsolute(containerPath)) {
    throw new MonitorError(
      'invalid-argument',
      `mount ${JSON.stringify(containerPath)}: the path is not absolute`,
    )
  }
  if (!existsSync(hostPath)) {
    throw new MonitorError(
      'invalid-argument',
      `mount ${containerPath}: ${JSON.stringify(hostPath)} does not exist on the host`,
    )
  }
  return {
    destination: posix.normalize(containerPath),
    type: 'bind',
    source: hostPath,
    options: ['rbind', propagations[mount.propagation], mount.readonly ? 'ro' : 'rw'],
  }
}

async function devicesOf(config: ContainerConfig): Promise<OciDevice[]> {
  const devices: OciDevice[] = []
  for (const { hostPath, containerPath, permissions } of config.devices) {
    const found = await stat(hostPath).catch((error: unknown) => {
      throw MonitorError.within(`device ${hostPath}`, error, 'invalid-argument')
    })
    if (!found.isCharacterDevice() && !found.isBlockDevice()) {
      throw new MonitorError('invalid-argument', `device ${hostPath}: it is none`)
    }
    devices.push({
      path: containerPath || hostPath,
      type: found.isBlockDevice() ? 'b' : 'c',
      ...deviceNumbers(found.rdev),
      fileMode: found.mode & 0o777,
      uid: found.uid,
      gid: found.gid,
      access: permissions || 'rwm',
    })
  }
  return devices
}

/** As the C library packs them into 64 bits. */
function deviceNumbers(rdev: number): { major: number; minor: number } {
  const bits = BigInt(rdev)
  return {
    major: Number(((bits >> 8n) & 0xfffn) | ((bits >> 32n) & 0xfffff000n)),
    minor: Number((bits & 0xffn) | ((bits >> 12n) & 0xffffff00n)),
  }
}

async function seccompOf(
  profile: SecurityProfile | undefined,
  capabilities: readonly string[],
): Promise<OciSeccomp | undefined> {
  if (profile === undefined || profile.profileType === 'Unconfined') return undefined
  if (profile.profileType === 'RuntimeDefault') return defaultSeccomp(capabilities, process.arch)
  const path = profile.localhostRef
  try {
    return JSON.parse(await readFile(path, 'utf8')) as OciSeccomp
  } catch (error) {
    throw new MonitorError('invalid-argument', `seccomp profile ${JSON.stringify(path)}: ${messageOf(error)}`)
  }
}

function apparmorOf(profile: SecurityProfile | undefined): string | undefined {
  if (profile?.profileType !== 'Localhost') return undefined
  if (existsSync('/sys/kernel/security/apparmor')) return profile.localhostRef
  throw new MonitorError(
    'failed-precondition',
    `AppArmor profile ${profile.localhostRef}: this host has no AppArmor`,
  )
}

function limitsOf(resources: LinuxContainerResources): ResourceLimits {
  return {
    cpuPeriod: Number(resources.cpuPeriod),
    cpuQuota: Number(resources.cpuQuota),
    cpuShares: Number(resources.cpuShares),
    cpusetCpus: resources.cpusetCpus,
    cpusetMems: resources.cpusetMems,
    memoryBytes: Number(resources.memoryLimitInBytes),
    memorySwapBytes: Number(resources.memorySwapLimitInBytes),
    hugepages: resources.hugepageLimits.map(({ pageSize, limit }) => ({ pageSize, limit: Number(limit) })),
    unified: resources.unified,
    oomScoreAdj: Number(resources.oomScoreAdj),
  }
}
