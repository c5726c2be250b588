import assert from 'node:assert/strict'
import { existsSync, readdirSync, readFileSync, readlinkSync, renameSync } from 'node:fs'
import { join } from 'node:path'
import { after, before, describe, test } from 'node:test'
import { status as grpcStatus } from '@grpc/grpc-js'
import { CriRig, cgroupsNaming } from '../support/cri-rig.ts'
import { checkLeaks } from '../support/leak-check.ts'
import { runtimes, waitFor } from '../support/rig.ts'

checkLeaks()

for (const runtime of runtimes) {
  describe(`holdfastd with ${runtime}`, () => {
    let rig: CriRig
    let pod = ''
    before(async () => {
      rig = await CriRig.start(runtime)
      pod = await rig.runPod('pod', {
        hostname: 'box',
        dnsConfig: { servers: ['10.1.2.3'], searches: [], options: [] },
      })
    })
    after(async () => {
      await rig.close()
    })

    test('runs a container to its end and reports its log and exit', async () => {
      const id = await rig.run(pod, 'short', ['sh', '-c', 'echo out; echo err >&2; exit 3'])
      const status = await rig.becomes(id, 'CONTAINER_EXITED')
      assert.deepEqual([status['exitCode'], status['reason']], [3, 'Error'])
      assert.ok(BigInt(status['finishedAt'] as string) >= BigInt(status['startedAt'] as string))
      assert.deepEqual(rig.log('short').trim().split('\n').toSorted(), ['err', 'out'])
      assert.equal(status['logPath'], join(rig.directory, 'logs/short.log'))
    })

    test('gives a container the hostname, name servers, loopback and shared memory of its pod', async () => {
      const [one, two] = [
        await rig.run(pod, 'one', ['sleep', '1000']),
        await rig.run(pod, 'two', ['sleep', '1000']),
      ]
      assert.equal((await rig.exec(one, 'hostname')).out, 'box\n')
      assert.equal((await rig.exec(one, 'cat', '/etc/resolv.conf')).out, 'nameserver 10.1.2.3\n')
      assert.match((await rig.exec(one, 'ip', 'addr', 'show', 'lo')).out, /<LOOPBACK,UP.*127\.0\.0\.1/s)
      await rig.exec(one, 'sh', '-c', 'echo shared > /dev/shm/x; echo own > /x')
      assert.equal((await rig.exec(two, 'cat', '/dev/shm/x')).out, 'shared\n')
      assert.equal((await rig.exec(two, 'cat', '/x')).code, 1)
      const netns = async (id: string): Promise<string> =>
        (await rig.exec(id, 'readlink', '/proc/self/ns/net')).out
      assert.equal(await netns(one), await netns(two))
    })

    test('passes arguments and environment on byte for byte', async () => {
      const args = ['\necho x', 'a b', '"\'', '${X} $(id) %s \\', '', 'é\t']
      const envs = [
        { key: 'A', value: '' },
        { key: 'C', value: 'l1\nl2=é' },
      ].map(({ key, value }) => ({ key, value: Buffer.from(value) }))
      const id = await rig.run(pod, 'bytes', ['sleep', '1000'], { envs })
      const shown = ['sh', '-c', 'cat /proc/$$/cmdline; exit', ...args]
      const { out } = await rig.exec(id, ...shown)
      assert.deepEqual(out.split('\0'), [...shown, ''])
      const { out: environment } = await rig.exec(id, 'cat', '/proc/1/environ')
      assert.ok(environment.split('\0').includes('C=l1\nl2=é'))
      assert.ok(environment.split('\0').includes('A='))
      const big = await rig
        .call('ExecSync', { containerId: id, cmd: ['true', 'x'.repeat(200_000)] })
        .catch((e: unknown) => e)
      assert.match((big as Error).message, /E2BIG|argument list too long/i)
    })

    test('runs as another user, without capabilities, on a root that cannot be written', async () => {
      const securityContext = {
        runAsUser: { value: 1234 },
        runAsGroup: { value: 7 },
        supplementalGroups: [9],
        readonlyRootfs: true,
        noNewPrivs: true,
        capabilities: { dropCapabilities: ['ALL'] },
        seccomp: { profileType: 'RuntimeDefault' },
      }
      const script = 'id; echo x > /y; cat /proc/self/status; exec sleep 1000'
      const id = await rig.run(pod, 'weak', ['sh', '-c', script], { linux: { securityContext } })
      await waitFor('its status', () => rig.log('weak').includes('Seccomp_filters'))
      const said = rig.log('weak')
      assert.match(said, /uid=1234.* gid=7.* groups=.*9/)
      assert.match(said, /Read-only file system/)
      assert.match(said, /CapEff:\s+0{16}\n/)
      assert.match(said, /NoNewPrivs:\s+1\n/)
      assert.match(said, /Seccomp:\s+2\n/)
      const { user } = await rig.status(id)
      assert.deepEqual(user, { linux: { uid: '1234', gid: '7', supplementalGroups: ['9'] } })
    })

    test('execs as the user and in the directory of the container', async () => {
      const linux = { securityContext: { runAsUser: { value: 1234 } } }
      const id = await rig.run(pod, 'other-user', ['sleep', '1000'], { linux, workingDir: '/tmp' })
      assert.match((await rig.exec(id, 'sh', '-c', 'id -u; pwd')).out, /^1234\n\/tmp\n$/)
    })

    test('limits memory, tells a victim of it from one killed by hand, and counts the monitor apart', async () => {
      const linux = { resources: { memoryLimitInBytes: 32 * 1024 * 1024 } }
      const greedy = await rig.run(pod, 'greedy', ['sh', '-c', 'tail /dev/zero'], { linux })
      const victim = await rig.becomes(greedy, 'CONTAINER_EXITED', 30_000)
      const killed = await rig.run(pod, 'killed', ['sleep', '1000'], { linux })
      await rig.call('StopContainer', { containerId: killed, timeout: 0 })
      const byHand = await rig.becomes(killed, 'CONTAINER_EXITED')
      assert.deepEqual([victim['exitCode'], victim['reason']], [137, 'OOMKilled'])
      assert.deepEqual([byHand['exitCode'], byHand['reason']], [137, 'Error'])
      const keeper = await rig.monitorPid(pod)
      assert.match(
        readFileSync(`/proc/${keeper}/cgroup`, 'utf8'),
        new RegExp(`memory:/holdfast/${pod}-monitor|0::/holdfast/${pod}-monitor`),
      )
    })

    test('stops with the signal that was asked for, and with SIGKILL when that does not help', async () => {
      const loop = (trap: string): string[] => [
        'sh',
        '-c',
        `${trap}; echo ready; while true; do sleep 0.1; done`,
      ]
      const polite = await rig.run(pod, 'polite', loop('trap "exit 7" TERM'))
      const quitting = await rig.run(pod, 'quitting', loop('trap "exit 8" QUIT; trap "" TERM'), {
        stopSignal: 'SIGNAL_SIGQUIT',
      })
      const deaf = await rig.run(pod, 'deaf', loop('trap "" TERM'))
      await waitFor('three loops', () =>
        ['polite', 'quitting', 'deaf'].every((name) => rig.log(name).includes('ready')),
      )
      await rig.call('StopContainer', { containerId: polite, timeout: 20 })
      await rig.call('StopContainer', { containerId: quitting, timeout: 20 })
      await rig.call('StopContainer', { containerId: deaf, timeout: 1 })
      const codes = await Promise.all(
        [polite, quitting, deaf].map(async (id) => (await rig.status(id))['exitCode']),
      )
      assert.deepEqual(codes, [7, 8, 137])
      await rig.call('StopContainer', { containerId: deaf, timeout: 1 })
    })

    test('execSync: kills the whole tree of a command that takes too long', async () => {
      const id = await rig.run(pod, 'slow', ['sleep', '5000'])
      const script = 'trap "" TERM; (sleep 1000 & sleep 1001); setsid sleep 1003 & sleep 1002'
      await assert.rejects(rig.call('ExecSync', { containerId: id, cmd: ['sh', '-c', script], timeout: 1 }), {
        code: grpcStatus.DEADLINE_EXCEEDED,
        details: `exec in container ${id}: the command timed out after 1 s and was killed`,
      })
      assert.equal((await rig.exec(id, 'sh', '-c', 'ps -o args | grep -c "^sleep"')).out.trim(), '1')
    })

    test('execSync: kills the command when its client gives up', async () => {
      const id = await rig.run(pod, 'given-up', ['sleep', '5000'])
      const deadline = new Date(Date.now() + 1500)
      const request = { containerId: id, cmd: ['sleep', '1000'] }
      await assert.rejects(rig.call('ExecSync', request, { deadline }), {
        code: grpcStatus.DEADLINE_EXCEEDED,
      })
      let left = ''
      for (let i = 0; i < 15 && left !== '1'; i++)
        left = (await rig.exec(id, 'sh', '-c', 'ps -o args | grep -c "^sleep"')).out.trim()
      assert.equal(left, '1')
    })

    test('execSync: answers with what fits when a command says too much', async () => {
      const id = await rig.run(pod, 'talker', ['sleep', '1000'])
      const script = 'head -c 20000000 /dev/zero; head -c 17000000 /dev/zero >&2; echo end >&2; exit 5'
      const answer = await rig.call('ExecSync', { containerId: id, cmd: ['sh', '-c', script] })
      const { stdout, stderr } = answer
      assert.equal(answer.exitCode, 5)
      assert.ok(stdout.length + stderr.length > 16_000_000)
    })

    test('reports a program that is not there, and leaves nothing of its container', async () => {
      const error = await rig.create(pod, 'absent', ['/no/such']).catch((reason: unknown) => reason)
      assert.match((error as Error).message, /create container absent: .*no such file/i)
      assert.ok(!readdirSync(join(rig.podDirectory(pod), 'bundles')).includes('absent'))
      const { containers } = await rig.call('ListContainers', {})
      assert.ok(!containers.some(({ metadata }) => metadata.name === 'absent'))
    })

    test('refuses what makes no sense, and names it', async () => {
      const id = await rig.run(pod, 'taken', ['sleep', '1000'])
      const cases: [string, object, grpcStatus, RegExp][] = [
        [
          'StartContainer',
          { containerId: id },
          grpcStatus.FAILED_PRECONDITION,
          /it is not created but running/,
        ],
        ['StartContainer', { containerId: 'ffff' }, grpcStatus.NOT_FOUND, /container ffff not found/],
        [
          'ContainerStatus',
          { containerId: '' },
          grpcStatus.INVALID_ARGUMENT,
          /missing required container_id/,
        ],
        ['RunPodSandbox', {}, grpcStatus.INVALID_ARGUMENT, /missing required config/],
        ['RunPodSandbox', { config: {} }, grpcStatus.INVALID_ARGUMENT, /metadata.name/],
        [
          'CreateContainer',
          { podSandboxId: pod, config: { metadata: { name: 'x' } } },
          grpcStatus.INVALID_ARGUMENT,
          /image name/,
        ],
        ['ReopenContainerLog', { containerId: 'ffff' }, grpcStatus.NOT_FOUND, /ffff/],
        ['PullImage', { image: { image: 'nginx' } }, grpcStatus.NOT_FOUND, /image nginx not found/],
      ]
      for (const [method, request, code, details] of cases) {
        await assert.rejects(rig.call(method, request), { code, details }, method)
      }
      await assert.rejects(rig.runPod('pod'), { code: grpcStatus.ALREADY_EXISTS, details: /has this name/ })
      await assert.rejects(rig.create(pod, 'taken', ['true']), { code: grpcStatus.ALREADY_EXISTS })
      await assert.rejects(rig.create(pod, 'x', ['true'], { logPath: '../../x' }), {
        details: /leaves the pod's log directory/,
      })
      await assert.rejects(rig.create(pod, 'x', ['true'], { image: { image: 'nginx' } }), {
        details: /image nginx not found/,
      })
      await assert.rejects(rig.runPod('ports', { portMappings: [{ hostPort: 80 }] }), {
        code: grpcStatus.UNIMPLEMENTED,
      })
      await assert.rejects(rig.runPod('named', { hostname: 'a b' }), { details: /hostname "a b"/ })
    })

    test('moves a log away and goes on with a new one', async () => {
      const id = await rig.run(pod, 'logger', ['sh', '-c', 'while true; do echo tick; sleep 0.05; done'])
      await waitFor('a line', () => rig.log('logger').includes('tick'))
      const path = join(rig.directory, 'logs/logger.log')
      renameSync(path, `${path}.1`)
      await rig.call('ReopenContainerLog', { containerId: id })
      assert.ok(existsSync(path))
      await waitFor('a line in the new log', () => rig.log('logger').includes('tick'))
    })

    test('removes containers and pods, more than once, with their cgroups', async () => {
      const other = await rig.runPod('other')
      const id = await rig.run(other, 'app', ['sleep', '1000'])
      await rig.call('RemoveContainer', { containerId: id })
      await rig.call('RemoveContainer', { containerId: id })
      await rig.call('StopContainer', { containerId: id, timeout: 1 })
      await assert.rejects(rig.status(id), { code: grpcStatus.NOT_FOUND })
      await rig.run(other, 'app', ['sleep', '1000'])
      await rig.call('StopPodSandbox', { podSandboxId: other })
      await rig.call('StopPodSandbox', { podSandboxId: other })
      const { status } = await rig.call('PodSandboxStatus', { podSandboxId: other })
      assert.equal(status['state'], 'SANDBOX_NOTREADY')
      await assert.rejects(rig.create(other, 'late', ['true']), { code: grpcStatus.FAILED_PRECONDITION })
      await rig.call('RemovePodSandbox', { podSandboxId: other })
      await rig.call('RemovePodSandbox', { podSandboxId: other })
      assert.equal(existsSync(rig.podDirectory(other)), false)
      assert.deepEqual(cgroupsNaming(other), [])
    })

    test("shares the host's network when the pod asks for it", async () => {
      const linux = { securityContext: { namespaceOptions: { network: 'NODE' } } }
      const host = await rig.runPod('host', { linux })
      const id = await rig.run(host, 'app', ['sleep', '1000'], { linux })
      assert.equal(
        (await rig.exec(id, 'readlink', '/proc/self/ns/net')).out.trim(),
        readlinkSync('/proc/self/ns/net'),
      )
      assert.equal((await rig.exec(id, 'hostname')).out, readFileSync('/proc/sys/kernel/hostname', 'utf8'))
      await rig.call('RemovePodSandbox', { podSandboxId: host })
    })
  })
}
