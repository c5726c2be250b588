// A process and its client: real programs on pipes and terminals.

import assert from 'node:assert/strict'
import { spawn } from 'node:child_process'
import { createHash } from 'node:crypto'
import { closeSync, readdirSync } from 'node:fs'
import { performance } from 'node:perf_hooks'
import { describe, test } from 'node:test'
import { pipe2 } from '../../src/native/addon.ts'
import { ProcessStdio } from '../../src/stdio/process-stdio.ts'
import { checkLeaks } from '../support/leak-check.ts'
import { assertSame, emit, pattern } from '../support/pattern.ts'
import { TestClient } from '../support/test-client.ts'
import { TestSink } from '../support/test-sinks.ts'
import { startOnTerminal } from '../support/terminal-program.ts'

checkLeaks()

type Exit = number | NodeJS.Signals

interface Started {
  readonly stdio: ProcessStdio
  readonly exited: Promise<Exit>
  /** What was closed, as the owner is told. */
  readonly closed: string[]
}

function watchClosing(stdio: ProcessStdio): string[] {
  const closed: string[] = []
  stdio.onStdinClosed = () => closed.push('stdin')
  stdio.onOutputClosed = (output) => closed.push(output)
  return closed
}

function onPipes([program = '', ...args]: readonly string[], options: { stdin?: boolean } = {}): Started {
  const [stdin, stdout, stderr] = [pipe2(), pipe2(), pipe2()]
  const child = spawn(program, args, { stdio: [stdin[0], stdout[1], stderr[1]] })
  for (const fd of [stdin[0], stdout[1], stderr[1]]) closeSync(fd)
  if (options.stdin === false) closeSync(stdin[1])
  const stdio = new ProcessStdio({
    ...(options.stdin === false ? {} : { stdin: stdin[1] }),
    stdout: stdout[0],
    stderr: stderr[0],
  })
  const exited = new Promise<Exit>((resolve) =>
    child.on('exit', (code, signal) => resolve(code ?? signal ?? 'SIGKILL')),
  )
  return { stdio, exited, closed: watchClosing(stdio) }
}

async function onTerminal(command: readonly string[]): Promise<Started> {
  const { master, exited } = await startOnTerminal(command)
  const stdio = new ProcessStdio({ terminal: master })
  return { stdio, exited, closed: watchClosing(stdio) }
}

const shell = (script: string): readonly string[] => ['sh', '-c', script]

/** Turns of the event loop while `wait` lasted: a loop that spins takes tens of thousands in half a second. */
async function loopTurns(wait: Promise<unknown>): Promise<number> {
  const before = performance.nodeTiming.uvMetricsInfo.loopCount
  await wait
  return performance.nodeTiming.uvMetricsInfo.loopCount - before
}

