import assert from 'node:assert/strict'
import { mkdir, mkdtemp, readdir, rm, writeFile } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { dirname, join } from 'node:path'
import { after, before, describe, test } from 'node:test'
import { MonitorError } from '../../src/base/errors.ts'
import { findContainer, findPod, readPods } from '../../src/client/pod-lookup.ts'
import { readPodRecord, StatePaths, writeRecord } from '../../src/client/pod-state.ts'
import type { ContainerRecord, PodRecord } from '../../src/client/pod-state.ts'
import { checkLeaks } from '../support/leak-check.ts'

checkLeaks()

let root = ''
let paths: StatePaths

before(async () => {
  root = await mkdtemp(join(tmpdir(), 'holdfast-state-'))
  paths = new StatePaths(root)
})
after(async () => {
  await rm(root, { recursive: true, force: true })
})

function pod(id: string, changes: Partial<PodRecord> = {}): PodRecord {
  return {
    version: 1,
    id,
    name: `pod-${id}`,
    namespace: 'default',
    uid: 'u',
    attempt: 0,
    createdAt: '1',
    state: 'ready',
    reason: '',
    monitorPid: 1,
    monitorStartTime: '1',
    namespaces: {},
    logDirectory: '',
    runtimeHandler: '',
    config: {},
    ...changes,
  }
}

function container(
  id: string,
  podSandboxId: string,
  changes: Partial<ContainerRecord> = {},
): ContainerRecord {
  return {
    version: 1,
    id,
    podSandboxId,
    name: 'app',
    attempt: 0,
    createdAt: '1',
    startedAt: '0',
    finishedAt: '0',
    state: 'running',
    exitCode: 0,
    reason: '',
    message: '',
    pid: 1,
    terminal: false,
    stdin: false,
    stdinOnce: false,
    logPath: '',
    image: 'busybox',
    imageId: 'sha256:0',
    cgroupsPath: '',
    user: { uid: 0, gid: 0, additionalGids: [] },
    config: {},
    ...changes,
  }
}

describe('records', () => {
  test('come back as they were written, and leave no temporary file', async () => {
    const path = join(root, 'a', 'pod.json')
    await writeRecord(path, pod('one'))
    await writeRecord(path, pod('one', { state: 'stopped' }))
    assert.deepEqual(await readPodRecord(path), { kind: 'record', record: pod('one', { state: 'stopped' }) })
    assert.deepEqual(await readdir(dirname(path)), ['pod.json'])
  })

  const bad: { name: string; text: string; expected: object }[] = [
    { name: 'an empty file', text: '', expected: { kind: 'bad' } },
    { name: 'half a file', text: '{"version":1,"id":"a"', expected: { kind: 'bad' } },
    { name: 'a list', text: '[]', expected: { kind: 'bad', reason: 'no version' } },
    { name: 'null', text: 'null', expected: { kind: 'bad', reason: 'not a JSON object' } },
    { name: 'no version', text: '{"id":"a"}', expected: { kind: 'bad', reason: 'no version' } },
    {
      name: 'a field of another type',
      text: '{"version":1,"id":7}',
      expected: { kind: 'bad', reason: 'id is not of type string' },
    },
    { name: 'a newer version', text: '{"version":2}', expected: { kind: 'newer', version: 2 } },
  ]
  for (const { name, text, expected } of bad) {
    test(`are told apart from ${name}`, async () => {
      const path = join(root, 'bad.json')
      await writeFile(path, text)
      const found = await readPodRecord(path)
      assert.deepEqual({ ...found, ...expected }, found)
    })
  }

  test('that are not there are absent', async () => {
    assert.deepEqual(await readPodRecord(join(root, 'none', 'pod.json')), { kind: 'absent' })
  })
})

describe('looking up', () => {
  before(async () => {
    for (const id of ['abc1', 'abd2']) await writeRecord(paths.pod(id).record, pod(id))
    await writeRecord(paths.pod('abc1').container('c111').record, container('c111', 'abc1'))
    await writeRecord(
      paths.pod('abc1').container('c112').record,
      container('c112', 'abc1', { createdAt: '9' }),
    )
    await writeRecord(paths.pod('abd2').container('d1').record, container('d1', 'abd2', { name: 'web' }))
    await mkdir(paths.pod('broken').directory, { recursive: true })
    await writeFile(paths.pod('broken').record, 'x')
  })

  test('leaves out what cannot be read', async () => {
    assert.deepEqual((await readPods(paths)).map((one) => one.pod.id).toSorted(), ['abc1', 'abd2'])
  })

  const found: [string, string][] = [
    ['d1', 'd1'],
    ['d', 'd1'],
    ['web', 'd1'],
    ['app', 'c112'],
    ['c111', 'c111'],
  ]
  for (const [wanted, id] of found) {
    test(`finds the container ${id} by ${wanted}`, async () => {
      assert.equal((await findContainer(paths, wanted)).container.id, id)
    })
  }

  test('finds a pod by name or the beginning of its id', async () => {
    assert.equal((await findPod(paths, 'pod-abc1')).pod.id, 'abc1')
    assert.equal((await findPod(paths, 'abd')).pod.id, 'abd2')
  })

  const refused: [string, string, RegExp][] = [
    ['nothing by that name', 'zzz', /^container zzz not found$/],
    ['the beginning of several ids', 'c11', /^container c11 is ambiguous/],
    ['no name at all', '', /^missing required container id or name$/],
  ]
  for (const [name, wanted, message] of refused) {
    test(`refuses ${name}`, async () => {
      await assert.rejects(
        findContainer(paths, wanted),
        (error) => error instanceof MonitorError && message.test(error.message),
      )
    })
  }
})
