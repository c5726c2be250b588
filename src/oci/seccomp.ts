// The seccomp filter of a container that asks for the runtime's default: everything but what only harms a host.

/** `linux.seccomp` of config.json. */
export interface OciSeccomp {
  readonly defaultAction: string
  readonly architectures?: readonly string[]
  readonly syscalls?: readonly {
    readonly names: readonly string[]
    readonly action: string
    readonly errnoRet?: number
    readonly args?: readonly {
      readonly index: number
      readonly value: number
      readonly valueTwo?: number
      readonly op: string
    }[]
  }[]
}

/** Nobody in a container needs these; several were ways out of one. */
const neverAllowed = [
  'add_key',
  'io_uring_enter',
  'io_uring_register',
  'io_uring_setup',
  'kexec_file_load',
  'kexec_load',
  'keyctl',
  'move_pages',
  'nfsservctl',
  'pivot_root',
  'request_key',
  'swapoff',
  'swapon',
  'sysfs',
  'uselib',
  'userfaultfd',
  'vm86',
  'vm86old',
]

/** These come back with one of the capabilities that the kernel asks for as well. */
const allowedWith: readonly { readonly any: readonly string[]; readonly names: readonly string[] }[] = [
  {
    any: ['CAP_SYS_ADMIN'],
    names: [
      'fanotify_init',
      'fsconfig',
      'fsmount',
      'fsopen',
      'fspick',
      'lookup_dcookie',
      'mount',
      'mount_setattr',
      'move_mount',
      'open_tree',
      'quotactl',
      'quotactl_fd',
      'setdomainname',
      'sethostname',
      'setns',
      'umount',
      'umount2',
      'unshare',
    ],
  },
  { any: ['CAP_SYS_ADMIN', 'CAP_BPF'], names: ['bpf'] },
  { any: ['CAP_SYS_ADMIN', 'CAP_PERFMON'], names: ['perf_event_open'] },
  { any: ['CAP_SYS_ADMIN', 'CAP_SYSLOG'], names: ['syslog'] },
  { any: ['CAP_DAC_READ_SEARCH'], names: ['open_by_handle_at'] },
  { any: ['CAP_SYS_BOOT'], names: ['reboot'] },
  { any: ['CAP_SYS_MODULE'], names: ['delete_module', 'finit_module', 'init_module'] },
  { any: ['CAP_SYS_PACCT'], names: ['acct'] },
  {
    any: ['CAP_SYS_PTRACE'],
    names: ['kcmp', 'pidfd_getfd', 'process_madvise', 'process_vm_readv', 'process_vm_writev'],
  },
  { any: ['CAP_SYS_RAWIO'], names: ['ioperm', 'iopl'] },
  { any: ['CAP_SYS_TIME'], names: ['clock_settime', 'clock_settime64', 'settimeofday', 'stime'] },
  { any: ['CAP_SYS_TTY_CONFIG'], names: ['vhangup'] },
]

const EPERM = 1
const ENOSYS = 38

/** CLONE_NEWNS, NEWCGROUP, NEWUTS, NEWIPC, NEWUSER, NEWPID, NEWNET. */
const namespaceFlags = [0x20000, 0x2000000, 0x4000000, 0x8000000, 0x10000000, 0x20000000, 0x40000000]

/** The filter for a container with these capabilities on this kind of machine (`process.arch`). */
export function defaultSeccomp(capabilities: readonly string[], arch: string): OciSeccomp {
  const has = new Set(capabilities)
  const architectures = architecturesOf(arch)
  const denied = [
    ...neverAllowed,
    ...allowedWith.flatMap(({ any, names }) => (any.some((name) => has.has(name)) ? [] : names)),
  ]
  const syscalls = [{ names: denied, action: 'SCMP_ACT_ERRNO', errnoRet: EPERM }]
  return {
    defaultAction: 'SCMP_ACT_ALLOW',
    ...(architectures === undefined ? {} : { architectures }),
    syscalls: has.has('CAP_SYS_ADMIN') ? syscalls : [...syscalls, ...noNewNamespaces()],
  }
}

/** clone with a namespace flag is refused; clone3, whose flags a filter cannot see, sends libraries back to clone. */
function noNewNamespaces(): NonNullable<OciSeccomp['syscalls']> {
  return [
    ...namespaceFlags.map((flag) => ({
      names: ['clone'],
      action: 'SCMP_ACT_ERRNO',
      errnoRet: EPERM,
      args: [{ index: 0, value: flag, valueTwo: flag, op: 'SCMP_CMP_MASKED_EQ' }],
    })),
    { names: ['clone3'], action: 'SCMP_ACT_ERRNO', errnoRet: ENOSYS },
  ]
}

/** Without the 32-bit ones their programs would be killed. */
function architecturesOf(arch: string): readonly string[] | undefined {
  if (arch === 'x64') return ['SCMP_ARCH_X86_64', 'SCMP_ARCH_X86', 'SCMP_ARCH_X32']
  if (arch === 'arm64') return ['SCMP_ARCH_AARCH64', 'SCMP_ARCH_ARM']
  return undefined
}
