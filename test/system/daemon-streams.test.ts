// The streaming calls of holdfastd: what it refuses and with which code, what containers do while it is stopped or dead,
// and that stdinOnce and large answers come through it.

import assert from 'node:assert/strict'
import { readFileSync } from 'node:fs'
import { join } from 'node:path'
import { after, before, describe, test } from 'node:test'
import { setTimeout as sleep } from 'node:timers/promises'
import { status as grpcStatus } from '@grpc/grpc-js'
import { linesOf, readLog } from '../support/cri-log.ts'
import { CriRig } from '../support/cri-rig.ts'
import { ForwardClient } from '../support/forward-client.ts'
import { checkLeaks } from '../support/leak-check.ts'
import { failureOf } from '../support/rig-sessions.ts'
import { openSession, transports } from '../support/session-client.ts'

checkLeaks()

describe('holdfastd', () => {
  let rig: CriRig
  let pod = ''
  let main = ''
  const streams = { tty: false, stdin: false, stdout: true, stderr: true }
  before(async () => {
    rig = await CriRig.start('crun')
    pod = await rig.runPod()
    main = await rig.run(pod, 'main', ['sleep', '100000'])
  })
  after(async () => {
    await rig.close()
  })

  test('refuses sessions that make no sense, with the code and the words of Kubernetes (B80)', async () => {
    const over = await rig.run(pod, 'over', ['true'])
    await rig.becomes(over, 'CONTAINER_EXITED')
    const created = await rig.create(pod, 'created', ['sleep', '1000'])
    const none = { tty: false, stdin: false, stdout: false, stderr: false }
    const cmd = ['true']
    const cases: [string, object, grpcStatus, RegExp][] = [
      ['Exec', { cmd, ...streams }, grpcStatus.INVALID_ARGUMENT, /^missing required container_id$/],
      [
        'Exec',
        { containerId: main, cmd, ...streams, tty: true },
        grpcStatus.INVALID_ARGUMENT,
        /^tty and stderr cannot both be true$/,
      ],
      [
        'Exec',
        { containerId: main, cmd, ...none },
        grpcStatus.INVALID_ARGUMENT,
        /^one of stdin, stdout, or stderr must be set$/,
      ],
      ['Exec', { containerId: main, cmd: [], ...streams }, grpcStatus.INVALID_ARGUMENT, /cmd/],
      ['Exec', { containerId: 'ffff', cmd, ...streams }, grpcStatus.NOT_FOUND, /ffff/],
      ['Exec', { containerId: over, cmd, ...streams }, grpcStatus.FAILED_PRECONDITION, /exited/],
      ['Exec', { containerId: created, cmd, ...streams }, grpcStatus.FAILED_PRECONDITION, /created/],
      ['ExecSync', { containerId: 'ffff', cmd }, grpcStatus.NOT_FOUND, /ffff/],
      ['ExecSync', { containerId: main, cmd: ['/no/such'] }, grpcStatus.INTERNAL, /no such|not found/i],
      [
        'Attach',
        { containerId: main, ...none },
        grpcStatus.INVALID_ARGUMENT,
        /^one of stdin, stdout, and stderr must be set$/,
      ],
      [
        'Attach',
        { containerId: main, ...streams, stderr: false, tty: true },
        grpcStatus.INVALID_ARGUMENT,
        /tty/,
      ],
      ['Attach', { containerId: over, ...streams }, grpcStatus.FAILED_PRECONDITION, /exited/],
      ['PortForward', { port: [80] }, grpcStatus.INVALID_ARGUMENT, /^missing required pod_sandbox_id$/],
      ['PortForward', { podSandboxId: 'ffff', port: [80] }, grpcStatus.NOT_FOUND, /ffff/],
      ['PortForward', { podSandboxId: pod, port: [70_000] }, grpcStatus.INVALID_ARGUMENT, /70000/],
    ]
    for (const [method, request, code, details] of cases) {
      await assert.rejects(
        rig.call(method, request),
        { code, details },
        `${method} ${JSON.stringify(request)}`,
      )
    }
  })

  test('tells a container that goes between the call and the session (B80)', async () => {
    const gone = await rig.run(pod, 'gone', ['sleep', '1000'])
    const urls = await Promise.all(
      transports.map(
        async () => (await rig.call('Exec', { containerId: gone, cmd: ['true'], ...streams })).url,
      ),
    )
    await rig.call('StopContainer', { containerId: gone, timeout: 0 })
    await rig.call('RemoveContainer', { containerId: gone })
    for (const [i, transport] of transports.entries()) {
      const session = await openSession(transport, urls[i] ?? '', streams)
      assert.match(failureOf(await session.ended), /not (running|found)/)
    }
  })

  test('answers exec sync with 5 MiB (B22)', async () => {
    const answer = await rig.call('ExecSync', {
      containerId: main,
      cmd: ['head', '-c', '5242880', '/dev/zero'],
    })
    assert.equal(answer.stdout.length, 5 * 1024 * 1024)
  })

  test('passes on whether stdin ends with its client (B15)', async () => {
    const once = await rig.run(pod, 'once', ['cat'], { stdin: true, stdinOnce: true })
    const open = await rig.run(pod, 'open', ['cat'], { stdin: true })
    for (const [containerId, transport] of [
      [once, 'spdy'],
      [open, 'websocket'],
    ] as const) {
      const flags = { ...streams, stdin: true }
      const session = await openSession(
        transport,
        (await rig.call('Attach', { containerId, ...flags })).url,
        flags,
      )
      session.sendLast('hello\n')
      assert.deepEqual(await session.ended, { code: 0 })
    }
    const { exitCode } = await rig.becomes(once, 'CONTAINER_EXITED')
    assert.equal(exitCode, 0)
    assert.equal(rig.log('once'), 'hello\n')
    assert.equal((await rig.status(open))['state'], 'CONTAINER_RUNNING')
  })

  test('stopped or dead, it delays no container and loses no line (B20)', async () => {
    const line = 'l'.repeat(90)
    const script = `i=0; while [ $i -lt 20000 ]; do echo $i ${line}; i=$((i+1)); done; exit 5`
    const containerId = await rig.run(pod, 'prints', ['sh', '-c', script])
    const flags = { ...streams, stdin: true }
    const { url } = await rig.call('Exec', { containerId: main, cmd: ['sh', '-c', 'cat; exit 28'], ...flags })
    const session = await openSession('spdy', url, flags)
    await rig.endDaemon('SIGKILL')
    session.send('nobody is there\n')
    await session.until('nobody is there')
    await sleep(1000)
    await rig.startDaemon()
    const { exitCode } = await rig.becomes(containerId, 'CONTAINER_EXITED', 20_000)
    assert.equal(exitCode, 5)
    const lines = linesOf(readLog(join(rig.directory, 'logs/prints.log')))
    assert.equal(lines.length, 20_000)
    assert.ok(lines.every((text, i) => text === `${i} ${line}`))
    session.closeStdin()
    assert.deepEqual(await session.ended, { code: 28 })
  })

  test('removes a pod while a port is forwarded into it, and leaves no mount of any pod (B36, B75)', async () => {
    const mounts = nsfsMounts()
    for (let i = 0; i < 5; i++) {
      const other = await rig.runPod(`other-${i}`)
      const client = await ForwardClient.open(
        (await rig.call('PortForward', { podSandboxId: other, port: [80] })).url,
      )
      await rig.call('StopPodSandbox', { podSandboxId: other })
      await rig.call('RemovePodSandbox', { podSandboxId: other })
      await client.closed
    }
    assert.deepEqual(nsfsMounts(), mounts)
  })

  test('removes a pod whose container never was (B27)', async () => {
    const other = await rig.runPod('without')
    await assert.rejects(rig.create(other, 'nothing', ['/no/such']))
    await rig.call('StopPodSandbox', { podSandboxId: other })
    await rig.call('RemovePodSandbox', { podSandboxId: other })
  })
})

function nsfsMounts(): string[] {
  const mounts = readFileSync('/proc/self/mounts', 'utf8').split('\n')
  return mounts.filter((line) => line.startsWith('nsfs '))
}
