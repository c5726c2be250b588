// Linux capabilities by name: the set a container gets by default, and what this host can give at all.

import { MonitorError } from '../base/errors.ts'

/** In the kernel's order: the index is the bit. */
const names = [
  'CHOWN',
  'DAC_OVERRIDE',
  'DAC_READ_SEARCH',
  'FOWNER',
  'FSETID',
  'KILL',
  'SETGID',
  'SETUID',
  'SETPCAP',
  'LINUX_IMMUTABLE',
  'NET_BIND_SERVICE',
  'NET_BROADCAST',
  'NET_ADMIN',
  'NET_RAW',
  'IPC_LOCK',
  'IPC_OWNER',
  'SYS_MODULE',
  'SYS_RAWIO',
  'SYS_CHROOT',
  'SYS_PTRACE',
  'SYS_PACCT',
  'SYS_ADMIN',
  'SYS_BOOT',
  'SYS_NICE',
  'SYS_RESOURCE',
  'SYS_TIME',
  'SYS_TTY_CONFIG',
  'MKNOD',
  'LEASE',
  'AUDIT_WRITE',
  'AUDIT_CONTROL',
  'SETFCAP',
  'MAC_OVERRIDE',
  'MAC_ADMIN',
  'SYSLOG',
  'WAKE_ALARM',
  'BLOCK_SUSPEND',
  'AUDIT_READ',
  'PERFMON',
  'BPF',
  'CHECKPOINT_RESTORE',
].map((name) => `CAP_${name}`)

/** What Kubernetes runtimes give a container that asks for nothing. */
export const defaultCapabilities: readonly string[] = [
  'CHOWN',
  'DAC_OVERRIDE',
  'FSETID',
  'FOWNER',
  'MKNOD',
  'NET_RAW',
  'SETGID',
  'SETUID',
  'SETFCAP',
  'SETPCAP',
  'NET_BIND_SERVICE',
  'SYS_CHROOT',
  'KILL',
  'AUDIT_WRITE',
].map((name) => `CAP_${name}`)

/** The capabilities of a bit mask as /proc/PID/status prints it. */
export function capabilitiesOfMask(hex: string): string[] {
  const mask = BigInt(`0x${hex}`)
  return names.filter((_, bit) => (mask & (1n << BigInt(bit))) !== 0n)
}

/** The default set with `add` and `drop` applied. `ALL` means all; a name that is no capability is an error. */
export function chooseCapabilities(
  base: readonly string[],
  add: readonly string[],
  drop: readonly string[],
): string[] {
  const toAdd = add.map(normalise)
  const toDrop = drop.map(normalise)
  // Dropping all comes first, so that "drop ALL, add X" is X, as Kubernetes says.
  const chosen = new Set(toDrop.includes('CAP_ALL') ? [] : base)
  for (const name of toAdd.includes('CAP_ALL') ? names : toAdd) chosen.add(name)
  for (const name of toDrop) chosen.delete(name)
  return names.filter((name) => chosen.has(name))
}

function normalise(name: string): string {
  const upper = name.toUpperCase()
  const full = upper.startsWith('CAP_') ? upper : `CAP_${upper}`
  if (full !== 'CAP_ALL' && !names.includes(full)) {
    throw new MonitorError('invalid-argument', `unknown capability ${JSON.stringify(name)}`)
  }
  return full
}
