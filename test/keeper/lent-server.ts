// A server for the keeper's tests: lends its channel to the test process, which then speaks with the keeper itself, and
// does what it is told: `exit N`, `say TEXT`, `adopt COMMAND`, `spawn COMMAND`. Run by a keeper with HOLDFAST_SERVER pointing here.

import { execFileSync, spawn } from 'node:child_process'
import { closeSync, openSync, readFileSync } from 'node:fs'
import { poll, recvFds, sendFds, unixConnect } from '../../src/native/addon.ts'

for (const signal of ['SIGTERM', 'SIGINT', 'SIGHUP'] as const) process.on(signal, () => undefined)

/** Starts a child, like an OCI runtime. */
function start(command: string): number | undefined {
  return spawn('sh', ['-c', command], { stdio: 'ignore' }).pid
}

/** Starts a command whose parent leaves at once, as an OCI runtime does: it becomes the keeper's child. Not by a shell's `&`: dash reaps. */
function adopt(command: string): number {
  const orphan = ['--fork', 'sh', '-c', `echo $$; exec >/dev/null 2>&1; ${command}`]
  return Number(execFileSync('setsid', orphan, { stdio: ['ignore', 'pipe', 'ignore'] }))
}

// As any server does that does not log to stdout: whoever waits for its end shall not wait for us.
closeSync(1)
openSync('/dev/null', 'w')

try {
  const control = unixConnect(process.env['HOLDFAST_TEST_CONTROL'] ?? '', 'seqpacket')
  const seen = {
    pid: process.pid,
    keeperPid: process.ppid,
    argv: process.argv.slice(2),
    execArgv: process.execArgv,
    env: process.env,
    oom: readFileSync('/proc/self/oom_score_adj', 'utf8').trim(),
    limits: readFileSync('/proc/self/limits', 'utf8'),
  }
  sendFds(control, Buffer.from(JSON.stringify(seen)), [3])
  poll(control, () => {
    const order = recvFds(control)
    if (order === null) return
    const [, word, argument] = /^(\w+) ?(.*)$/s.exec(order.data.toString()) ?? []
    if (word === 'say') process.stderr.write(`${argument}\n`)
    else if (word === 'adopt') sendFds(control, Buffer.from(String(adopt(argument ?? ''))), [])
    else if (word === 'spawn') sendFds(control, Buffer.from(String(start(argument ?? ''))), [])
    else if (word === 'mute') closeSync(3)
    else process.exit(Number(argument ?? 9))
  })
} catch {
  // The test is gone: nobody will end this keeper.
  process.kill(process.ppid, 'SIGKILL')
  process.exit(9)
}
