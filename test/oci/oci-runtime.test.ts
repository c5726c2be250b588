import assert from 'node:assert/strict'
import { describe, test } from 'node:test'
import { OciRuntime } from '../../src/oci/oci-runtime.ts'
import { checkLeaks } from '../support/leak-check.ts'

checkLeaks()

const create = {
  id: 'c1',
  bundlePath: '/b',
  pidFile: '/b/pidfile',
  consoleSocket: undefined,
  systemdCgroup: false,
  globalArgs: [],
  commandArgs: [],
}

describe('the command lines', () => {
  test("of a create carry root, cgroup manager, and the caller's own arguments in their places", () => {
    const runtime = new OciRuntime({ path: '/usr/sbin/runc', root: '/r', launcher: '/m' })
    assert.equal(
      runtime
        .createArgs({
          ...create,
          systemdCgroup: true,
          globalArgs: ['--debug'],
          commandArgs: ['--no-pivot'],
          consoleSocket: '/s',
        })
        .join(' '),
      '--root=/r --systemd-cgroup --debug create --bundle /b --pid-file /b/pidfile --no-pivot --console-socket=/s c1',
    )
  })

  test('leave out what is not asked for', () => {
    const runtime = new OciRuntime({ path: '/usr/bin/crun', root: undefined, launcher: '/m' })
    assert.equal(runtime.createArgs(create).join(' '), 'create --bundle /b --pid-file /b/pidfile c1')
  })

  test('of an exec name a process file, with a terminal and without', () => {
    const runtime = new OciRuntime({ path: '/usr/bin/crun', root: '/r', launcher: '/m' })
    const args = { id: 'c1', processFile: '/p.json', pidFile: '/p', systemdCgroup: false }
    assert.equal(
      runtime.execArgs({ ...args, consoleSocket: '/s' }).join(' '),
      '--root=/r exec -d --process=/p.json --console-socket=/s --pid-file=/p c1',
    )
    assert.equal(
      runtime.execArgs({ ...args, consoleSocket: undefined }).join(' '),
      '--root=/r exec -d --process=/p.json --pid-file=/p c1',
    )
  })
})
