// The five steps of the demo. Each says what it does, does it, and checks what it claims.

import { readFileSync } from 'node:fs'
import { get } from 'node:http'
import { messageOf } from '../../src/base/errors.ts'
import { findContainer } from '../../src/client/pod-lookup.ts'
import { EXIT_BROKEN } from '../../src/cli/exit-codes.ts'
import { isAlive, pssOf } from './host.ts'
import { finish } from './programs.ts'
import { check, say, span, type Stage, title, waitFor } from './stage.ts'
import { Terminal } from './terminal.ts'

/** The pod's container: an HTTP server that sends ten numbered parts in two seconds, and a log that goes on. */
const webScript = `mkdir -p /tmp/www/cgi-bin
printf '#!/bin/sh\\nprintf "Content-Type: text/plain\\\\r\\\\n\\\\r\\\\n"\\nfor i in 0 1 2 3 4 5 6 7 8 9; do echo part $i; sleep 0.2; done\\n' > /tmp/www/cgi-bin/parts
chmod +x /tmp/www/cgi-bin/parts
echo hello from the pod > /tmp/www/index.html
httpd -p 8080 -h /tmp/www
i=0
while sleep 0.5; do i=$((i+1)); echo line $i; done`

/** A container that numbers its lines until it is told to stop, and ends with 7. */
const workerScript = `i=0
until [ -e /tmp/stop ]; do
  i=$((i+1)); echo line $i
  [ $((i % 20)) = 0 ] && usleep 2000
done
exit 7`

/** Before the steps: the daemon and the pod. */
export async function startPod(stage: Stage): Promise<void> {
  const { installation } = stage
  title('Starting')
  say(`holdfastd answers after ${span(await installation.startDaemon())}, on ${installation.socket}.`)
  const from = performance.now()
  stage.pods.push('demo')
  const run = await installation.run('run', '-d', '--name', 'demo', '--', 'sh', '-c', webScript)
  check(run.code === 0, `holdfast run starts the pod: ${run.stderr}`)
  const { keeper, server } = await stage.monitorOf('demo')
  const pid = await stage.containerPid('demo')
  say(
    `A pod with one container (static busybox, process ${pid}) runs after ${span(performance.now() - from)}.`,
  )
  check(server > 0, 'the pod has a monitor of two processes')
  say(`Its monitor is two processes: the keeper ${keeper} holds and logs, the server ${server} serves.`)
}

