// `npm run demo`: a debug session that outlives its runtime daemon, shown on this machine in five steps. Every figure
// is measured in this run; every claim is checked, and the first one that fails ends the demo with 1.
//
// usage: npm run demo -- [--keep]

import { mkdtempSync, rmSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { messageOf } from '../../src/base/errors.ts'
import { tracesOf } from './host.ts'
import { Installation } from './programs.ts'
import { check, say, Stage, title, waitFor } from './stage.ts'
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
process.once('SIGINT', () => {
  interrupted = true
  say('interrupted; cleaning up')
  void stage.tidy().finally(() => {
    rmSync(directory, { recursive: true, force: true })
    process.exit(130)
  })
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
if (!interrupted) await end()

async function end(): Promise<void> {
  if (failure !== undefined) process.stdout.write(`\ndemo: FAILED: ${messageOf(failure)}\n`)
  else if (keep) {
    stage.leave()
    return
  }
  try {
    await cleanUp()
  } catch (error) {
    process.stdout.write(`\ndemo: FAILED: clean up: ${messageOf(error)}\n`)
    failure ??= error
  }
  process.exitCode = failure === undefined ? 0 : 1
  if (failure === undefined) process.stdout.write('\ndemo: everything held.\n')
}

async function cleanUp(): Promise<void> {
  title('Cleaning up')
  await stage.tidy()
  const left = (): string[] => tracesOf(stage.belongings)
  await waitFor('the pods are gone', () => left().length === 0, 10_000).catch(() => {})
  const remains = left()
  rmSync(directory, { recursive: true, force: true })
  check(remains.length === 0, `something stayed: ${remains.join(', ')}`)
  say(`No process, mount, network namespace or cgroup stayed, and ${directory} is removed.`)
}
