// A server that is killed again and again while a container numbers its lines and its log is rotated: no line is lost,
// none is doubled.

import assert from 'node:assert/strict'
import { spawn } from 'node:child_process'
import { closeSync, existsSync, openSync, renameSync, statSync, writeFileSync } from 'node:fs'
import { test } from 'node:test'
import { setTimeout as sleep } from 'node:timers/promises'
import { pipe2, read, socketpair } from '../../src/native/addon.ts'
import { checkLeaks } from '../support/leak-check.ts'
import { readLog, textOf } from './log-files.ts'
import { buildKeeper, Monitor, type LentServer } from './monitor.ts'

checkLeaks()

const kills = 40
const writer =
  'i=0; while [ ! -e "$0" ]; do j=0; while [ $j -lt 300 ]; do echo "line $i"; i=$((i+1)); j=$((j+1)); done; done; printf "END $i"'

test(`${kills} kills of the server cost no line of the log`, async () => {
  const binary = await buildKeeper('soak', '-O2', '-DBACKOFF_MAX=(30*MS)')
  const { monitor, server } = await Monitor.start({ binary })
  try {
    const path = monitor.path('log')
    const files: string[] = []
    const [out, stdout] = pipe2()
    const log = openSync(path, 'a')
    await server.client.pump('c1', { stdout: out, log, record: Buffer.from('container') })
    closeSync(out)
    closeSync(log)
    const container = spawn('sh', ['-c', writer, monitor.path('stop')], {
      stdio: ['ignore', stdout, 'inherit'],
    })
    const gone = new Promise((done) => container.once('close', done))
    closeSync(stdout)

    let current = server
    for (let life = 1; life <= kills; life++) {
      const churning = churn(current, path, files).catch(() => undefined) // cut off by the kill
      await sleep(Math.random() * 60)
      current.kill()
      await churning
      current = await monitor.readyServer()
      const held = current.held('c1')
      assert.equal(held?.record.toString(), 'container')
      if (!existsSync(path) || statSync(path).ino !== held?.pump?.inode) await relog(current, path)
    }
    writeFileSync(monitor.path('stop'), '')
    await gone
    const state = await current.ended('c1')
    const entries = [...files, path].flatMap((file) => (existsSync(file) ? readLog(file) : []))
    const lines = textOf(entries).split('\n')
    assert.equal(lines.pop(), '')
    const total = lines.length - 1
    assert.equal(lines.at(-1), `END ${total}`)
    assert.ok(lines.slice(0, -1).every((line, i) => line === `line ${i}`))
    assert.ok(total > 1000 && files.length > 10)
    assert.equal(state.dropped, 0)
  } finally {
    await monitor.stop()
  }
})

async function relog(server: LentServer, path: string): Promise<void> {
  const log = openSync(path, 'a')
  try {
    await server.client.relog('c1', log)
  } finally {
    closeSync(log)
  }
}

/** Rotates, holds, drops and copies until the channel breaks. */
async function churn(server: LentServer, path: string, files: string[]): Promise<void> {
  for (let i = 0; ; i++) {
    const moved = `${path}.${String(files.length).padStart(4, '0')}`
    if (existsSync(path)) {
      renameSync(path, moved)
      files.push(moved)
    }
    await relog(server, path)
    const [mine, theirs] = socketpair()
    try {
      await server.client.copy('c1', 0, { fd: theirs, patienceMs: (i % 3) * 50 })
      if (i % 2 === 0) read(mine, Buffer.alloc(65_536))
      await server.client.hold(`x${i % 20}`, { fd: mine, record: Buffer.alloc((i * 37) % 3000, 'z') })
      if (i % 3 === 0) await server.client.drop(`x${i % 20}`)
    } finally {
      closeSync(mine)
      closeSync(theirs)
    }
    await sleep(3)
  }
}
