import assert from 'node:assert/strict'
import { test } from 'node:test'
import { examine, thisHost, type Finding, type Host } from '../../src/cli/doctor.ts'
import { checkLeaks } from '../support/leak-check.ts'

checkLeaks()

const everything = 'Uid:\t0\t0\t0\t0\nCapEff:\t000001ffffffffff\n'

/** A host that lacks nothing, but for what `changes` says. */
function host(changes: {
  files?: Record<string, string | undefined>
  programs?: Record<string, string | undefined>
  rest?: Partial<Host>
}): Host {
  const files: Record<string, string | undefined> = {
    '/proc/self/status': everything,
    '/sys/fs/cgroup/cgroup.controllers': 'cpu memory pids\n',
    '/dev/ptmx': '',
    '/opt/holdfast-monitor': '',
    ...changes.files,
  }
  const programs: Record<string, string | undefined> = {
    runc: '/usr/sbin/runc',
    crun: '/usr/bin/crun',
    busybox: '/bin/busybox',
    ...changes.programs,
  }
  return {
    read: (path) => Promise.resolve(files[path]),
    exists: (path) => Promise.resolve(files[path] !== undefined),
    which: (name) => Promise.resolve(programs[name]),
    firstLine: (command) => Promise.resolve(`${command} 1.0`),
    isStatic: () => Promise.resolve(true),
    kernel: '6.1.0-13-amd64',
    arch: 'x64',
    nodeVersion: '20.19.0',
    monitorPath: '/opt/holdfast-monitor',
    ...changes.rest,
  }
}

async function find(changes: Parameters<typeof host>[0], what: string): Promise<Finding> {
  const finding = (await examine(host(changes))).find((candidate) => candidate.what === what)
  assert.ok(finding)
  return finding
}

test('a host with everything is found in order', async () => {
  assert.deepEqual(
    (await examine(host({}))).filter(({ state }) => state !== 'ok'),
    [],
  )
})

const v1 = 'cgroup /sys/fs/cgroup/memory cgroup rw,memory 0 0\n'
const hybrid = `${v1}cgroup2 /sys/fs/cgroup/unified cgroup2 rw 0 0\n`
const noV2 = { '/sys/fs/cgroup/cgroup.controllers': undefined }
const unified = '/sys/fs/cgroup/unified/cgroup.controllers'
const cases: [string, Parameters<typeof host>[0], string, Finding['state'], RegExp][] = [
  ['an old kernel', { rest: { kernel: '4.19.0' } }, 'kernel', 'lacks', /5\.10/],
  ['the oldest kernel that does', { rest: { kernel: '5.10.0-28' } }, 'kernel', 'ok', /^$/],
  ['another machine', { rest: { arch: 'riscv64' } }, 'kernel', 'weak', /x86-64/],
  ['an old Node', { rest: { nodeVersion: '20.18.1' } }, 'Node', 'lacks', /20\.19/],
  ['no monitor', { files: { '/opt/holdfast-monitor': undefined } }, 'monitor', 'lacks', /npm run build/],
  [
    'a monitor that does not start',
    { rest: { firstLine: () => Promise.reject(new Error('EACCES')) } },
    'monitor',
    'lacks',
    /run on this machine/,
  ],
  [
    'a user',
    { files: { '/proc/self/status': 'Uid:\t7\t7\t7\t7\nCapEff:\t0\n' } },
    'privilege',
    'lacks',
    /root/,
  ],
  [
    'root without CAP_SYS_ADMIN',
    { files: { '/proc/self/status': 'Uid:\t0\t0\t0\t0\nCapEff:\t00000000a80425fb\n' } },
    'privilege',
    'lacks',
    /root/,
  ],
  [
    'root without CAP_SYS_RESOURCE',
    { files: { '/proc/self/status': 'Uid:\t0\t0\t0\t0\nCapEff:\t000001fffeffffff\n' } },
    'privilege',
    'weak',
    /OOM killer/,
  ],
  ['cgroup v1', { files: { ...noV2, '/proc/self/mounts': v1 } }, 'cgroups', 'ok', /^$/],
  ['no cgroups', { files: { ...noV2, '/proc/self/mounts': '' } }, 'cgroups', 'lacks', /mount -t cgroup2/],
  [
    'a hybrid host without controllers on v2',
    { files: { ...noV2, '/proc/self/mounts': hybrid, [unified]: '\n' } },
    'cgroups',
    'ok',
    /^$/,
  ],
  [
    'the hybrid trap of crun',
    { files: { ...noV2, '/proc/self/mounts': hybrid, [unified]: 'hugetlb\n' } },
    'cgroups',
    'weak',
    /--runtime runc.*mount -t cgroup -o hugetlb/,
  ],
  [
    'the hybrid trap without runc',
    {
      files: { ...noV2, '/proc/self/mounts': hybrid, [unified]: 'hugetlb\n' },
      programs: { runc: undefined },
    },
    'cgroups',
    'lacks',
    /hugetlb/,
  ],
  ['one OCI runtime', { programs: { runc: undefined } }, 'OCI runtime', 'ok', /^$/],
  ['no OCI runtime', { programs: { runc: undefined, crun: undefined } }, 'OCI runtime', 'lacks', /apt-get/],
  ['no busybox', { programs: { busybox: undefined } }, 'built-in image', 'lacks', /busybox-static/],
  [
    'a busybox with a loader',
    { rest: { isStatic: () => Promise.resolve(false) } },
    'built-in image',
    'lacks',
    /busybox-static/,
  ],
  ['no terminals', { files: { '/dev/ptmx': undefined } }, 'terminals', 'lacks', /devpts/],
]
for (const [name, changes, what, state, advice] of cases) {
  test(`sees ${name}`, async () => {
    const finding = await find(changes, what)
    assert.equal(finding.state, state, JSON.stringify(finding))
    assert.match(finding.advice ?? '', advice)
  })
}

test('asks this host without failing', async () => {
  const here = thisHost('/nonexistent/holdfast-monitor')
  assert.equal((await examine(here)).length, 8)
  assert.equal(await here.isStatic('/nonexistent'), undefined)
  assert.equal(await here.isStatic(process.execPath), false)
  assert.equal(await here.isStatic('/proc/self/status'), false)
})
