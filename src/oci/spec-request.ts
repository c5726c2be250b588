// What oci-spec.ts is given: everything that was asked for, already resolved, and what the host can do.

import type { OciSeccomp } from './seccomp.ts'

/** A mount of config.json. */
export interface OciMount {
  readonly destination: string
  readonly type?: string
  readonly source?: string
  readonly options?: readonly string[]
}

/** A device node of config.json. */
export interface OciDevice {
  readonly path: string
  readonly type: 'c' | 'b'
  readonly major: number
  readonly minor: number
  readonly fileMode: number
  readonly uid: number
  readonly gid: number
  /** Some of `rwm`. */
  readonly access: string
}

/** Limits; 0 or empty: none. */
export interface ResourceLimits {
  readonly cpuPeriod: number
  readonly cpuQuota: number
  readonly cpuShares: number
  readonly cpusetCpus: string
  readonly cpusetMems: string
  readonly memoryBytes: number
  readonly memorySwapBytes: number
  readonly hugepages: readonly { readonly pageSize: string; readonly limit: number }[]
  readonly unified: Readonly<Record<string, string>>
  readonly oomScoreAdj: number
}

/** What the container's creator asks for. */
export interface SpecRequest {
  readonly args: readonly string[]
  /** `NAME=value`. */
  readonly env: readonly string[]
  readonly cwd: string
  readonly terminal: boolean
  readonly user: { readonly uid: number; readonly gid: number; readonly additionalGids: readonly number[] }
  readonly hostname: string
  readonly rootfs: string
  readonly readonlyRootfs: boolean
  /** Beside the usual ones; one with the same destination replaces it. */
  readonly mounts: readonly OciMount[]
  readonly devices: readonly OciDevice[]
  /** Paths to join. A network namespace that is absent is the host's. */
  readonly namespaces: { readonly net?: string; readonly ipc?: string; readonly uts?: string }
  readonly hostPid: boolean
  readonly privileged: boolean
  readonly capabilities: {
    readonly add: readonly string[]
    readonly drop: readonly string[]
    readonly ambient: readonly string[]
  }
  readonly noNewPrivileges: boolean
  /** Undefined: the usual ones. */
  readonly maskedPaths: readonly string[] | undefined
  readonly readonlyPaths: readonly string[] | undefined
  readonly seccomp: OciSeccomp | undefined
  readonly apparmorProfile: string | undefined
  readonly sysctls: Readonly<Record<string, string>>
  /** Undefined: nothing was said about resources. */
  readonly limits: ResourceLimits | undefined
  readonly cgroupsPath: string
  readonly annotations: Readonly<Record<string, string>>
}

/** What this host lets a container have. */
export interface HostAbilities {
  /** CapBnd of /proc/self/status. */
  readonly capabilityMask: string
  /** Lower values fail; -1000 with CAP_SYS_RESOURCE. */
  readonly minOomScoreAdj: number
  readonly hugetlb: boolean
  readonly swapLimit: boolean
}
