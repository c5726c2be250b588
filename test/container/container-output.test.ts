import assert from 'node:assert/strict'
import { closeSync } from 'node:fs'
import { describe, test } from 'node:test'
import { Diagnostics } from '../../src/base/diagnostics.ts'
import { MonitorError } from '../../src/base/errors.ts'
import { ContainerOutput } from '../../src/container/container-output.ts'
import { LogReport } from '../../src/container/log-report.ts'
import type { PumpState, StreamState } from '../../src/keeper/channel-messages.ts'
import { dupCloexec, shutdown, write } from '../../src/native/addon.ts'
import { checkLeaks } from '../support/leak-check.ts'
import { StubKeeper } from '../support/stub-keeper.ts'
import { TestSink } from '../support/test-sinks.ts'

checkLeaks()

const open: StreamState = {
  bytes: 0,
  open: true,
  ended: false,
  copying: false,
  copyFrom: 0,
  lostAt: undefined,
}
const ended: StreamState = { ...open, open: false, ended: true }

function stateOf(stdout: StreamState): PumpState {
  const streams = [stdout, ended] as const
  return { generation: 0, errno: 0, size: 0, limit: 0, dropped: 0, inode: 0, device: 0, streams }
}

/** A container's stdout whose copy the test writes. */
class Stdout {
  readonly keeper = new StubKeeper()
  readonly output: ContainerOutput
  copyFd: number | undefined

  constructor() {
    const log = new LogReport(new Diagnostics(() => undefined), 'c1', '')
    this.output = new ContainerOutput(this.keeper.client, 'container/c1/io', {
      log,
      logInode: 0,
      state: stateOf(open),
    })
    this.keeper.onCopy = (_stream, fd) => {
      if (fd !== undefined) this.copyFd = dupCloexec(fd)
    }
  }

  /** Attaches a client: `ended`, or why it was dropped. */
  attach(sink: TestSink): Promise<string> {
    return new Promise((resolve, reject) => {
      const events = {
        ended: () => resolve('ended'),
        dropped: (error: MonitorError) => resolve(error.message),
      }
      this.output.add(0, sink, events).catch(reject)
    })
  }

  endCopy(): void {
    shutdown(this.copyFd!)
    closeSync(this.copyFd!)
  }
}

const turn = (): Promise<void> => new Promise((resolve) => setImmediate(resolve))

describe('the output of a container that ends', () => {
  test('reaches a slow client to its last byte', async () => {
    const stdout = new Stdout()
    const sink = new TestSink(true)
    const end = stdout.attach(sink)
    await turn()
    write(stdout.copyFd!, Buffer.from('first'))
    await sink.until(5)
    write(stdout.copyFd!, Buffer.from('last'))
    stdout.endCopy()
    stdout.output.update(stateOf({ ...ended, bytes: 9 }))
    await stdout.output.ended
    stdout.output.finish()
    const delivered = stdout.output.delivered()
    await turn()
    assert.equal(sink.bytes.toString(), 'first')
    sink.keeping = false
    sink.drain()
    assert.equal(await end, 'ended')
    await delivered
    assert.equal(sink.bytes.toString(), 'firstlast')
    assert.deepEqual(stdout.keeper.asked, ['copy container/c1/io 0'])
  })

  test('is no success for a client whose copy was given up', async () => {
    const stdout = new Stdout()
    const end = stdout.attach(new TestSink())
    await turn()
    stdout.output.update(stateOf({ ...ended, bytes: 9, lostAt: 4 }))
    stdout.output.finish()
    stdout.endCopy()
    assert.match(await end, /output from byte 4 on \(5 bytes so far\) is in the log only/)
  })

  test('ends a client that comes while it ends', async () => {
    const stdout = new Stdout()
    stdout.keeper.onCopy = (_stream, fd) => {
      shutdown(fd!)
      stdout.output.update(stateOf(ended))
      stdout.output.finish()
    }
    assert.equal(await stdout.attach(new TestSink()), 'ended')
  })

  test('ends a client that comes before the news of the end', async () => {
    const stdout = new Stdout()
    stdout.keeper.refused.set('copy', new MonitorError('failed-precondition', 'copy: ESHUTDOWN'))
    const sink = new TestSink()
    assert.equal(await stdout.attach(sink), 'ended')
    assert.equal(sink.ends, 1)
  })
})

describe('a copy', () => {
  test('that cannot be made fails every client that waits for it', async () => {
    const stdout = new Stdout()
    stdout.keeper.refused.set('copy', new MonitorError('resource-exhausted', 'copy: ENOSPC'))
    const clients = [stdout.attach(new TestSink()), stdout.attach(new TestSink())]
    for (const client of clients) await assert.rejects(client, { code: 'resource-exhausted' })
  })

  test('ends with its last client, also when that was dropped', async () => {
    const stdout = new Stdout()
    const sink = new TestSink(true)
    const end = stdout.attach(sink)
    await turn()
    while (sink.length < 2 ** 20) {
      write(stdout.copyFd!, Buffer.alloc(65_536))
      await turn()
    }
    assert.match(await end, /did not read its output/)
    assert.deepEqual(stdout.keeper.asked, ['copy container/c1/io 0', 'end copy container/c1/io 0'])
    stdout.endCopy()
  })
})
