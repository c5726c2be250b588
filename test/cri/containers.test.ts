import assert from 'node:assert/strict'
import { mkdir, mkdtemp, readFile, rename, rm, writeFile } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { after, before, beforeEach, describe, test } from 'node:test'
import { Diagnostics } from '../../src/base/diagnostics.ts'
import { readContainerRecord } from '../../src/client/pod-state.ts'
import { signalNumber } from '../../src/cri/container-lifecycle.ts'
import { ExitWatch } from '../../src/cri/exit-watch.ts'
import type { Pod } from '../../src/cri/pod.ts'
import { Registry } from '../../src/cri/registry.ts'
import { containerStatus, matchesContainer, matchesPod, podStatus } from '../../src/cri/status-messages.ts'
import { StreamCalls } from '../../src/cri/stream-calls.ts'
import { fromMilliseconds, now } from '../../src/cri/time.ts'
import { checkLeaks } from '../support/leak-check.ts'
import { containerConfig, podConfig, testContainer, testPod } from './cri-values.ts'

checkLeaks()

let root = ''
before(async () => {
  root = await mkdtemp(join(tmpdir(), 'holdfast-containers-'))
})
after(async () => {
  await rm(root, { recursive: true, force: true })
})

describe('the record of a container', () => {
  test('keeps the last of many changes', async () => {
    const container = testContainer(testPod(root, { id: 'writes' }), 'c')
    await Promise.all(
      Array.from({ length: 20 }, async (_, i) => await container.update({ message: String(i) })),
    )
    const found = await readContainerRecord(container.paths.record)
    assert.equal(found.kind === 'record' && found.record.message, '19')
  })

  test('keeps the first report of an exit', async () => {
    const container = testContainer(testPod(root, { id: 'exits' }), 'c')
    await container.markExited(7, '5', { reason: 'Error', message: '' })
    await container.markExited(255, '6', { reason: 'MonitorLost', message: '' })
    await container.exited
    assert.deepEqual([container.record.exitCode, container.record.reason], [7, 'Error'])
  })

  test('stays exited when the start is noted after the exit', async () => {
    const container = testContainer(testPod(root, { id: 'races' }), 'c', { state: 'created' })
    await container.markExited(0, '9', { reason: 'Completed', message: '' })
    await container.markStarted('3')
    assert.deepEqual([container.record.state, container.record.startedAt], ['exited', '3'])
  })

  test('is told where only a running one will do', () => {
    const container = testContainer(testPod(root), 'c', { state: 'created' })
    assert.throws(() => container.requireRunning('exec in'), {
      code: 'failed-precondition',
      message: 'exec in container c: it is not running but created',
    })
  })
})

describe('the exit watch', () => {
  let pod: Pod
  let watch: ExitWatch
  let turn = 0
  beforeEach(async () => {
    pod = testPod(root, { id: `watch${turn++}` })
    watch = new ExitWatch(new Diagnostics(() => undefined, 'off'))
    for (const path of [pod.paths.exits, pod.paths.ooms]) await mkdir(path, { recursive: true })
  })

  async function report(id: string, code: string): Promise<void> {
    const { exitFile } = pod.paths.container(id)
    await writeFile(`${exitFile}.new`, code)
    await rename(`${exitFile}.new`, exitFile)
  }

  test('notices an exit when its file appears', async () => {
    const container = testContainer(pod, 'c')
    watch.add(pod)
    await report('c', '42')
    await container.exited
    watch.close()
    assert.deepEqual([container.record.exitCode, container.record.reason], [42, 'Error'])
  })

  test('finds exits that happened before', async () => {
    const [over, running] = [testContainer(pod, 'over'), testContainer(pod, 'running')]
    await report('over', '0')
    await watch.scan(pod)
    assert.deepEqual([over.record.state, over.record.reason], ['exited', 'Completed'])
    assert.equal(running.record.state, 'running')
  })

  const reasons: { name: string; code: string; oom: boolean; reason: string }[] = [
    { name: 'killed for want of memory', code: '137', oom: true, reason: 'OOMKilled' },
    { name: 'killed by hand', code: '137', oom: false, reason: 'Error' },
    {
      name: 'fine although a child was killed for want of memory',
      code: '0',
      oom: true,
      reason: 'Completed',
    },
    { name: 'failed after a child was killed for want of memory', code: '1', oom: true, reason: 'Error' },
  ]
  for (const { name, code, oom, reason } of reasons) {
    test(`tells one that was ${name}`, async () => {
      const container = testContainer(pod, 'c')
      if (oom) await writeFile(container.paths.oomFile, '')
      await report('c', code)
      await watch.scan(pod)
      assert.equal(container.record.reason, reason)
    })
  }

  for (const text of ['', 'x', '-1', '1\n']) {
    test(`waits when the file holds ${JSON.stringify(text)}`, async () => {
      const container = testContainer(pod, 'c')
      await report('c', text)
      await watch.scan(pod)
      assert.equal(container.isOver, false)
    })
  }
})

