// One server after the other: back-off, sleep and wake-up, signals, giving up, the orderly end, what a server inherits.

import assert from 'node:assert/strict'
import { closeSync, existsSync, readFileSync, writeFileSync } from 'node:fs'
import { createServer } from 'node:net'
import { test } from 'node:test'
import { socketpair, unixListen, write } from '../../src/native/addon.ts'
import { checkLeaks } from '../support/leak-check.ts'
import { eventually, isAlive, Monitor, type LentServer } from './monitor.ts'

checkLeaks()

async function withServer(
  body: (monitor: Monitor, server: LentServer) => Promise<void>,
  options: ConstructorParameters<typeof Monitor>[0] = {},
): Promise<void> {
  const { monitor, server } = await Monitor.start(options)
  try {
    await body(monitor, server)
  } finally {
    await monitor.stop()
  }
}

test('the server gets the arguments, a clean environment, the launch’s limits and score, and no further descriptor', () =>
  withServer(
    async (monitor, { seen }) => {
      assert.deepEqual(seen.argv, ['--runtime', '/usr/bin/runc', '-x'])
      assert.deepEqual(seen.execArgv, ['--v8-pool-size=0'])
      assert.equal(seen.env['MALLOC_ARENA_MAX'], '1')
      assert.equal(seen.env['UV_THREADPOOL_SIZE'], '1')
      assert.equal(seen.env['MALLOC_TRIM_THRESHOLD_'], '67108864')
      assert.equal(seen.env['KEPT'], 'yes')
      for (const name of ['LISTEN_FDS', 'LISTEN_PID', 'NOTIFY_SOCKET', 'NODE_OPTIONS', 'NODE_CHANNEL_FD'])
        assert.equal(seen.env[name], undefined, name)
      const own = readFileSync('/proc/self/oom_score_adj', 'utf8').trim()
      assert.equal(seen.oom, own)
      assert.equal(seen.env['HOLDFAST_LAUNCH_OOM'], own)
      assert.match(seen.env['HOLDFAST_LAUNCH_NOFILE'] ?? '', /^\d+:(\d+|unlimited)$/)
      const score = readFileSync(`/proc/${monitor.keeperPid}/oom_score_adj`, 'utf8').trim()
      assert.ok(score === '-1000' || score === own, score)
    },
    {
      args: ['--runtime', '/usr/bin/runc', '-x'],
      env: {
        KEPT: 'yes',
        LISTEN_FDS: '1',
        LISTEN_PID: '1',
        NOTIFY_SOCKET: '/x',
        NODE_OPTIONS: '--no-warnings',
        NODE_CHANNEL_FD: '3',
      },
    },
  ))

test('a server that was ready for a second and dies is replaced at once, with its last words', () =>
  withServer(async (monitor, server) => {
    server.say('what happened')
    await eventually('the words', () => readFileSync(`/proc/${server.seen.pid}/fd/2`, 'utf8') !== '')
    server.exit(3)
    const next = await monitor.readyServer()
    const words = next.held('last-words')
    assert.equal(words?.record.toString(), 'code 3')
    assert.equal(readFileSync(`/proc/self/fd/${words?.fd}`, 'utf8'), 'what happened\n')
    await next.client.drop('last-words')
    next.exit(4)
    const third = await monitor.readyServer()
    assert.equal(third.held('last-words')?.record.toString(), 'code 4')
  }))

test('last words are cut to the newest 64 KiB', () =>
  withServer(async (monitor, server) => {
    for (let i = 0; i < 40; i++) server.say(`${i} ${'w'.repeat(2000)}`)
    const words = `/proc/${server.seen.pid}/fd/2`
    await eventually('the words', () => readFileSync(words, 'utf8').includes('\n39 '))
    server.exit(1)
    const next = await monitor.readyServer()
    const text = readFileSync(`/proc/self/fd/${next.held('last-words')?.fd}`, 'utf8')
    assert.ok(text.length <= 65_536 && text.endsWith(`39 ${'w'.repeat(2000)}\n`))
  }))

test('servers that die young are started again after 0, 40, 80 … ms', () =>
  withServer(async (monitor, server) => {
    const births: number[] = []
    server.kill()
    for (let i = 0; i < 6; i++) {
      const next = await monitor.nextServer()
      births.push(Date.now())
      next.kill()
    }
    // The sixth of these waited 40+80+160+320+640 ms in all.
    assert.ok((births.at(-1) ?? 0) - (births[0] ?? 0) >= 1240)
    await monitor.readyServer()
  }))

