// kubectl through a stand-in for API server and kubelet: exec, attach, cp and port-forward, over both of its transports.

import assert from 'node:assert/strict'
import { randomBytes } from 'node:crypto'
import { readFile, writeFile } from 'node:fs/promises'
import { join } from 'node:path'
import { after, before, test } from 'node:test'
import { checkLeaks } from '../support/leak-check.ts'
import { ApiFront } from './api-front.ts'
import { CriClient } from './cri-client.ts'
import { DaemonRig } from './daemon-rig.ts'
import { childrenOf, serverOf, waitFor } from './processes.ts'
import { Program, referee, run } from './programs.ts'
import type { Outcome } from './programs.ts'
import { TerminalProgram } from './terminal-program.ts'

const transports = ['spdy', 'websocket'] as const
type Transport = (typeof transports)[number]

let rig: DaemonRig
let cri: CriClient
let front: ApiFront
let pod: string

after(async () => {
  await front.close()
  cri.close()
  await rig.stop()
})
// Hooks run in this order: nothing may be left once all is stopped.
checkLeaks()

before(async () => {
  rig = await DaemonRig.start()
  pod = await rig.runPod('p')
  const script =
    'mkdir -p /tmp/www; echo hello >/tmp/www/index.html; httpd -p 8080 -h /tmp/www; exec sleep 100000'
  await rig.startContainer(pod, 'p', { name: 'web', command: ['sh', '-c', script] })
  cri = await CriClient.connect(rig.socketPath)
  front = await ApiFront.start(cri)
})

function environment(transport: Transport): Record<string, string> {
  const webSockets = String(transport === 'websocket')
  return {
    HOME: rig.directory,
    KUBECTL_REMOTE_COMMAND_WEBSOCKETS: webSockets,
    KUBECTL_PORT_FORWARD_WEBSOCKETS: webSockets,
  }
}

function args(...words: string[]): string[] {
  return ['--server', front.address, '--namespace', 'default', ...words]
}

async function kubectl(transport: Transport, words: readonly string[], input = ''): Promise<Outcome> {
  return await run(referee('kubectl'), args(...words), { env: environment(transport), input })
}

for (const transport of transports) {
  test(`kubectl exec over ${transport} carries stdin, stdout and stderr, and uses that transport`, async () => {
    front.upgrades.length = 0
    const words = ['exec', '-i', 'p', '-c', 'web', '--', 'sh', '-c', 'cat; echo to stderr >&2']
    const { code, stdout, stderr } = await kubectl(transport, words, 'one\ntwo\n')
    assert.equal(code, 0, stderr)
    assert.equal(stdout, 'one\ntwo\n')
    assert.match(stderr, /to stderr/)
    assert.deepEqual(front.upgrades, [transport === 'spdy' ? 'SPDY/3.1' : 'websocket'])
  })

  test(`kubectl exec over ${transport} exits with the command's code`, async () => {
    const { code, stderr } = await kubectl(transport, ['exec', 'p', '--', 'sh', '-c', 'exit 42'])
    assert.equal(code, 42)
    assert.match(stderr, /command terminated with exit code 42/)
  })

  test(`kubectl exec over ${transport} names a command that does not exist`, async () => {
    const { code, stderr } = await kubectl(transport, ['exec', 'p', '--', 'no-such-command'])
    assert.notEqual(code, 0)
    assert.match(stderr, /no-such-command/)
  })

  test(`kubectl exec -it over ${transport} is a terminal that follows the window`, async (t) => {
    const words = args('exec', '-i', '-t', 'p', '--', 'sh')
    const shell = new TerminalProgram(t, referee('kubectl'), words, environment(transport))
    await shell.until(/# /)
    shell.resize(120, 50)
    shell.type('while [ "$(stty size)" != "50 120" ]; do sleep 0.05; done; echo re""sized\r')
    await shell.until(/resized\r\n/)
    shell.type('exit 3\r')
    assert.equal(await shell.exited, 3)
  })

  test(`kubectl cp over ${transport} copies 8 MiB there and back`, async () => {
    const [there, back] = [join(rig.directory, 'there'), join(rig.directory, 'back')]
    const bytes = randomBytes(8 * 1024 * 1024)
    await writeFile(there, bytes)
    const up = await kubectl(transport, ['cp', there, 'p:/tmp/copied'])
    assert.equal(up.code, 0, up.stderr)
    const down = await kubectl(transport, ['cp', 'p:/tmp/copied', back])
    assert.equal(down.code, 0, down.stderr)
    assert.ok((await readFile(back)).equals(bytes), 'the copy differs')
  })

  test(`kubectl attach over ${transport} joins the container until it ends`, async (t) => {
    const name = `attached-${transport}`
    const command = ['sh', '-c', 'read line; echo got $line']
    const id = await rig.startContainer(pod, 'p', { name, command, stdin: true, stdinOnce: true })
    const words = args('attach', '-i', 'p', '-c', name)
    const attached = Program.during(t, referee('kubectl'), words, environment(transport))
    attached.write('a line\n')
    await attached.until(/got a line\n/)
    attached.end()
    assert.equal(await attached.exited, 0, attached.stderr)
    await waitFor('the exit', async () => (await rig.ask('ps', '-a', '--state', 'exited', '-q')).includes(id))
    await rig.ask('rm', id)
  })

  test(`kubectl port-forward with ${transport} preferred serves many connections`, async (t) => {
    const words = args('port-forward', 'p', ':8080')
    const forward = Program.during(t, referee('kubectl'), words, environment(transport))
    const [, port] = await forward.until(/Forwarding from 127\.0\.0\.1:(\d+)/)
    for (let round = 0; round < 3; round++) {
      const bodies = await Promise.all(
        Array.from({ length: 10 }, async () => await (await fetch(`http://127.0.0.1:${port}/`)).text()),
      )
      assert.deepEqual(new Set(bodies), new Set(['hello\n']))
    }
    forward.kill('SIGINT')
    await forward.exited
  })

  test(`kubectl exec over ${transport} fails when the monitor's server is killed`, async (t) => {
    const words = args('exec', '-i', 'p', '--', 'sh', '-c', 'echo running; exec cat')
    const session = Program.during(t, referee('kubectl'), words, environment(transport))
    await session.until(/running\n/)
    const keeper = await rig.monitorPid(pod)
    const server = serverOf(keeper)
    assert.ok(server !== undefined, `keeper ${keeper} has ${childrenOf(keeper).join(' ')}`)
    process.kill(server, 'SIGKILL')
    const code = await session.exited
    assert.notEqual(code, 0)
    assert.notEqual(session.stderr, '')
  })
}

test('kubectl exec goes on while the daemon is killed and started again', async (t) => {
  const words = args('exec', '-i', 'p', '--', 'sh')
  const session = Program.during(t, referee('kubectl'), words, environment('spdy'))
  session.write('echo before\n')
  await session.until(/before\n/)
  await rig.restart()
  session.write('echo after; exit 5\n')
  await session.until(/after\n/)
  assert.equal(await session.exited, 5)
})
