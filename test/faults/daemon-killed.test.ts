// While holdfastd is killed and started again, sessions of every kind move checked bytes both ways: none is lost, no
// session ends, every exit code is right. HOLDFAST_FAULT_MIB sets how much each moves (50), HOLDFAST_FAULT_KILLS how
// often the daemon dies (20).

import assert from 'node:assert/strict'
import { after, before, test } from 'node:test'
import { setTimeout as sleep } from 'node:timers/promises'
import { checkEcho } from '../support/checked-echo.ts'
import { DaemonUnderTest } from '../support/daemon.ts'
import {
  openForward,
  openSession,
  transports,
  type SessionClient,
  type TransportName,
} from '../support/session-client.ts'

const kills = Number(process.env['HOLDFAST_FAULT_KILLS'] ?? 20)
const total = Number(process.env['HOLDFAST_FAULT_MIB'] ?? 50) * 1024 * 1024

let daemon: DaemonUnderTest
let pod: { id: string; config: object }
before(async () => {
  daemon = await DaemonUnderTest.start()
  pod = await daemon.runPod('drill')
})
after(async () => {
  await daemon.stop()
})

test(`20 sessions go on over ${kills} kills of the daemon`, async () => {
  const containerId = await daemon.runContainer(pod, { name: 'main', command: ['sleep', '100000'] })
  await daemon.runContainer(pod, { name: 'echo', command: ['nc', '-ll', '-p', '8080', '-e', 'cat'] })
  const sessions: {
    name: string
    client: SessionClient
    code: number
    endsBy: 'eof' | 'itself' | 'vanishing'
  }[] = []
  for (const transport of transports) {
    for (let i = 0; i < 3; i++) {
      sessions.push({
        name: `pipe ${transport} ${i}`,
        client: await openPipe(containerId, transport),
        code: 7,
        endsBy: 'eof',
      })
      sessions.push({
        name: `tty ${transport} ${i}`,
        client: await openTty(containerId, transport),
        code: 9,
        endsBy: 'itself',
      })
      sessions.push({
        name: `attach ${transport} ${i}`,
        client: await openAttach(transport, i),
        code: 0,
        endsBy: 'eof',
      })
    }
  }
  for (let i = 0; i < 2; i++) {
    const url = await daemon.url('PortForward', { podSandboxId: pod.id, port: [8080] })
    sessions.push({
      name: `port-forward ${i}`,
      client: await openForward(url, 8080),
      code: 0,
      endsBy: 'vanishing',
    })
  }
  assert.equal(sessions.length, 20)

  let killed = 0
  const killing = (async () => {
    for (; killed < kills; killed++) {
      await daemon.restart()
      await sleep(200)
    }
  })()
  const ends = await Promise.all(
    sessions.map(async ({ name, client, code, endsBy }, i) => {
      await checkEcho(client, total, i * 4099).catch((error: unknown) =>
        assert.fail(`${name}: ${String(error)}`),
      )
      if (endsBy === 'eof') client.closeStdin()
      if (endsBy === 'vanishing') {
        client.vanish()
        return
      }
      assert.deepEqual({ name, ...(await client.ended) }, { name, code })
    }),
  )
  await killing
  assert.equal(ends.length, 20)
  assert.equal(killed, kills)
})

async function openPipe(containerId: string, transport: TransportName): Promise<SessionClient> {
  const streams = { stdin: true, stdout: true, stderr: true, tty: false }
  const url = await daemon.url('Exec', { containerId, cmd: ['sh', '-c', 'cat; exit 7'], ...streams })
  return openSession(transport, url, streams)
}

async function openTty(containerId: string, transport: TransportName): Promise<SessionClient> {
  const streams = { stdin: true, stdout: true, stderr: false, tty: true }
  const cmd = ['sh', '-c', `stty raw -echo; echo ready; head -c ${total}; exit 9`]
  const client = await openSession(
    transport,
    await daemon.url('Exec', { containerId, cmd, ...streams }),
    streams,
  )
  await client.until('ready\n')
  return client
}

/** Each has a container of its own: attached clients of one share its input. */
async function openAttach(transport: TransportName, i: number): Promise<SessionClient> {
  const name = `attach-${transport}-${i}`
  const containerId = await daemon.runContainer(pod, {
    name,
    command: ['cat'],
    stdin: true,
    stdinOnce: true,
  })
  const streams = { stdin: true, stdout: true, stderr: true, tty: false }
  return openSession(transport, await daemon.url('Attach', { containerId, ...streams }), streams)
}
