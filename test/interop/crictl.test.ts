// crictl v1.37.0 against holdfastd: pods, containers, and streams over both transports.

import assert from 'node:assert/strict'
import { after, before, test } from 'node:test'
import { checkLeaks } from '../support/leak-check.ts'
import { DaemonRig } from './daemon-rig.ts'
import { Program, referee } from './programs.ts'
import { TerminalProgram } from './terminal-program.ts'
import { waitFor } from './processes.ts'

const transports = ['spdy', 'websocket'] as const
const webServer =
  'mkdir -p /tmp/www; echo hello from the pod >/tmp/www/index.html; httpd -p 8080 -h /tmp/www; echo started; exec sleep 100000'

let rig: DaemonRig
let pod: string
let web: string

after(async () => {
  await rig.stop()
})
// Hooks run in this order: nothing may be left once all is stopped.
checkLeaks()

before(async () => {
  rig = await DaemonRig.start()
  pod = await rig.runPod('p')
  web = await rig.startContainer(pod, 'p', { name: 'web', command: ['sh', '-c', webServer] })
  await waitFor('the web server', async () => (await rig.ask('logs', web)).includes('started'))
})

test('crictl version and info name the runtime and its conditions', async () => {
  assert.match(await rig.ask('version'), /RuntimeApiVersion:\s+v1/)
  const info = JSON.parse(await rig.ask('info')) as {
    status: { conditions: { type: string; status: boolean }[] }
  }
  assert.deepEqual(
    info.status.conditions.filter(({ type }) => type.endsWith('Ready')).map(({ status }) => status),
    [true, true],
  )
})

test('crictl lists and inspects pods and containers', async () => {
  assert.match(await rig.ask('pods', '--name', 'p'), new RegExp(`${pod.slice(0, 13)}.*Ready`))
  assert.match(await rig.ask('ps'), new RegExp(`${web.slice(0, 13)}.*Running.*web`))
  const inspected = JSON.parse(await rig.ask('inspectp', pod)) as {
    status: { id: string; state: string; metadata: { name: string } }
  }
  assert.equal(inspected.status.id, pod)
  assert.equal(inspected.status.state, 'SANDBOX_READY')
  assert.equal(inspected.status.metadata.name, 'p')
  const container = JSON.parse(await rig.ask('inspect', web)) as {
    status: { state: string; metadata: { name: string } }
  }
  assert.equal(container.status.state, 'CONTAINER_RUNNING')
  assert.equal(container.status.metadata.name, 'web')
})

test('crictl lists images and the space they take', async () => {
  assert.match(await rig.ask('images'), /busybox/)
  assert.match(await rig.ask('imagefsinfo'), /usedBytes/)
})

test('crictl exec -s gives output and failure of a command', async () => {
  assert.equal(await rig.ask('exec', '-s', web, 'echo', 'hello'), 'hello')
  const failed = await rig.crictl(['exec', '-s', web, 'sh', '-c', 'echo oops >&2; exit 7'])
  assert.notEqual(failed.code, 0)
  assert.match(failed.stdout + failed.stderr, /oops/)
  assert.match(failed.stderr, /exited with 7/)
})

test('crictl exec -s reports a command that takes too long', async () => {
  const late = await rig.crictl(['exec', '-s', '--timeout', '1', web, 'sleep', '100'])
  assert.notEqual(late.code, 0)
  assert.match(late.stderr, /DeadlineExceeded|deadline/i)
})

