// The beginning and the hard end of a monitor: it accepts calls when its launcher returns; killed as a whole or its server
// alone, its clients get errors, nothing hangs, and another one can take its place.

import assert from 'node:assert/strict'
import { mkdirSync, mkdtempSync, rmSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { describe, test } from 'node:test'
import { MonitorClient } from '../../src/client/monitor-client.ts'
import { startMonitor } from '../../src/client/monitor-process.ts'
import { ForwardClient } from '../support/forward-client.ts'
import { PodServers } from '../support/pod-servers.ts'
import { openAttach, openExec } from '../support/rig-sessions.ts'
import { Rig, isRunning, monitorBinary, waitFor } from '../support/rig.ts'
import { transports } from '../support/session-client.ts'

describe('a monitor', () => {
  test('accepts calls when its launcher returns, also on a busy machine (M14)', async () => {
    const directory = mkdtempSync(join(tmpdir(), 'holdfast-launch-'))
    try {
      for (let round = 0; round < 3; round++) {
        const starts = Array.from({ length: 5 }, async (_, i) => {
          const runtimeDir = join(directory, `${round}-${i}`)
          const { pid } = await startMonitor({
            monitorPath: monitorBinary,
            runtimePath: '/bin/true',
            runtimeDir,
          })
          const client = await MonitorClient.connect(join(runtimeDir, 'conmon.sock'))
          assert.equal((await client.version()).processId, pid)
          client.close()
          return pid
        })
        const pids = await Promise.all(starts)
        for (const pid of pids) process.kill(pid, 'SIGTERM')
        await waitFor('them to end', () => !pids.some(isRunning))
      }
    } finally {
      rmSync(directory, { recursive: true })
    }
  })

  test('killed with its sessions ends them as failures, and another one takes its place (B29, B51)', async () => {
    const rig = await Rig.start('runc')
    try {
      await rig.run({ id: 'main', args: ['cat'], stdin: true })
      const command = ['sh', '-c', 'echo ready; cat; sleep 4002']
      const sessions = await Promise.all(
        transports.flatMap((transport) => [
          openExec(rig, { id: 'main', command, transport, stdin: true }),
          openExec(rig, { id: 'main', command, transport, stdin: true, tty: true }),
        ]),
      )
      for (const session of sessions) await session.until('ready')
      const attached = await openAttach(rig, { id: 'main', transport: 'spdy' })
      process.kill(rig.keeperPid, 'SIGKILL')
      for (const session of [...sessions, attached]) {
        const end = await session.ended
        assert.ok('failure' in end, `a cut session is a failure, not ${JSON.stringify(end)}`)
      }
      await assert.rejects(rig.client.version())
      // The container ends, as with conmon: its stdin has ended.
      await waitFor('the server to end', () => rigProcesses(rig).every((pid) => !isRunning(pid)))
      const runtimeDir = join(rig.directory, 'run')
      const next = await startMonitor({
        monitorPath: monitorBinary,
        runtimePath: rig.runtimePath,
        runtimeDir,
      })
      const client = await MonitorClient.connect(join(runtimeDir, 'conmon.sock'))
      assert.deepEqual(await client.listContainers(), [])
      client.close()
      process.kill(next.pid, 'SIGTERM')
      await waitFor('it to end', () => !isRunning(next.pid))
    } finally {
      await rig.close()
    }
  })

  test('whose server is killed loses its port-forwards, and forwards again at once (B51)', async () => {
    const rig = await Rig.start('crun')
    const basePath = join(rig.directory, 'ns')
    mkdirSync(basePath)
    let servers: PodServers | undefined
    try {
      const paths = await rig.client.createNamespaces({ podId: 'pod1', namespaces: ['net'], basePath })
      const netnsPath = paths.find(({ type }) => type === 'net')?.path ?? ''
      servers = await PodServers.start(netnsPath, [{ port: 80, does: 'echo' }])
      for (let i = 0; i < 2; i++) {
        const client = await ForwardClient.open(
          await rig.client.servePortForward({ podSandboxId: 'pod1', netnsPath }),
        )
        const connection = await client.connect(80)
        connection.send('hello')
        await waitFor('the echo', () => connection.received.length === 5)
        if (i === 0) {
          await rig.killServer()
          assert.equal(await connection.ended, 'session over')
        } else connection.end()
        client.close()
        await client.closed
      }
    } finally {
      await servers?.close()
      await rig.close()
    }
  })
})

/** The server, while the keeper is there to name it. */
function rigProcesses(rig: Rig): number[] {
  try {
    return [rig.keeperPid, rig.serverPid()].filter((pid) => pid > 0)
  } catch {
    return []
  }
}
