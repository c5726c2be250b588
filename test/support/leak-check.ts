// Fails a test file that leaves descriptors or children behind. Call once at the top of a file.

import assert from 'node:assert/strict'
import { readdirSync, readFileSync, readlinkSync } from 'node:fs'
import { after, before } from 'node:test'
import { setTimeout as sleep } from 'node:timers/promises'

/** Registers hooks that compare this process's descriptors and children before and after the file's tests. */
export function checkLeaks(): void {
  let fdsBefore: readonly string[] = []
  before(() => {
    fdsBefore = openFds()
  })
  after(async () => {
    for (let i = 0; i < 40 && (leaked(fdsBefore).length > 0 || children().length > 0); i++) await sleep(50)
    assert.deepEqual(leaked(fdsBefore), [], 'descriptors left open')
    assert.deepEqual(children(), [], 'children left behind')
  })
}

function leaked(before: readonly string[]): string[] {
  return openFds().filter((fd) => !before.includes(fd))
}

/** `N -> target` of each descriptor; those that Node's own machinery opens by itself are left out. */
function openFds(): string[] {
  return readdirSync('/proc/self/fd').flatMap((fd) => {
    try {
      const target = readlinkSync(`/proc/self/fd/${fd}`)
      return /^anon_inode:|\/proc\/|\/dev\/(null|urandom)/.test(target) ? [] : [`${fd} -> ${target}`]
    } catch {
      return []
    }
  })
}

function children(): string[] {
  return readFileSync(`/proc/self/task/${process.pid}/children`, 'utf8').split(' ').filter(Boolean)
}