test('a new signal and a watched exit cut the back-off short', () =>
  withServer(async (monitor, server) => {
    const child = await server.spawn('exec sleep 100')
    await server.client.watch(child)
    let last = server
    const dieYoung = async (): Promise<number> => {
      last.kill()
      await eventually('its end', () => !isAlive(last.seen.pid))
      return Date.now()
    }
    for (let i = 0; i < 8; i++) {
      await dieYoung()
      last = await monitor.nextServer()
    }
    // Now the keeper would wait for 5 s.
    let died = await dieYoung()
    process.kill(child, 'SIGKILL')
    last = await monitor.nextServer()
    assert.ok(Date.now() - died < 4900)
    assert.deepEqual(
      last.replay.exits.map((exit) => exit.pid),
      [child],
    )
    died = await dieYoung()
    process.kill(monitor.keeperPid, 'SIGUSR1')
    last = await monitor.nextServer()
    assert.ok(Date.now() - died < 4900)
    assert.deepEqual(last.signals, [10])
    await last.client.ready({ sockets: [] })
  }))

test('signals are told until they are acknowledged', () =>
  withServer(async (monitor, server) => {
    process.kill(monitor.keeperPid, 'SIGTERM')
    process.kill(monitor.keeperPid, 'SIGUSR2')
    await server.until('both', () => server.signals.includes(15) && server.signals.includes(12))
    server.client.sigack([12])
    server.kill()
    const next = await monitor.readyServer()
    assert.deepEqual(next.signals, [15])
    next.client.sigack([15])
    await next.client.hold('x', {})
    next.kill()
    assert.deepEqual((await monitor.readyServer()).signals, [])
  }))

test('SIGHUP and SIGPIPE do nothing', () =>
  withServer(async (monitor, server) => {
    process.kill(monitor.keeperPid, 'SIGHUP')
    process.kill(monitor.keeperPid, 'SIGPIPE')
    await server.client.hold('x', {})
    assert.deepEqual(server.signals, [])
  }))

test('quit removes pidfile and sockets and ends the keeper', () =>
  withServer(async (monitor, server) => {
    const socket = createServer()
    await new Promise<void>((done) => socket.listen(monitor.path('real.sock'), done))
    writeFileSync(monitor.path('no-socket'), 'keep me')
    const paths = ['real.sock', 'no-socket', 'missing.sock'].map((name) => monitor.path(name))
    await server.client.ready({ pidfile: monitor.path('pidfile'), sockets: paths })
    server.client.quit(0)
    server.exit(0)
    await eventually('the end', () => !isAlive(monitor.keeperPid))
    assert.equal(existsSync(monitor.path('real.sock')), false)
    assert.equal(existsSync(monitor.path('no-socket')), true)
    assert.equal(existsSync(monitor.path('pidfile')), false)
    socket.close()
  }))

test('a pidfile that names somebody else stays', () =>
  withServer(async (monitor, server) => {
    writeFileSync(monitor.path('pidfile'), '1')
    server.client.quit(0)
    server.exit(0)
    await eventually('the end', () => !isAlive(monitor.keeperPid))
    assert.equal(readFileSync(monitor.path('pidfile'), 'utf8'), '1')
  }))

test('without a server SIGTERM is obeyed after 8 s: watched children are killed, files removed', () =>
  withServer(async (monitor, server) => {
    const listener = unixListen(monitor.path('s.sock'))
    await server.client.ready({ pidfile: monitor.path('pidfile'), sockets: [monitor.path('s.sock')] })
    const child = await server.spawn('exec sleep 100')
    await server.client.watch(child)
    const begun = Date.now()
    process.kill(monitor.keeperPid, 'SIGTERM')
    let last = server
    while (isAlive(monitor.keeperPid)) {
      last.kill()
      const next = await Promise.race([monitor.nextServer(), ended(monitor.keeperPid)])
      if (next === undefined) break
      last = next
    }
    assert.ok(Date.now() - begun >= 7900)
    await eventually('the child', () => !isAlive(child))
    assert.equal(existsSync(monitor.path('pidfile')), false)
    assert.equal(existsSync(monitor.path('s.sock')), false)
    closeSync(listener)
  }))

