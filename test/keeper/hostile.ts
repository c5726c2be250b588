// Throws a hostile server (hostile-server.ts) at a keeper.

import assert from 'node:assert/strict'
import { spawn } from 'node:child_process'
import { mkdtempSync, readdirSync, readFileSync, rmSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { buildKeeper, outcome, repository, sanitizers } from './monitor.ts'

/** The builds to be tried: one does not find what the other does. */
export const builds: readonly (readonly [name: string, ...flags: string[]])[] = [
  ['hostile-sanitized', ...sanitizers],
  ['hostile', '-O2'],
]

/** Lets a server send `messages` mutated messages in each of its lives; fails on any sign of damage. */
export async function throwHostileServer(
  [name, ...flags]: readonly [string, ...string[]],
  lives: number,
  messages: number,
): Promise<void> {
  const binary = await buildKeeper(name, '-DBACKOFF_MAX=(5*MS)', ...flags)
  const directory = mkdtempSync(join(tmpdir(), 'holdfast-hostile-'))
  const seed = process.env['HOLDFAST_TEST_SEED'] ?? String(Date.now() % 1_000_000)
  writeFileSync(join(directory, 'lives'), '0')
  try {
    const env = {
      ...process.env,
      HOLDFAST_SERVER: join(repository, 'dist/test/keeper/hostile-server.js'),
      HOLDFAST_TEST_DIRECTORY: directory,
      HOLDFAST_TEST_HOSTILE: `${lives} ${messages} ${seed}`,
      ASAN_OPTIONS: `log_path=${join(directory, 'sanitizer')}`,
      UBSAN_OPTIONS: `log_path=${join(directory, 'sanitizer')}:print_stacktrace=1`,
    }
    const command = 'ulimit -n 300; ulimit -f 40; exec "$0" --skip-fork'
    const keeper = spawn('sh', ['-c', command, binary], { env, stdio: ['ignore', 'pipe', 'pipe'] })
    const waker = setInterval(() => keeper.kill('SIGUSR1'), 300) // it may have been put to sleep
    const { code, stderr } = await outcome(keeper)
    clearInterval(waker)
    const reports = readdirSync(directory)
      .filter((file) => file.startsWith('sanitizer'))
      .map((file) => readFileSync(join(directory, file), 'utf8'))
    assert.deepEqual(reports, [], `reports of the sanitizers, seed ${seed}`)
    assert.equal(code, 0, `seed ${seed}: ${stderr}`)
    assert.ok(Number(readFileSync(join(directory, 'lives'), 'utf8')) >= lives)
  } finally {
    rmSync(directory, { recursive: true, force: true })
  }
}
