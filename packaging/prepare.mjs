// Sets up what an npm script needs on a fresh machine, says what it does, and does nothing the second time:
// Debian packages, npm packages, the build. Plain Node without dependencies, because it runs before there are any.
//
// usage: node packaging/prepare.mjs build|check|test|demo|bench|interop

import { spawnSync } from 'node:child_process'
import { createHash } from 'node:crypto'
import { existsSync, readFileSync, readdirSync, statSync, writeFileSync } from 'node:fs'
import { dirname, join } from 'node:path'
import { fileURLToPath } from 'node:url'

const root = dirname(dirname(fileURLToPath(import.meta.url)))

/** Debian packages by the file that shows they are there. */
const buildPackages = {
  '/usr/bin/musl-gcc': 'musl-tools',
  '/usr/bin/cc': 'gcc',
  '/usr/include/stdio.h': 'libc6-dev',
  '/usr/include/linux/sched.h': 'linux-libc-dev',
}
const runPackages = {
  '/usr/sbin/runc': 'runc',
  '/usr/bin/crun': 'crun',
  '/usr/bin/busybox': 'busybox-static',
  '/usr/bin/nsenter': 'util-linux',
  '/usr/bin/ps': 'procps',
}
const testPackages = {
  '/usr/bin/capnp': 'capnproto',
  '/usr/include/capnp/rpc.h': 'libcapnp-dev',
  '/usr/bin/g++': 'g++',
  '/usr/bin/clang': 'clang',
  '/usr/lib/llvm-14/lib/clang/14.0.6/lib/linux/libclang_rt.fuzzer-x86_64.a': 'libclang-rt-14-dev',
  '/usr/bin/conmon': 'conmon',
  '/usr/sbin/ip': 'iproute2',
}
const packagesFor = {
  build: buildPackages,
  check: { ...buildPackages, '/usr/bin/capnp': 'capnproto', '/usr/bin/git': 'git' },
  demo: { ...buildPackages, ...runPackages },
  test: { ...buildPackages, ...runPackages, ...testPackages },
  bench: { ...buildPackages, ...runPackages, ...testPackages },
  interop: { ...buildPackages, ...runPackages, ...testPackages },
}

const purpose = process.argv[2] ?? ''
if (!(purpose in packagesFor)) fail(`usage: node packaging/prepare.mjs ${Object.keys(packagesFor).join('|')}`)
const [major = 0, minor = 0] = process.versions.node.split('.').map(Number)
if (major < 20 || (major === 20 && minor < 19))
  fail(`Node ${process.versions.node} is too old: holdfast needs 20.19 or newer`)
if (process.platform !== 'linux') fail('holdfast runs on Linux only')
installDebianPackages(packagesFor[purpose])
installNpmPackages()
if (purpose !== 'build') build()

function installDebianPackages(wanted) {
  const missing = [
    ...new Set(
      Object.entries(wanted)
        .filter(([file]) => !existsSync(file))
        .map(([, name]) => name),
    ),
  ]
  if (missing.length === 0) return
  if (process.getuid() !== 0)
    fail(`these Debian packages are missing, and only root can install them: ${missing.join(' ')}`)
  if (!existsSync('/usr/bin/apt-get'))
    fail(`these packages are missing, and there is no apt-get to install them: ${missing.join(' ')}`)
  say(`installing Debian packages: ${missing.join(' ')}`)
  const env = { ...process.env, DEBIAN_FRONTEND: 'noninteractive' }
  const install = [
    '-y',
    '-q',
    '--no-install-recommends',
    '-o',
    'DPkg::Lock::Timeout=300',
    'install',
    ...missing,
  ]
  if (run('apt-get', install, { env, quiet: true }) === 0) return
  run('apt-get', ['-q', 'update'], { env, quiet: true })
  if (run('apt-get', install, { env }) !== 0)
    fail(`apt-get could not install ${missing.join(' ')}; its messages are above`)
}

function installNpmPackages() {
  const lock = readFileSync(join(root, 'package-lock.json'))
  const stamp = join(root, 'node_modules', '.holdfast-lock')
  const wanted = createHash('sha256').update(lock).digest('hex')
  if (existsSync(stamp) && readFileSync(stamp, 'utf8') === wanted) return
  say('installing npm packages')
  if (run('npm', ['ci', '--no-audit', '--no-fund', '--loglevel', 'error']) !== 0)
    fail('npm ci failed; its messages are above')
  writeFileSync(stamp, wanted)
}

/** Builds when a source file is newer than the last build. */
function build() {
  const stamp = join(root, 'dist', '.built')
  const built = existsSync(stamp) ? statSync(stamp).mtimeMs : 0
  const sources = ['src', 'test', 'proto', 'packaging', 'package.json', 'tsconfig.json', 'package-lock.json']
  if (built > 0 && sources.every((name) => newest(join(root, name)) < built)) return
  say('building')
  if (run('sh', ['packaging/build.sh']) !== 0) fail('the build failed; its messages are above')
}

function newest(path) {
  const stat = statSync(path)
  if (!stat.isDirectory()) return stat.mtimeMs
  return Math.max(stat.mtimeMs, ...readdirSync(path).map((name) => newest(join(path, name))))
}

function run(command, args, { env = process.env, quiet = false } = {}) {
  const result = spawnSync(command, args, {
    cwd: root,
    env,
    stdio: ['ignore', quiet ? 'ignore' : 'inherit', quiet ? 'ignore' : 'inherit'],
  })
  if (result.error) fail(`cannot run ${command}: ${result.error.message}`)
  return result.status
}

function say(text) {
  process.stderr.write(`prepare: ${text}\n`)
}

function fail(text) {
  process.stderr.write(`prepare: ${text}\n`)
  process.exit(1)
}