describe('looking up', () => {
  const registry = new Registry()
  before(() => {
    const pod = testPod(root, { id: 'aa11', config: podConfig({ labels: { app: 'x' } }) })
    registry.add(pod)
    registry.add(testPod(root, { id: 'aa22', state: 'stopped' }))
    registry.add(testPod(root, { id: 'bb', state: 'creating' }))
    testContainer(pod, 'c1', { config: containerConfig({ labels: { app: 'x' } }) })
    testContainer(pod, 'c2', { state: 'exited' })
    testContainer(pod, 'd', { state: 'creating' })
  })

  test('finds by the beginning of an id', () => {
    assert.equal(registry.pod('aa1').id, 'aa11')
    assert.equal(registry.member('c2').container.id, 'c2')
  })

  const failing: [string, () => unknown, string, RegExp][] = [
    ['an unknown pod', () => registry.pod('zz'), 'not-found', /^pod zz not found$/],
    ['an unknown container', () => registry.member('zz'), 'not-found', /^container zz not found$/],
    ['what several begin with', () => registry.pod('aa'), 'invalid-argument', /^pod aa is ambiguous/],
    ['no pod id', () => registry.pod(''), 'invalid-argument', /^missing required pod_sandbox_id$/],
    ['no container id', () => registry.member(''), 'invalid-argument', /^missing required container_id$/],
    ['a pod that is not finished', () => registry.pod('bb'), 'not-found', /^pod bb not found$/],
    ['a container that is not finished', () => registry.member('d'), 'not-found', /^container d not found$/],
  ]
  for (const [name, find, code, message] of failing) {
    test(`refuses ${name}`, () => {
      assert.throws(find, { code, message })
    })
  }

  test('filters pods', () => {
    const filter = { id: '', state: null, labelSelector: {} }
    const ids = (changes: object): string[] =>
      registry
        .pods()
        .filter((pod) => matchesPod(pod, { ...filter, ...changes }))
        .map(({ id }) => id)
    assert.deepEqual(ids({}), ['aa11', 'aa22'])
    assert.deepEqual(ids({ id: 'aa1' }), ['aa11'])
    assert.deepEqual(ids({ state: { state: 'SANDBOX_NOTREADY' } }), ['aa22'])
    assert.deepEqual(ids({ labelSelector: { app: 'x' } }), ['aa11'])
    assert.deepEqual(ids({ labelSelector: { app: 'y' } }), [])
  })

  test('filters containers', () => {
    const filter = { id: '', podSandboxId: '', state: null, labelSelector: {} }
    const ids = (changes: object): string[] =>
      registry
        .members()
        .filter((member) => matchesContainer(member, { ...filter, ...changes }))
        .map(({ container }) => container.id)
    assert.deepEqual(ids({}), ['c1', 'c2'])
    assert.deepEqual(ids({ id: 'c1' }), ['c1'])
    assert.deepEqual(ids({ podSandboxId: 'aa2' }), [])
    assert.deepEqual(ids({ state: { state: 'CONTAINER_EXITED' } }), ['c2'])
    assert.deepEqual(ids({ labelSelector: { app: 'x' } }), ['c1'])
  })

  test('shows what clients insist on', () => {
    const status = containerStatus(registry.member('c1'))
    assert.ok(
      status.id && status.metadata.name && status.createdAt !== '0' && status.image.image && status.imageRef,
    )
    const { network, state } = podStatus(registry.pod('aa1'))
    assert.deepEqual([network.ip, state], ['', 'SANDBOX_READY'])
  })
})