describe('a process on pipes', () => {
  test('gets its input and its end, and the client both outputs and theirs', async () => {
    const { stdio, exited, closed } = onPipes(shell('cat; echo done >&2'))
    const client = new TestClient()
    stdio.connect(client)
    const input = pattern(10_000_000)
    await client.send(input)
    await stdio.outputEnded
    assert.equal(await exited, 0)
    assertSame(client.stdout.bytes, input)
    assert.equal(client.stderr.bytes.toString(), 'done\n')
    assert.deepEqual([client.stdout.ends, client.stderr.ends], [1, 1])
    assert.deepEqual(closed.toSorted(), ['stderr', 'stdin', 'stdout'])
    stdio.close()
    stdio.close()
    assert.equal(closed.length, 3)
  })

  test('gets the end of input that came with its last bytes, or with none', async () => {
    for (const [input, expected] of [
      ['foo\n', 'foo\n'],
      ['', ''],
    ] as const) {
      const { stdio, exited } = onPipes(['cat'])
      const client = new TestClient()
      stdio.connect(client)
      await client.send(input)
      await stdio.outputEnded
      assert.deepEqual([await exited, client.stdout.bytes.toString()], [0, expected])
    }
  })

  test('sees the end of input at once when the client has none', async () => {
    const { stdio, exited, closed } = onPipes(['cat'])
    stdio.connect(new TestClient({ stdin: false }))
    assert.deepEqual(closed, ['stdin'])
    await stdio.outputEnded
    assert.equal(await exited, 0)
  })

  test('that has no stdin lets a client send into nothing', async () => {
    const { stdio } = onPipes(['true'], { stdin: false })
    const client = new TestClient()
    stdio.connect(client)
    await client.send('ignored')
    await stdio.outputEnded
  })

  test('that does not read holds its client back, without work for us, and gets every byte in the end', async () => {
    const { stdio, exited } = onPipes(shell('sleep 0.5; echo go >&2; sha256sum'))
    const client = new TestClient()
    stdio.connect(client)
    const input = pattern(8_000_000)
    const sent = client.send(input)
    assert.ok((await loopTurns(client.stderr.until(3))) < 1000, 'the loop was busy while nobody read')
    await sent
    await stdio.outputEnded
    assert.equal(await exited, 0)
    assert.ok(client.mostPending <= 65_536, `${client.mostPending} bytes were pending`)
    assert.equal(client.stdout.bytes.toString(), `${createHash('sha256').update(input).digest('hex')}  -\n`)
  })

  test('reads its input in small pieces, line by line', async () => {
    const { stdio } = onPipes(shell('n=0; while IFS= read -r l; do n=$((n+1)); done; echo end $n'))
    const client = new TestClient()
    stdio.connect(client)
    await client.send(`${'y'.repeat(199)}\n`.repeat(1000), { piece: 1777 })
    await stdio.outputEnded
    assert.equal(client.stdout.bytes.toString(), 'end 1000\n')
  })

  for (const command of [['true'], ['head', '-c1']]) {
    test(`that does not want its input (${command.join(' ')}) ends quietly while the client sends`, async () => {
      for (let run = 0; run < 10; run++) {
        const { stdio, exited, closed } = onPipes(command)
        const client = new TestClient()
        stdio.connect(client)
        await client.send(Buffer.alloc(300_000, 'y\n'), { end: false })
        assert.equal(await exited, 0)
        await stdio.outputEnded
        await client.send('more', { end: false })
        assert.ok(closed.includes('stdin'))
        stdio.close()
      }
    })
  }

  test('waits while its client does not read, and loses nothing', async () => {
    const { stdio, exited } = onPipes(emit(5_000_000))
    const client = new TestClient({ stdout: new TestSink(true) })
    stdio.connect(client)
    await client.stdout.until(1)
    for (let turn = 0; turn < 100; turn++) await new Promise((resolve) => setImmediate(resolve))
    assert.ok(client.stdout.length <= 65_536)
    client.stdout.onWrite = () => setImmediate(() => client.stdout.drain())
    client.stdout.drain()
    await stdio.outputEnded
    assert.equal(await exited, 0)
    assertSame(client.stdout.bytes, pattern(5_000_000))
    stdio.close()
  })

  test('leaves a child that holds its output: what it said is delivered, what comes later is not waited for', async () => {
    const { stdio, exited } = onPipes(
      shell('(trap "" PIPE; exec sleep 60) & echo $!; head -c 50000 /dev/zero'),
    )
    const client = new TestClient({ stdout: new TestSink(true) })
    stdio.connect(client)
    await exited
    client.stdout.onWrite = () => setImmediate(() => client.stdout.drain())
    stdio.finish()
    client.stdout.drain()
    await stdio.outputEnded
    const [pid = ''] = client.stdout.bytes.toString('latin1').split('\n')
    assert.equal(client.stdout.length, pid.length + 1 + 50_000)
    process.kill(Number(pid), 'SIGKILL')
  })

  test('runs on when its client vanishes: input ends, output goes nowhere', async () => {
    const { stdio, exited, closed } = onPipes(shell('cat >/dev/null; head -c 1000000 /dev/zero; exit 7'))
    const client = new TestClient({ stdout: new TestSink(true) })
    stdio.connect(client)
    client.vanish()
    assert.deepEqual(closed, ['stdin'])
    assert.equal(await exited, 7)
    await stdio.outputEnded
  })

  test('can be let go before it has a client', async () => {
    for (const end of ['finish', 'close', 'hangUp'] as const) {
      const { stdio, exited } = onPipes(['cat'])
      stdio[end]()
      if (end === 'hangUp') stdio.close()
      await stdio.outputEnded
      assert.equal(await exited, 0)
    }
  })

  test('has one client only', async () => {
    const { stdio } = onPipes(['true'])
    stdio.connect(new TestClient())
    assert.throws(() => stdio.connect(new TestClient()), { code: 'failed-precondition' })
    await stdio.outputEnded
    stdio.close()
  })
})