for (const transport of transports) {
  test(`crictl exec -r ${transport} carries stdin, stdout and stderr`, async () => {
    const script = 'cat; echo to stderr >&2'
    const input = 'one\ntwo\n'
    const { code, stdout, stderr } = await rig.crictl(
      ['exec', '-i', '-r', transport, web, 'sh', '-c', script],
      { input },
    )
    assert.equal(code, 0, stderr)
    assert.equal(stdout, input)
    assert.match(stderr, /to stderr/)
  })

  test(`crictl exec -r ${transport} carries 8 MiB both ways`, async () => {
    const input = 'x'.repeat(1023) + '\n'
    const all = input.repeat(8 * 1024)
    const { code, stdout } = await rig.crictl(['exec', '-i', '-r', transport, web, 'cat'], { input: all })
    assert.equal(code, 0)
    assert.equal(stdout.length, all.length)
    assert.ok(stdout === all, 'the bytes differ')
  })

  test(`crictl exec -r ${transport} fails with the exit code of the command`, async () => {
    const { code, stderr } = await rig.crictl(['exec', '-r', transport, web, 'sh', '-c', 'exit 7'])
    assert.notEqual(code, 0)
    assert.match(stderr, /exit code 7/)
  })

  test(`crictl exec -r ${transport} names a command that does not exist`, async () => {
    const { code, stderr } = await rig.crictl(['exec', '-r', transport, web, 'no-such-command'])
    assert.notEqual(code, 0)
    assert.match(stderr, /no-such-command/)
  })

  test(`crictl exec -it -r ${transport} is a terminal of the right size`, async (t) => {
    const args = ['exec', '-i', '-t', '-r', transport, web, 'sh']
    const shell = new TerminalProgram(t, referee('crictl'), args, rig.environment)
    await shell.until(/# /)
    shell.type('stty size; tty\r')
    await shell.until(/24 80\r\n\/dev\/pts\/\d+\r\n/)
    shell.resize(120, 50)
    shell.type('while [ "$(stty size)" != "50 120" ]; do sleep 0.05; done; echo re""sized\r')
    await shell.until(/resized\r\n/)
    shell.type('exit 0\r')
    assert.equal(await shell.exited, 0, shell.shown)
  })

  test(`crictl attach -r ${transport} joins the container's streams until it ends`, async (t) => {
    const name = `attached-${transport}`
    const command = ['sh', '-c', 'read line; echo got $line; echo to stderr >&2']
    const id = await rig.startContainer(pod, 'p', { name, command, stdin: true, stdinOnce: true })
    const attached = Program.during(
      t,
      referee('crictl'),
      ['attach', '-i', '-r', transport, id],
      rig.environment,
    )
    attached.write('a line\n')
    await attached.until(/got a line\n/)
    attached.end()
    assert.equal(await attached.exited, 0, attached.stderr)
    assert.match(attached.stderr, /to stderr/)
    await waitFor('the exit', async () => (await rig.ask('ps', '-a', '--state', 'exited', '-q')).includes(id))
    assert.equal(await rig.ask('rm', id), id)
  })
}

test('crictl port-forward carries many connections', async (t) => {
  const forward = Program.during(
    t,
    referee('crictl'),
    ['port-forward', '-r', 'spdy', pod, '0:8080'],
    rig.environment,
  )
  const [, port] = await forward.until(/Forwarding from 127\.0\.0\.1:(\d+)/)
  const bodies = await Promise.all(
    Array.from({ length: 10 }, async () => await (await fetch(`http://127.0.0.1:${port}/`)).text()),
  )
  assert.deepEqual(
    bodies,
    Array.from({ length: 10 }, () => 'hello from the pod\n'),
  )
  forward.kill('SIGINT')
  await forward.exited
})

test('crictl logs shows what a container wrote, and its end', async () => {
  const command = ['sh', '-c', 'echo first; echo second >&2; printf unfinished; exit 4']
  const id = await rig.startContainer(pod, 'p', { name: 'logged', command })
  await waitFor('the exit', async () => (await rig.ask('ps', '-a', '--state', 'exited', '-q')).includes(id))
  const { stdout, stderr } = await rig.crictl(['logs', id])
  assert.match(stdout, /first/)
  assert.match(stdout, /unfinished/)
  assert.match(stderr, /second/)
  assert.equal((await rig.crictl(['logs', '--tail', '1', id])).stdout.trim(), 'unfinished')
  const { status } = JSON.parse(await rig.ask('inspect', id)) as { status: { exitCode: number } }
  assert.equal(status.exitCode, 4)
  await rig.ask('rm', id)
})

test('crictl stops and removes containers and pods', async () => {
  const second = await rig.runPod('q')
  const command = ['sh', '-c', 'trap "exit 0" TERM; while :; do sleep 0.1; done']
  const id = await rig.startContainer(second, 'q', { name: 'c', command })
  await rig.ask('stop', id)
  assert.match(await rig.ask('ps', '-a'), new RegExp(`${id.slice(0, 13)}.*Exited`))
  await rig.ask('rm', id)
  await rig.ask('stopp', second)
  assert.match(await rig.ask('pods', '--name', 'q'), /NotReady/)
  await rig.ask('rmp', second)
  assert.equal(await rig.ask('pods', '--name', 'q', '-q'), '')
})

test('crictl sees the same pod after the daemon was killed', async () => {
  await rig.restart()
  assert.equal(await rig.ask('pods', '-q'), pod)
  assert.equal(await rig.ask('exec', '-s', web, 'echo', 'still here'), 'still here')
})
