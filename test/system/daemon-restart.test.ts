import assert from 'node:assert/strict'
import { execFileSync, spawn } from 'node:child_process'
import { once } from 'node:events'
import { existsSync, mkdirSync, readFileSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { after, before, beforeEach, describe, test } from 'node:test'
import { status as grpcStatus } from '@grpc/grpc-js'
import { readPods } from '../../src/client/pod-lookup.ts'
import { StatePaths } from '../../src/client/pod-state.ts'
import { CriRig, daemonProgram } from '../support/cri-rig.ts'
import { checkLeaks } from '../support/leak-check.ts'
import { isRunning, runtimes, waitFor } from '../support/rig.ts'

checkLeaks()

for (const runtime of runtimes) {
  describe(`holdfastd with ${runtime}, killed and started again`, () => {
    let rig: CriRig
    let pod = ''
    let turn = 0
    before(async () => {
      rig = await CriRig.start(runtime)
    })
    beforeEach(async () => {
      pod = await rig.runPod(`pod${turn++}`)
    })
    after(async () => {
      await rig.close()
    })

    test('finds its pods and tells what ended meanwhile', async () => {
      const running = await rig.run(pod, 'running', ['sleep', '1000'])
      const ending = await rig.run(pod, 'ending', ['sh', '-c', 'sleep 1; exit 42'])
      const created = await rig.create(pod, 'created', ['sleep', '1000'])
      const monitor = await rig.monitorPid(pod)
      await rig.endDaemon()
      await waitFor('an exit', () => existsSync(join(rig.podDirectory(pod), 'exits', ending)))
      await rig.startDaemon()
      const states = await Promise.all([running, ending, created].map(async (id) => await rig.status(id)))
      assert.deepEqual(
        states.map(({ state, exitCode }) => [state, exitCode]),
        [
          ['CONTAINER_RUNNING', 0],
          ['CONTAINER_EXITED', 42],
          ['CONTAINER_CREATED', 0],
        ],
      )
      assert.equal(await rig.monitorPid(pod), monitor)
      assert.equal((await rig.exec(running, 'echo', 'still')).out, 'still\n')
      await rig.call('StartContainer', { containerId: created })
      // A later exit is noticed as before.
      await rig.call('StopContainer', { containerId: running, timeout: 0 })
      assert.equal((await rig.status(running))['exitCode'], 137)
    })

    test('knows a container that was started when it was killed before it could note it', async () => {
      const id = await rig.create(pod, 'app', ['sleep', '1000'])
      await rig.endDaemon()
      const runtimePath = join(rig.directory, runtime)
      execFileSync(runtimePath, ['--root', join(rig.state, 'runtime'), 'start', id])
      await rig.startDaemon()
      assert.equal((await rig.status(id))['state'], 'CONTAINER_RUNNING')
    })

    test('reports containers lost with their monitor, and goes on with another one', async () => {
      const id = await rig.run(pod, 'app', ['sleep', '1000'])
      const over = await rig.run(pod, 'over', ['sh', '-c', 'exit 9'])
      await rig.becomes(over, 'CONTAINER_EXITED')
      process.kill(await rig.monitorPid(pod), 'SIGKILL')
      const lost = await rig.becomes(id, 'CONTAINER_EXITED')
      assert.deepEqual([lost['exitCode'], lost['reason']], [255, 'MonitorLost'])
      assert.equal((await rig.status(over))['exitCode'], 9)
      await assert.rejects(rig.exec(id, 'true'), {
        code: grpcStatus.FAILED_PRECONDITION,
        details: `exec in container ${id}: it is not running but exited`,
      })
      await rig.call('StopContainer', { containerId: id, timeout: 1 })
      await rig.call('RemoveContainer', { containerId: id })
      const next = await rig.run(pod, 'app', ['sh', '-c', 'ip addr show lo'])
      await rig.becomes(next, 'CONTAINER_EXITED')
      assert.match(rig.log('app'), /LOOPBACK,UP/)
    })

    test('reports containers whose monitor died together with it', async () => {
      const id = await rig.run(pod, 'app', ['sleep', '1000'])
      const pid = (await containerInfo(rig, id)).pid
      const keeper = await rig.monitorPid(pod)
      await rig.endDaemon()
      process.kill(keeper, 'SIGKILL')
      await rig.startDaemon()
      const { exitCode, reason, state } = await rig.status(id)
      assert.deepEqual([state, exitCode, reason], ['CONTAINER_EXITED', 255, 'MonitorLost'])
      await waitFor('its process to end', () => !isRunning(pid))
    })

    // What is left knows no OCI runtime.
    if (runtime !== 'runc') return

    test('removes what it had not finished', async () => {
      const id = await rig.create(pod, 'half', ['sleep', '1000'])
      const half = await rig.runPod('half')
      await rig.endDaemon()
      const unfinish = (path: string): void => {
        const text = readFileSync(path, 'utf8')
        writeFileSync(path, text.replace(/"state": "\w+"/, '"state": "creating"'))
      }
      unfinish(join(rig.podDirectory(pod), 'containers', `${id}.json`))
      unfinish(join(rig.podDirectory(half), 'pod.json'))
      const leftover = join(rig.state, 'pods/0123')
      mkdirSync(leftover)
      const keeper =
        (await readPods(new StatePaths(rig.state))).find((one) => one.pod.id === half)?.pod.monitorPid ?? 0
      assert.ok(isRunning(keeper))
      await rig.startDaemon()
      await assert.rejects(rig.status(id), { code: grpcStatus.NOT_FOUND })
      await assert.rejects(rig.call('PodSandboxStatus', { podSandboxId: half }), {
        code: grpcStatus.NOT_FOUND,
      })
      assert.deepEqual(
        [existsSync(leftover), existsSync(rig.podDirectory(half)), isRunning(keeper)],
        [false, false, false],
      )
      // The names are free again.
      await rig.create(pod, 'half', ['true'])
    })

    test('puts unreadable records aside and calls their pods not ready', async () => {
      const [good, bad] = [
        await rig.run(pod, 'good', ['sleep', '1000']),
        await rig.run(pod, 'bad', ['sleep', '1000']),
      ]
      const other = await rig.runPod('unreadable')
      const lost = await rig.run(other, 'app', ['sleep', '1000'])
      const { pid } = await containerInfo(rig, lost)
      await rig.endDaemon()
      const badPath = join(rig.podDirectory(pod), 'containers', `${bad}.json`)
      writeFileSync(badPath, '{"version": 1, "id"')
      writeFileSync(join(rig.podDirectory(other), 'pod.json'), '')
      await rig.startDaemon()
      const podState = async (id: string): Promise<unknown> =>
        (await rig.call('PodSandboxStatus', { podSandboxId: id })).status['state']
      assert.deepEqual([await podState(pod), await podState(other)], ['SANDBOX_NOTREADY', 'SANDBOX_NOTREADY'])
      assert.ok(existsSync(`${badPath}.bad`))
      await assert.rejects(rig.status(bad), { code: grpcStatus.NOT_FOUND })
      assert.equal((await rig.status(good))['state'], 'CONTAINER_RUNNING')
      assert.match(rig.said, /cannot be read .*renamed to \.bad/)
      // And again, to see that this was noted.
      await rig.endDaemon()
      await rig.startDaemon()
      assert.deepEqual([await podState(pod), await podState(other)], ['SANDBOX_NOTREADY', 'SANDBOX_NOTREADY'])
      for (const id of [pod, other]) await rig.call('RemovePodSandbox', { podSandboxId: id })
      await waitFor('the processes to end', () => !isRunning(pid))
    })

    test('calls a pod not ready whose namespaces are gone, and forwards no port into the host', async () => {
      const id = await rig.run(pod, 'app', ['sleep', '1000'])
      const netns = join(rig.podDirectory(pod), 'ns/netns', pod)
      execFileSync('umount', ['-l', netns])
      // An ordinary file is left at the path.
      await assert.rejects(rig.call('PortForward', { podSandboxId: pod, port: [80] }), (error: Error) =>
        error.message.includes(netns),
      )
      await rig.endDaemon()
      await rig.startDaemon()
      await assert.rejects(rig.call('PortForward', { podSandboxId: pod, port: [80] }), {
        code: grpcStatus.FAILED_PRECONDITION,
        details: /its namespaces are gone: net/,
      })
      assert.equal((await rig.status(id))['state'], 'CONTAINER_RUNNING')
      await rig.call('RemovePodSandbox', { podSandboxId: pod })
      assert.equal(existsSync(rig.podDirectory(pod)), false)
    })

    test('keeps its hands off the state of a newer program', async () => {
      const id = await rig.run(pod, 'app', ['sleep', '1000'])
      await rig.endDaemon()
      const path = join(rig.podDirectory(pod), 'containers', `${id}.json`)
      const text = readFileSync(path, 'utf8')
      writeFileSync(path, text.replace('"version": 1', '"version": 2'))
      const { code, said } = await runDaemon(rig.daemonArgs)
      assert.equal(code, 1)
      assert.match(said, new RegExp(`container ${id} was written by a newer holdfastd \\(state version 2`))
      writeFileSync(path, text)
      await rig.startDaemon()
      assert.equal((await rig.status(id))['state'], 'CONTAINER_RUNNING')
    })

    test('ends in order when it is told to, and pods run on', async () => {
      const id = await rig.run(pod, 'app', ['sleep', '1000'])
      assert.equal(await rig.endDaemon('SIGTERM'), 0)
      assert.equal(existsSync(rig.socket), false)
      await rig.startDaemon()
      assert.equal((await rig.status(id))['state'], 'CONTAINER_RUNNING')
    })
  })
}

describe('a second holdfastd', () => {
  test('is refused on the same state, and on the same socket', async () => {
    const rig = await CriRig.start('runc')
    try {
      const same = await runDaemon(rig.daemonArgs)
      assert.equal(same.code, 1)
      assert.match(same.said, /state belongs to a holdfastd that runs \(pid \d+\)/)
      const other = join(rig.directory, 'other')
      const args = rig.daemonArgs.map((arg) => (arg === rig.state ? other : arg))
      const taken = await runDaemon(args)
      assert.equal(taken.code, 1)
      assert.match(taken.said, /another program listens there/)
      await rig.call('Version', {})
    } finally {
      await rig.close()
    }
  })

  test('says what is wrong with its command line', async () => {
    const cases: [string[], number, RegExp][] = [
      [['--wrong'], 2, /error: .*--wrong/],
      [['--log-level', 'loud'], 2, /loud is none of debug/],
      [['--image', 'x'], 2, /NAME=ROOTFS/],
      [['--runtime', '/no/runc'], 1, /--runtime: \/no\/runc is no program/],
      [['--runtime', 'norunc'], 1, /norunc is not in \$PATH/],
      [['--monitor', '/etc/passwd'], 1, /--monitor: \/etc\/passwd is no program/],
    ]
    for (const [args, code, said] of cases) {
      const result = await runDaemon([daemonProgram, ...args])
      assert.equal(result.code, code)
      assert.match(result.said, said)
    }
    assert.match((await runDaemon([daemonProgram, '--help'])).printed, /^usage: holdfastd/)
    assert.match((await runDaemon([daemonProgram, '-v'])).printed, /^holdfastd \d+\.\d+\.\d+\n$/)
  })
})

async function containerInfo(rig: CriRig, containerId: string): Promise<{ pid: number }> {
  const { info } = await rig.call('ContainerStatus', { containerId, verbose: true })
  return JSON.parse(info['info'] ?? '{}') as { pid: number }
}

async function runDaemon(
  args: readonly string[],
): Promise<{ code: number | null; said: string; printed: string }> {
  const child = spawn(process.execPath, args, { stdio: ['ignore', 'pipe', 'pipe'] })
  let said = ''
  let printed = ''
  child.stderr.setEncoding('utf8').on('data', (text: string) => (said += text))
  child.stdout.setEncoding('utf8').on('data', (text: string) => (printed += text))
  await once(child, 'close')
  return { code: child.exitCode, said, printed }
}