/** Step 1. */
export async function openShell(stage: Stage): Promise<void> {
  title('1. A terminal session: holdfast exec -it demo -- sh')
  const from = performance.now()
  const shell = new Terminal(
    stage.installation.command('exec', '-it', 'demo', '--', 'sh'),
    stage.installation.env,
  )
  stage.terminals.push(shell)
  stage.shell = shell
  await shell.expect(/[#$] /)
  say(`The prompt is there after ${span(performance.now() - from)}.`)
  shell.type('MARK=kept; tty; stty size; echo shell=$$\n')
  await shell.expect(/\/dev\/pts\/\d+\r\n24 80\r\nshell=(\d+)/)
  say(`It is a real terminal of 80 by 24, and the shell answers a line in ${span(await askShell(stage))}.`)
}

/** Step 2. */
export async function killDaemon(stage: Stage): Promise<void> {
  const { installation } = stage
  title('2. The daemon dies: kill -9')
  const podsBefore = await installation.cri((cri) => cri.listPods())
  const killed = installation.daemonPid
  await installation.killDaemon('SIGKILL')
  check(!isAlive(killed) && !(await installation.daemonAnswers()), 'no daemon runs')
  say(`holdfastd (${killed}) is dead and nothing answers on its socket.`)
  say(`The same shell answers in ${span(await askShell(stage))}, while no daemon runs.`)
  const exec = await installation.run('exec', 'demo', '--', 'echo', 'new session')
  check(
    exec.code === 0 && exec.stdout === 'new session\n',
    `a new exec works without a daemon: ${exec.stderr}`,
  )
  say('A new holdfast exec works as well: it asks the monitor, not the daemon.')
  const restart = await installation.startDaemon()
  const podsAfter = await installation.cri((cri) => cri.listPods())
  const containers = await installation.cri((cri) => cri.listContainers())
  const ids = (pods: typeof podsBefore): string => pods.map(({ id, state }) => `${id} ${state}`).join()
  check(podsAfter.length === 1 && ids(podsBefore) === ids(podsAfter), 'the new daemon finds the pod, ready')
  check(containers[0]?.state === 'CONTAINER_RUNNING', 'the new daemon finds the container running')
  say(
    `A new holdfastd (${installation.daemonPid}) answers after ${span(restart)} and has found the pod and its container.`,
  )
  say(
    `The shell never noticed: same process, its variables kept, and it answers in ${span(await askShell(stage))}.`,
  )
}

/** Step 3. */
export async function killServer(stage: Stage): Promise<void> {
  const { installation } = stage
  title("3. The monitor's server dies: kill -9")
  stage.pods.push('worker')
  const worker = installation.start('ignore', 'run', '--name', 'worker', '--', 'sh', '-c', workerScript)
  stage.children.push(worker)
  const result = finish(worker)
  const log = await waitForLog(stage, 'worker')
  await waitFor('the worker prints', () => readFileSync(log, 'utf8').length > 10_000)
  const { keeper, server } = await stage.monitorOf('worker')
  const pid = await stage.containerPid('worker')
  const session = new Terminal(installation.command('exec', '-it', 'worker', '--', 'cat'), installation.env)
  stage.terminals.push(session)
  session.type('are you there\n')
  await session.expect(/are you there\r\nare you there/)
  const printed = countLines(log)
  check(isAlive(pid), 'the worker still runs when its server is killed')
  process.kill(server, 'SIGKILL')
  const killed = performance.now()
  let said = ''
  const answered = waitFor('the next server serves', async () => {
    const exec = await installation.run('exec', 'worker', '--', 'true')
    said = exec.stderr
    return exec.code === 0
  }).catch((error: unknown) => {
    throw new Error(`${messageOf(error)}: ${said}`)
  })
  const code = await session.exitCode()
  check(
    code === EXIT_BROKEN,
    `the session through the server reports that it broke (${EXIT_BROKEN}), not ${code}`,
  )
  say(
    `A second pod prints numbered lines without a pause; at line ${printed} its server (${server}) is killed.`,
  )
  say(`A session through that server ends with an error (exit code ${code}), never with success.`)
  await answered
  const back = span(performance.now() - killed)
  const next = await stage.monitorOf('worker')
  check(
    next.keeper === keeper && isAlive(keeper) && next.server !== server,
    'the keeper has started a new server',
  )
  say(
    `The keeper (${keeper}) has started a new one (${next.server}); a new session has run through it after ${back}.`,
  )
  await installation.run('exec', 'worker', '--', 'touch', '/tmp/stop')
  const { code: exitCode, stdout } = await result
  const lines = countLines(log)
  check(lines > printed, 'the container went on')
  const expected = Array.from({ length: lines }, (_, i) => `line ${i + 1}\n`).join('')
  check(
    stdout === expected,
    `holdfast run shows every line once: ${stdout.split('\n').length - 1} of ${lines}`,
  )
  check(exitCode === 7, `the container's exit code 7 is reported, not ${exitCode}`)
  const { id } = (await findContainer(stage.paths, 'worker')).container
  await waitFor('the daemon reports the exit', async () => {
    const status = await installation.cri((cri) => cri.containerStatus(id))
    return status.state === 'CONTAINER_EXITED' && status.exit_code === 7
  })
  say(
    `The container never noticed: lines 1 to ${lines} are in its log, once each, and its exit code 7 is reported.`,
  )
  await stage.remove('worker')
  stage.pods.pop()
}

/** Step 4. */
export async function portForward(stage: Stage): Promise<void> {
  const { installation } = stage
  title('4. Port-forward: holdfast port-forward demo :8080')
  const forward = installation.start('ignore', 'port-forward', 'demo', ':8080')
  stage.children.push(forward)
  const port = await new Promise<number>((resolve, reject) => {
    let text = ''
    forward.stdout?.setEncoding('utf8').on('data', (chunk: string) => {
      text += chunk
      const found = /127\.0\.0\.1:(\d+) -> 8080/.exec(text)
      if (found !== null) resolve(Number(found[1]))
    })
    forward.once('close', () => reject(new Error(`holdfast port-forward ended: ${text}`)))
  })
  const from = performance.now()
  check((await fetchText(port, '/')) === 'hello from the pod\n', 'the HTTP server in the pod answers')
  say(
    `The HTTP server inside the pod's network namespace answers on 127.0.0.1:${port} in ${span(performance.now() - from)}.`,
  )
  let parts = 0
  const download = fetchText(port, '/cgi-bin/parts', () => parts++)
  await waitFor('the download has begun', () => parts > 0)
  await installation.killDaemon('SIGKILL')
  const atDeath = parts
  const restart = await installation.startDaemon()
  const expected = Array.from({ length: 10 }, (_, i) => `part ${i}\n`).join('')
  check((await download) === expected, 'the download goes on over the restart of the daemon')
  say(
    `A download of ten parts was at part ${atDeath} when holdfastd was killed (it was back after ${span(restart)}): it came whole.`,
  )
  check((await fetchText(port, '/')) === 'hello from the pod\n', 'the same forward serves new connections')
  say('New connections through the same forward work after it, too.')
  const ended = finish(forward)
  forward.kill('SIGTERM')
  await ended
}

/** Step 5, but for cleaning up. */
export async function showCost(stage: Stage): Promise<void> {
  title('5. What it cost')
  const { keeper, server } = await stage.monitorOf('demo')
  say(
    `Keeper ${pssOf(keeper)} kB and server ${(pssOf(server) / 1024).toFixed(1)} MB of memory (PSS), with one open session.`,
  )
  const shell = stage.shell
  check(shell !== undefined, 'the shell of step 1 is still there')
  say(`The shell of step 1 still answers (${span(await askShell(stage))}); it ends with its own exit code:`)
  shell.type('exit 3\n')
  const code = await shell.exitCode()
  check(code === 3, `the shell's exit code is 3, not ${code}`)
  say('exit 3 gives 3.')
}

/** Asks the shell of step 1 something only it can answer; resolves to the milliseconds that took. */
async function askShell(stage: Stage): Promise<number> {
  const shell = stage.shell
  check(shell !== undefined, 'there is a shell')
  const from = performance.now()
  shell.type('echo "$MARK-$((6*7))"\n')
  await shell.expect(/kept-42/)
  return performance.now() - from
}

async function waitForLog(stage: Stage, name: string): Promise<string> {
  let path = ''
  await waitFor(`container ${name} runs`, async () => {
    const container = await findContainer(stage.paths, name).catch(() => undefined)
    if (container?.container.state !== 'running') return false
    path = container.container.logPath
    return true
  })
  return path
}

/** Lines `line N` of a CRI log, which must be numbered without a gap. */
function countLines(log: string): number {
  const numbers = [...readFileSync(log, 'utf8').matchAll(/ stdout F line (\d+)$/gm)].map((match) =>
    Number(match[1]),
  )
  numbers.forEach((number, i) =>
    check(number === i + 1, `the log is numbered without a gap; line ${i + 1} says ${number}`),
  )
  return numbers.length
}

function fetchText(port: number, path: string, onChunk: () => void = () => {}): Promise<string> {
  return new Promise((resolve, reject) => {
    get({ host: '127.0.0.1', port, path, agent: false }, (response) => {
      let text = ''
      response.setEncoding('utf8').on('data', (chunk: string) => {
        text += chunk
        onChunk()
      })
      response.on('end', () => resolve(text)).on('error', reject)
    }).on('error', reject)
  })
}
