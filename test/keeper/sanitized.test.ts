// The same tests with the keeper built with ASan and UBSan: monitor.ts fails a test that leaves a report.

import assert from 'node:assert/strict'
import { spawn } from 'node:child_process'
import { join } from 'node:path'
import { test } from 'node:test'
import { checkLeaks } from '../support/leak-check.ts'
import { buildKeeper, outcome, sanitizers } from './monitor.ts'

checkLeaks()

for (const file of ['store', 'pump', 'copy', 'log-file', 'children', 'run-oci', 'podinit', 'launch']) {
  test(`${file}.test passes with the sanitized keeper`, async () => {
    const keeper = await buildKeeper('asan', ...sanitizers)
    const args = [
      '--enable-source-maps',
      '--test-reporter=spec',
      join(import.meta.dirname, `${file}.test.js`),
    ]
    const { NODE_TEST_CONTEXT: _, ...env } = process.env
    const child = spawn(process.execPath, args, {
      env: { ...env, HOLDFAST_TEST_KEEPER: keeper },
      stdio: ['ignore', 'pipe', 'pipe'],
    })
    const { code, stdout, stderr } = await outcome(child)
    assert.equal(code, 0, stdout + stderr)
    assert.match(stdout, /tests [1-9]/)
  })
}
