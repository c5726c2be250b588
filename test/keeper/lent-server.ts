// A server for the keeper's tests: lends its channel to the test process, which then speaks with the keeper itself, and
// does what it is told: `exit N`. Run by a keeper with HOLDFAST_SERVER pointing here.

import { closeSync, openSync, readFileSync } from 'node:fs'
import { poll, recvFds, sendFds, unixConnect } from '../../src/native/addon.ts'

for (const signal of ['SIGTERM', 'SIGINT', 'SIGHUP'] as const) process.on(signal, () => undefined)

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
    const [word, argument] = order.data.toString().split(' ', 2)
    if (word === 'say') process.stderr.write(`${argument}\n`)
    else process.exit(Number(argument ?? 9))
  })
} catch {
  // The test is gone: nobody will end this keeper.
  process.kill(process.ppid, 'SIGKILL')
  process.exit(9)
}
