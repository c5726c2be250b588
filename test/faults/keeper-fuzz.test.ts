// libFuzzer drives the keeper's channel, pumps and copies in one process (test/keeper/fuzz/channel.c).

import assert from 'node:assert/strict'
import { execFileSync, spawnSync } from 'node:child_process'
import { mkdirSync, mkdtempSync, readdirSync, rmSync } from 'node:fs'
import { join } from 'node:path'
import { test } from 'node:test'
import { repository } from '../keeper/monitor.ts'
import { checkLeaks } from '../support/leak-check.ts'

checkLeaks()

test('50,000 fuzzed inputs neither crash the keeper nor make it leak', (t) => {
  const keeper = join(repository, 'src/keeper')
  const sources = readdirSync(keeper).filter((name) => name.endsWith('.c') && name !== 'keeper.c')
  const program = join(repository, 'dist/fuzz/channel')
  mkdirSync(join(repository, 'dist/fuzz'), { recursive: true })
  const flags = ['-g', '-O1', '-fsanitize=fuzzer,address,undefined', '-fno-sanitize-recover=undefined']
  const files = [join(repository, 'test/keeper/fuzz/channel.c'), ...sources.map((name) => join(keeper, name))]
  try {
    execFileSync('clang', [...flags, ...files, '-o', program], { stdio: 'pipe' })
  } catch (error) {
    if (error instanceof Error && 'code' in error && error.code === 'ENOENT') {
      t.skip('no clang')
      return
    }
    throw error
  }
  const directory = mkdtempSync('/dev/shm/holdfast-fuzz-')
  try {
    const { status, stderr } = spawnSync(
      program,
      ['-runs=50000', '-max_len=800', `-artifact_prefix=${program}-`],
      {
        env: { ...process.env, FUZZ_DIRECTORY: directory },
        encoding: 'utf8',
        stdio: ['ignore', 'ignore', 'pipe'],
      },
    )
    assert.equal(status, 0, stderr.slice(-4000))
    assert.match(stderr, /Done 50000 runs/)
  } finally {
    rmSync(directory, { recursive: true })
  }
})