describe('streams', () => {
  const registry = new Registry()
  const calls = new StreamCalls(registry)
  const flags = { containerId: 'run', tty: false, stdin: false, stdout: true, stderr: false }
  const gone = new AbortController().signal
  before(() => {
    const pod = testPod(root, { id: 'ready' })
    registry.add(pod)
    registry.add(testPod(root, { id: 'stopped', state: 'stopped', reason: 'why' }))
    testContainer(pod, 'run')
    testContainer(pod, 'over', { state: 'exited' })
    testContainer(pod, 'term', { terminal: true })
  })

  const cases: { name: string; call: () => Promise<unknown>; code: string; message: string | RegExp }[] = [
    {
      name: 'exec without a container',
      call: async () => await calls.exec({ ...flags, containerId: '', stdout: false, cmd: [] }),
      code: 'invalid-argument',
      message: 'missing required container_id',
    },
    {
      name: 'exec with a terminal and stderr',
      call: async () => await calls.exec({ ...flags, containerId: 'x', tty: true, stderr: true, cmd: ['a'] }),
      code: 'invalid-argument',
      message: 'tty and stderr cannot both be true',
    },
    {
      name: 'exec without a stream',
      call: async () => await calls.exec({ ...flags, containerId: 'x', stdout: false, cmd: ['a'] }),
      code: 'invalid-argument',
      message: 'one of stdin, stdout, or stderr must be set',
    },
    {
      name: 'exec in an unknown container',
      call: async () => await calls.exec({ ...flags, containerId: 'x', cmd: ['a'] }),
      code: 'not-found',
      message: 'container x not found',
    },
    {
      name: 'exec in one that is over',
      call: async () => await calls.exec({ ...flags, containerId: 'over', cmd: ['a'] }),
      code: 'failed-precondition',
      message: 'exec in container over: it is not running but exited',
    },
    {
      name: 'exec of nothing',
      call: async () => await calls.exec({ ...flags, cmd: [] }),
      code: 'invalid-argument',
      message: 'exec in container run: missing required cmd',
    },
    {
      name: 'exec while the monitor is gone',
      call: async () => await calls.exec({ ...flags, cmd: ['a'] }),
      code: 'unavailable',
      message: /^pod ready: connect to monitor/,
    },
    {
      name: 'attach without a container',
      call: async () => await calls.attach({ ...flags, containerId: '' }),
      code: 'invalid-argument',
      message: 'missing required container_id',
    },
    {
      name: 'attach with a terminal and stderr',
      call: async () => await calls.attach({ ...flags, tty: true, stderr: true }),
      code: 'invalid-argument',
      message: 'tty and stderr cannot both be true',
    },
    {
      name: 'attach without a stream',
      call: async () => await calls.attach({ ...flags, stdout: false }),
      code: 'invalid-argument',
      message: 'one of stdin, stdout, and stderr must be set',
    },
    {
      name: 'attach to a terminal as if it had none',
      call: async () => await calls.attach({ ...flags, containerId: 'term' }),
      code: 'invalid-argument',
      message: 'attach to container term: tty is false, but it has a terminal',
    },
    {
      name: 'execSync with a negative limit',
      call: async () => await calls.execSync({ containerId: 'run', cmd: ['a'], timeout: '-1' }, gone),
      code: 'invalid-argument',
      message: 'exec in container run: the timeout is negative',
    },
    {
      name: 'execSync with a zero byte',
      call: async () => await calls.execSync({ containerId: 'run', cmd: ['a\0'], timeout: '0' }, gone),
      code: 'invalid-argument',
      message: 'exec in container run: cmd contains a zero byte',
    },
    {
      name: 'port-forward without a pod',
      call: async () => await calls.portForward({ podSandboxId: '', port: [] }),
      code: 'invalid-argument',
      message: 'missing required pod_sandbox_id',
    },
    {
      name: 'port-forward to an unknown pod',
      call: async () => await calls.portForward({ podSandboxId: 'x', port: [] }),
      code: 'not-found',
      message: 'pod x not found',
    },
    {
      name: 'port-forward to a pod that is not ready',
      call: async () => await calls.portForward({ podSandboxId: 'stopped', port: [] }),
      code: 'failed-precondition',
      message: 'port-forward to pod stopped: it is not ready (why)',
    },
    {
      name: 'port-forward to no port',
      call: async () => await calls.portForward({ podSandboxId: 'ready', port: [0] }),
      code: 'invalid-argument',
      message: 'port-forward to pod ready: 0 is no port',
    },
    {
      name: 'a new log of one that is over',
      call: async () => await calls.reopenLog('over'),
      code: 'failed-precondition',
      message: 'reopen log of container over: it is not running but exited',
    },
  ]
  for (const { name, call, code, message } of cases) {
    test(`refuses ${name}`, async () => {
      await assert.rejects(call(), { code, message })
    })
  }
})

describe('small things', () => {
  test('signals have numbers', () => {
    const names = [
      'SIGTERM',
      '15',
      'SIGKILL',
      'SIGRTMIN',
      'SIGRTMINPLUS3',
      'SIGRTMIN+3',
      'SIGRTMAXMINUS1',
      '',
      'SIGFOO',
    ]
    assert.deepEqual(names.map(signalNumber), [15, 15, 9, 34, 37, 37, 63, undefined, undefined])
  })

  test('times never repeat', () => {
    const times = Array.from({ length: 100 }, now)
    assert.equal(new Set(times).size, 100)
    assert.equal(fromMilliseconds(1.5), '1500000')
  })

  test('a record is only readable for root', async () => {
    const container = testContainer(testPod(root, { id: 'modes' }), 'c')
    await container.save()
    assert.match(await readFile(container.paths.record, 'utf8'), /"version": 1/)
  })
})
