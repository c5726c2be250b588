// `npm run demo`: a debug session that outlives its runtime daemon, shown on this machine in five steps. Every figure
// is measured in this run; every claim is checked, and the first one that fails ends the demo with 1.
//
// usage: npm run demo -- [--keep]

import { mkdtempSync, rmSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { setTimeout as sleep } from 'node:timers/promises'
import { messageOf } from '../../src/base/errors.ts'
import { tracesOf } from './host.ts'
import { Installation } from './programs.ts'
import { interrupt, Stage, title } from './stage.ts'
import { killDaemon, killServer, openShell, portForward, showCost, startPod } from './steps.ts'

const keep = process.argv.includes('--keep')
const stranger = process.argv.slice(2).find((arg) => arg !== '--keep')
if (stranger !== undefined) {
  process.stderr.write(`error: unknown argument ${stranger}\nusage: npm run demo -- [--keep]\n`)
  process.exit(2)
}

const directory = mkdtempSync(join(tmpdir(), 'holdfast-demo-'))
const stage = new Stage(new Installation(directory))
let interrupted = false
// Not once: a second interrupt while everything is cleaned up would leave it half done.
process.on('SIGINT', () => {
  interrupted = true
  interrupt()
  stage.endSessions()
})

let failure: unknown
try {
  await startPod(stage)
  await openShell(stage)
  await killDaemon(stage)
  await killServer(stage)
  await portForward(stage)
  await showCost(stage)
} catch (error) {
  failure = error
}
await end()

async function end(): Promise<void> {
  if (interrupted) process.stdout.write('\ndemo: interrupted\n')
  else if (failure !== undefined) {
    process.stdout.write(`\ndemo: FAILED: ${messageOf(failure)}\n`)
    process.stdout.write(`the last words of holdfastd:\n${stage.installation.daemonLog().slice(-2000)}\n`)
  } else if (keep) {
    stage.leave()
    return
  }
  try {
    await cleanUp()
  } catch (error) {
    process.stdout.write(`\ndemo: FAILED: clean up: ${messageOf(error)}\n`)
    failure ??= error
  }
  process.exitCode = interrupted ? 130 : failure === undefined ? 0 : 1
  if (failure === undefined) process.stdout.write('\ndemo: everything held.\n')
}

async function cleanUp(): Promise<void> {
  title('Cleaning up')
  await stage.tidy()
  let remains = tracesOf(stage.belongings)
  for (let tries = 0; tries < 200 && remains.length > 0; tries++) {
    await sleep(50)
    remains = tracesOf(stage.belongings)
  }
  rmSync(directory, { recursive: true, force: true })
  if (remains.length > 0) throw new Error(`something stayed: ${remains.join(', ')}`)
  process.stdout.write(
    `   No process, mount, network namespace or cgroup stayed, and ${directory} is removed.\n`,
  )
}
