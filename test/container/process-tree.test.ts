import assert from 'node:assert/strict'
import { spawn } from 'node:child_process'
import { once } from 'node:events'
import { readFileSync } from 'node:fs'
import { describe, test } from 'node:test'
import { setTimeout as sleep } from 'node:timers/promises'
import { countOomKills, findMemoryCgroup } from '../../src/container/oom.ts'
import { isAlive, killTree } from '../../src/container/process-tree.ts'
import { decodeRecord, encodeRecord } from '../../src/container/record.ts'
import type { KeeperClient } from '../../src/keeper/keeper-client.ts'
import { checkLeaks } from '../support/leak-check.ts'

checkLeaks()

describe('killing a tree', () => {
  test('ends a process that ignores signals, its children, and their sessions', async () => {
    const script = 'trap "" TERM HUP; (sleep 300 & sleep 300) & setsid sleep 300 & echo $!; sleep 300'
    const child = spawn('sh', ['-c', script], { stdio: ['ignore', 'pipe', 'ignore'] })
    const exited = once(child, 'exit')
    await once(child.stdout, 'data')
    await sleep(100)
    const pids = descendants(child.pid ?? 0)
    assert.ok(pids.length >= 4, String(pids))
    const killed: number[] = []
    // The keeper's part: it alone signals its children.
    const keeper = {
      kill: (pid: number, signal: number) => {
        killed.push(pid)
        return Promise.resolve(child.kill(signal as unknown as NodeJS.Signals))
      },
    } as unknown as KeeperClient
    await killTree(keeper, child.pid ?? 0)
    await exited
    assert.deepEqual([...new Set(killed)], [child.pid])
    assert.deepEqual(
      pids.filter((pid) => isAlive(pid)),
      [],
    )
  })
})

describe('a record', () => {
  test('comes back as it was', () => {
    assert.deepEqual(decodeRecord('container/a', encodeRecord({ id: 'a', exitPaths: ['/x'] })), {
      v: 1,
      id: 'a',
      exitPaths: ['/x'],
    })
  })

  for (const [title, bytes] of [
    ['of a newer format', '{"v":2}'],
    ['that is no JSON', 'garbage'],
    ['that is no object', '7'],
  ] as const) {
    test(`${title} is refused by name`, () => {
      assert.throws(
        () => decodeRecord('container/a', Buffer.from(bytes)),
        /read the record of container\/a: /,
      )
    })
  }
})

describe('the memory cgroup', () => {
  test('of this process is found where its counter is', () => {
    const directory = findMemoryCgroup(process.pid)
    if (directory === '') return
    assert.ok(countOomKills(directory) >= 0)
    assert.ok(readFileSync('/proc/self/cgroup', 'utf8').length > 0)
  })

  test('of nobody is none, and counts nothing', () => {
    assert.equal(findMemoryCgroup(2 ** 22 + 1), '')
    assert.equal(countOomKills(''), 0)
    assert.equal(countOomKills('/no/such/cgroup'), 0)
  })
})

function descendants(pid: number): number[] {
  const children = readFileSync(`/proc/${pid}/task/${pid}/children`, 'utf8')
    .split(' ')
    .filter(Boolean)
    .map(Number)
  return children.flatMap((child) => [child, ...descendants(child)])
}