async function ended(pid: number): Promise<undefined> {
  await eventually('the end of the keeper', () => !isAlive(pid))
  return undefined
}

test('a mute server is killed and replaced', () =>
  withServer(async (monitor, server) => {
    server.mute()
    await eventually('its end', () => !isAlive(server.seen.pid))
    const next = await monitor.readyServer()
    assert.equal(next.held('last-words')?.record.toString(), 'signal 9')
  }))

test('with --skip-fork the keeper stays in the foreground and writes no pidfile', async () => {
  for (const [args, env] of [
    [['--skip-fork'], {}],
    [[], { CONMON_SKIP_FORK: 'true' }],
  ] as const) {
    const monitor = new Monitor({ args, env })
    try {
      const server = await monitor.readyServer()
      assert.equal(monitor.launcher.pid, monitor.keeperPid)
      assert.equal(existsSync(monitor.path('pidfile')), false)
      server.client.quit(6)
      server.exit(0)
      assert.equal((await monitor.launched).code, 6)
    } finally {
      await monitor.stop()
    }
  }
})

test('a foreground monitor prints why it failed', async () => {
  const monitor = new Monitor({ args: ['--skip-fork'] })
  try {
    const server = await monitor.nextServer()
    await server.client.failed(1, 'a monitor runs already, pid 77')
    server.exit(0)
    const { code, stderr } = await monitor.launched
    assert.deepEqual([code, stderr], [1, 'a monitor runs already, pid 77\n'])
  } finally {
    await monitor.stop()
  }
})

test('a monitor whose launcher was killed ends when it would be ready', async () => {
  const monitor = new Monitor()
  try {
    const server = await monitor.nextServer()
    monitor.launcher.kill('SIGKILL')
    await monitor.launched
    void server.client.ready({ sockets: [] }).catch(() => undefined)
    await eventually('the end', () => !isAlive(monitor.keeperPid))
  } finally {
    await monitor.stop()
  }
})

test('a sleeping server is woken by a watched exit, a signal, and data on a descriptor held with wake', () =>
  withServer(async (monitor, server) => {
    const child = await server.spawn('exec sleep 100')
    await server.client.watch(child)
    const [mine, theirs] = socketpair()
    await server.client.hold('connection', { fd: theirs, wake: true })
    closeSync(theirs)
    await server.client.hold('quiet', { fd: mine })

    server.client.sleep()
    server.exit(0)
    await asleep(monitor)
    assert.equal(write(mine, Buffer.from('wake up')), 7)
    const second = await monitor.readyServer()
    assert.equal(second.replay.incarnation, 2)
    assert.equal(second.held('last-words'), undefined)
    assert.equal(second.held('connection')?.wake, true)
    await second.client.drop('connection')

    second.client.sleep()
    second.exit(0)
    await asleep(monitor)
    process.kill(monitor.keeperPid, 'SIGUSR1')
    const third = await monitor.readyServer()
    assert.deepEqual(third.signals, [10])
    third.client.sigack([10])

    third.client.sleep()
    third.exit(0)
    await asleep(monitor)
    process.kill(child, 'SIGKILL')
    const fourth = await monitor.readyServer()
    assert.equal(fourth.replay.incarnation, 4)
    assert.deepEqual(
      fourth.replay.exits.map((exit) => exit.pid),
      [child],
    )
    closeSync(mine)
  }))

test('news that the sleeper has not heard start a server at once', () =>
  withServer(async (monitor, server) => {
    const child = await server.spawn('exec sleep 100')
    await server.client.watch(child)
    server.client.sleep()
    process.kill(child, 'SIGKILL')
    await server.exitOf(child)
    server.exit(0)
    assert.equal((await monitor.readyServer()).replay.incarnation, 2)
  }))

/** Waits until the keeper has no child that is a server: it sleeps. */
async function asleep(monitor: Monitor): Promise<void> {
  await eventually('sleep', () => {
    const children = readFileSync(`/proc/${monitor.keeperPid}/task/${monitor.keeperPid}/children`, 'utf8')
    return children
      .split(' ')
      .filter(Boolean)
      .every((pid) => readFileSync(`/proc/${pid}/cmdline`, 'utf8').startsWith('sleep'))
  })
  await new Promise((done) => setTimeout(done, 50))
  assert.ok(isAlive(monitor.keeperPid))
}
