// Waiting for what must come soon, without a sleep.

import assert from 'node:assert/strict'
import { setImmediate as nextTurn } from 'node:timers/promises'

/** Resolves when the condition holds; fails after ten seconds. */
export async function eventually(what: string, condition: () => boolean): Promise<void> {
  const deadline = performance.now() + 10_000
  while (!condition()) {
    assert.ok(performance.now() < deadline, `timed out: ${what}`)
    await nextTurn()
  }
}