describe('a process on a terminal', () => {
  test('reads and writes through it; the end of its client’s input changes nothing', async () => {
    const { stdio, exited, closed } = await onTerminal(shell('read a; echo "got $a"; read b; echo "and $b"'))
    const client = new TestClient()
    stdio.connect(client)
    await client.send('one\n', { end: false })
    await client.stdout.until(8)
    client.stdin?.end()
    assert.deepEqual(closed, [])
    const again = new TestClient()
    assert.throws(() => stdio.connect(again), { code: 'failed-precondition' })
    stdio.hangUp()
    await stdio.outputEnded
    assert.deepEqual(
      [client.stdout.bytes.toString(), closed, await exited],
      ['got one\n', ['terminal'], 'SIGHUP'],
    )
  })

  test('that does not read holds a paste of 1 MiB back, without work for us, and gets every byte', async () => {
    const { stdio, exited } = await onTerminal(shell('sleep 0.5; echo go; head -c 1048576 | md5sum'))
    const client = new TestClient()
    stdio.connect(client)
    const input = pattern(1_048_576)
    const sent = client.send(input, { piece: 1_048_576, end: false })
    assert.ok((await loopTurns(client.stdout.until(3))) < 1000, 'the loop was busy while nobody read')
    await sent
    await stdio.outputEnded
    assert.equal(await exited, 0)
    stdio.close()
    assert.equal(client.stdout.bytes.toString(), `go\n${createHash('md5').update(input).digest('hex')}  -\n`)
  })

  test('copies binary input exactly in raw mode', async () => {
    const { stdio, exited } = await onTerminal(['head', '-c', '300000'])
    const client = new TestClient()
    stdio.connect(client)
    const input = pattern(300_000)
    await client.send(input, { piece: 3000 })
    await stdio.outputEnded
    assert.equal(await exited, 0)
    assertSame(client.stdout.bytes, input)
    assert.equal(client.stderr.ends, 0)
    stdio.close()
  })

  test('that closes its terminal before it exits is not hung up for it', async () => {
    const { stdio, exited, closed } = await onTerminal(
      shell('echo bye; exec </dev/null >/dev/null 2>&1; sleep 0.1; exit 7'),
    )
    const client = new TestClient()
    stdio.connect(client)
    await stdio.outputEnded
    assert.deepEqual([client.stdout.bytes.toString(), client.stdout.ends, closed], ['bye\n', 1, []])
    assert.equal(await exited, 7)
    stdio.finish()
    assert.deepEqual([client.stdout.ends, closed], [1, ['terminal']])
  })

  test('gets the last of many sizes; those that no terminal has are ignored', async () => {
    const { stdio } = await onTerminal(shell('read go; stty size'))
    const client = new TestClient()
    stdio.connect(client)
    for (let i = 1; i <= 1000; i++) client.resize(i, 1)
    client.resize(203, 57)
    for (const bad of [0, -1, 65_536, 1.5, NaN]) client.resize(bad, 24)
    await client.send('\n', { end: false })
    await stdio.outputEnded
    assert.equal(client.stdout.bytes.toString(), '57 203\n')
    client.resize(80, 24)
    stdio.close()
    client.resize(80, 25)
  })

  test('is told of a new size', async () => {
    const { stdio } = await onTerminal(
      shell('trap "stty size; exit" WINCH; echo ready; while :; do sleep 0.01; done'),
    )
    const client = new TestClient()
    stdio.connect(client)
    await client.stdout.until(6)
    client.resize(100, 50)
    await stdio.outputEnded
    assert.equal(client.stdout.bytes.toString(), 'ready\n50 100\n')
    stdio.close()
  })

  test('is hung up when its client vanishes, also one that is gone before it is joined', async () => {
    for (const early of [false, true]) {
      const { stdio, exited, closed } = await onTerminal(['sleep', '60'])
      const client = new TestClient()
      if (early) client.vanish()
      stdio.connect(client)
      client.vanish()
      await stdio.outputEnded
      assert.deepEqual([await exited, closed], ['SIGHUP', ['terminal']])
    }
  })

  test('takes input after its end without a word', async () => {
    const { stdio, closed } = await onTerminal(['true'])
    const client = new TestClient()
    stdio.connect(client)
    await stdio.outputEnded
    await client.send(Buffer.alloc(100_000))
    stdio.finish()
    stdio.finish()
    stdio.close()
    assert.deepEqual(closed, ['terminal'])
  })
})

test('no way to end leaves a descriptor open', async () => {
  const before = readdirSync('/proc/self/fd').length
  for (const end of ['close', 'hangUp', 'finish', 'closeStdin'] as const) {
    for (const start of [() => Promise.resolve(onPipes(['cat'])), () => onTerminal(['cat'])]) {
      for (const connect of [true, false]) {
        const { stdio, exited } = await start()
        if (connect) stdio.connect(new TestClient())
        stdio[end]()
        stdio.close()
        await stdio.outputEnded
        await exited
      }
    }
  }
  assert.ok(readdirSync('/proc/self/fd').length <= before)
})
