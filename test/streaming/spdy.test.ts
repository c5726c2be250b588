import assert from 'node:assert/strict'
import { test } from 'node:test'
import { decodeStatus } from '../../src/wire/remote-status.ts'
import { checkLeaks } from '../support/leak-check.ts'
import { eventually } from './support/eventually.ts'
import { pattern } from './support/fake-backend.ts'
import { FakeClock } from './support/fake-clock.ts'
import { control, data, SpdyClient, types, u32 } from './support/spdy-client.ts'
import { startServer } from './support/test-server.ts'

checkLeaks()

test('answers the handshake with one protocol and nothing else', async (t) => {
  const { exec } = startServer(t)
  for (const method of ['GET', 'POST']) {
    const protocols = ['v5.channel.k8s.io', 'v4.channel.k8s.io, v3.channel.k8s.io', 'v2.channel.k8s.io']
    const client = await SpdyClient.connect(await exec(['exit']), { protocols, method })
    assert.equal(
      client.status,
      'HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: SPDY/3.1\r\n' +
        'X-Stream-Protocol-Version: v4.channel.k8s.io\r\n\r\n',
    )
    assert.equal(client.frames.length, 0)
    client.socket.destroy()
    await client.closed()
  }
})

test('runs a command and ends in the exact order', async (t) => {
  const { exec } = startServer(t)
  const client = await SpdyClient.connect(await exec(['source', '5', '7'], { stdin: true, stderr: true }))
  await client.openAll('error', 'stdin', 'stdout', 'stderr')
  await client.until(() => client.ended)
  const status = client.bytesOf(1)
  assert.equal(
    client.summary(),
    `reply1 reply3 reply5 reply7 data1:1 data5:5 fin5 fin7 fin1:${status.length - 1} rst3:5 goaway7:0`,
  )
  assert.ok(client.bytesOf(5).equals(pattern(5)))
  assert.deepEqual(decodeStatus(status), { kind: 'exited', status: { code: 7 } })
})

test('writes exactly the bytes of the specification transcript', async (t) => {
  const { exec } = startServer(t)
  const client = await SpdyClient.connect(await exec(['exit']))
  await client.openAll('error', 'stdout')
  await client.until(() => client.ended)
  assert.equal(
    Buffer.concat(client.reads).toString('hex'),
    '800300020000001400000001' +
      '7801000400fbff00000000000000ffff' +
      '800300020000001200000003' +
      '000400fbff00000000000000ffff' +
      '0000000100000001' +
      '20' +
      '0000000301000000' +
      `0000000101000014${Buffer.from('{"status":"Success"}').toString('hex')}` +
      '80030007000000080000000300000000',
  )
})

test('arms the error stream in the same write as the last reply', async (t) => {
  const { exec, backend } = startServer(t)
  const client = await SpdyClient.connect(await exec(['hold']))
  await client.openAll('error', 'stdout')
  const run = await backend.next()
  await client.until(() => client.bytesOf(1).length > 0)
  assert.equal(client.reads.at(-1)?.toString('hex').slice(-18), '000000010000000120')
  assert.equal(client.reads.at(-1)?.subarray(0, 4).toString('hex'), '80030002')
  run.end.resolve({ code: 0 })
  await client.until(() => client.ended)
  assert.deepEqual(decodeStatus(client.bytesOf(1)), { kind: 'success' })
})

for (const [name, text] of [
  ['v3.channel.k8s.io', 'command terminated with non-zero exit code: exit status 7'],
  ['v2.channel.k8s.io', 'command terminated with non-zero exit code: exit status 7'],
  ['channel.k8s.io', 'command terminated with non-zero exit code: exit status 7'],
] as const) {
  test(`writes text and no blank to a client of ${name}`, async (t) => {
    const { exec } = startServer(t)
    const failed = await SpdyClient.connect(await exec(['exit', '7']), { protocols: [name] })
    await failed.openAll('error', 'stdout')
    await failed.until(() => failed.ended)
    assert.equal(failed.bytesOf(1).toString(), text)
    const good = await SpdyClient.connect(await exec(['exit', '0']), { protocols: [name] })
    await good.openAll('error', 'stdout')
    await good.until(() => good.ended)
    assert.equal(good.summary(), 'reply1 reply3 fin3 fin1 goaway3:0')
  })
}

test('accepts streams in any order and starts with the last required one', async (t) => {
  const { exec, backend } = startServer(t)
  const client = await SpdyClient.connect(await exec(['count'], { stdin: true, stderr: true }))
  await client.openAll('stderr', 'stdout', 'stdin')
  assert.equal(backend.runs.length, 0)
  client.send(data(5, 'early'))
  await client.open('error')
  assert.equal(backend.runs.length, 1)
  client.send(data(5, ' and late', true), data(5, 'after the end'))
  await client.until(() => client.ended)
  assert.equal(client.bytesOf(3).toString(), '14\n')
})

test('ends stdin with a FIN alone and with one on the last data', async (t) => {
  const { exec } = startServer(t)
  for (const frames of [[data(3, pattern(1000)), data(3, '', true)], [data(3, pattern(1000), true)]]) {
    const client = await SpdyClient.connect(await exec(['echo', '3'], { stdin: true }))
    await client.openAll('error', 'stdin', 'stdout')
    client.send(...frames)
    await client.until(() => client.ended)
    assert.ok(client.bytesOf(5).equals(pattern(1000)))
    assert.deepEqual(decodeStatus(client.bytesOf(1)), { kind: 'exited', status: { code: 3 } })
  }
})

test('takes a DATA frame without bytes and FIN for nothing', async (t) => {
  const { exec } = startServer(t)
  const client = await SpdyClient.connect(await exec(['count'], { stdin: true }))
  await client.openAll('error', 'stdin', 'stdout')
  client.send(data(3, ''), data(3, 'abc'), data(3, ''), data(3, 'de', true))
  await client.until(() => client.ended)
  assert.equal(client.bytesOf(5).toString(), '5\n')
})

test('gives a terminal no stderr, and sizes from a stream that comes late', async (t) => {
  const { exec, backend } = startServer(t)
  const flags = { tty: true, stdin: true, stderr: true }
  const client = await SpdyClient.connect(await exec(['hold'], flags))
  await client.openAll('error', 'stdin', 'stdout')
  const run = await backend.next()
  assert.equal(run.stdio.stderr, undefined)
  await client.open('resize')
  client.send(data(7, '{"Width":203,"He'), data(7, 'ight":57}\n'))
  await eventually('size', () => run.sizes.length > 0)
  assert.deepEqual(run.sizes, [{ width: 203, height: 57 }])
  client.send(data(7, 'garbage'), control(types.ping, 0, u32(1)))
  await client.until(() => client.framesOf(1, types.ping).length > 0)
  run.end.resolve({ code: 0 })
  await client.until(() => client.ended)
  assert.match(client.summary(), /fin5 fin1:20 rst3:5 rst7:5 goaway7:0$/)
})

test('replies to a resize stream that comes when the process is done already', async (t) => {
  const { exec } = startServer(t)
  const client = await SpdyClient.connect(await exec(['exit', '3'], { tty: true }))
  await client.openAll('error', 'stdout')
  await client.until(() => client.hasFin(1))
  assert.deepEqual(decodeStatus(client.bytesOf(1)), { kind: 'exited', status: { code: 3 } })
  await client.open('resize')
  await client.until(() => client.ended)
  assert.match(client.summary(), /fin3 fin1:\d+ reply5 rst5:5 goaway5:0$/)
})

test('waits for a resize stream two seconds at most, and not at all before v3', async (t) => {
  const clock = new FakeClock()
  const { exec } = startServer(t, { clock })
  const client = await SpdyClient.connect(await exec(['exit'], { tty: true }))
  await client.openAll('error', 'stdout')
  await client.until(() => client.hasFin(1))
  clock.advance(2000)
  await client.until(() => client.ended)
  const old = await SpdyClient.connect(await exec(['exit'], { tty: true }), {
    protocols: ['v2.channel.k8s.io'],
  })
  await old.openAll('error', 'stdout')
  await old.until(() => old.ended)
})

test('replies to streams that it does not need and discards what they carry', async (t) => {
  const { exec } = startServer(t)
  const client = await SpdyClient.connect(await exec(['count'], { stdin: true }))
  const [, , , unknown = 0, second = 0] = await client.openAll('error', 'stdin', 'unknown', 'stderr', 'stdin')
  client.send(data(unknown, pattern(65_536)), data(second, 'not for the process'), data(99, 'no stream'))
  await client.open('stdout')
  client.send(data(3, 'abc', true))
  await client.until(() => client.ended)
  assert.equal(client.bytesOf(11).toString(), '3\n')
  assert.match(client.summary(), /rst3:5 rst5:5 rst7:5 rst9:5 goaway11:0$/)
})

test('closes when the streams are not all there in time', async (t) => {
  const clock = new FakeClock()
  const { exec, backend, server } = startServer(t, { clock })
  const client = await SpdyClient.connect(await exec(['exit']))
  await client.open('error')
  clock.advance(29_999)
  client.send(control(types.ping, 0, u32(1)))
  await client.until(() => client.framesOf(1, types.ping).length > 0)
  clock.advance(1)
  await client.until(() => client.ended)
  assert.match(client.summary(), /^reply1 ping1 data1:\d+ rst1:5 goaway1:0$/)
  assert.equal(backend.runs.length, 0)
  await eventually('forgotten', () => server.sessions() === 0)
  assert.equal(clock.timers, 0)
})

test('runs nothing for a client that goes before its streams are there', async (t) => {
  const clock = new FakeClock()
  const { exec, backend, server } = startServer(t, { clock })
  const client = await SpdyClient.connect(await exec(['exit']))
  await client.open('error')
  client.socket.destroy()
  await eventually('forgotten', () => server.sessions() === 0)
  assert.equal(clock.timers, 0)
  const polite = await SpdyClient.connect(await exec(['exit']))
  await polite.open('error')
  polite.send(control(types.goAway, 0, u32(0, 0)))
  await polite.until(() => polite.ended)
  assert.equal(backend.runs.length, 0)
})

test('resets bad stream ids and refuses more streams than a session can need', async (t) => {
  const { exec, backend } = startServer(t)
  const client = await SpdyClient.connect(await exec(['hold']))
  await client.openAll('error', 'stdout')
  await client.open('x', { id: 4 })
  await client.open('x', { id: 3 })
  await client.open('x', { id: 101 })
  await client.open('x', { id: 99 })
  for (let i = 0; i < 20; i++) await client.open('x', { id: 201 + 2 * i })
  const words = client.summary().split(' ')
  assert.deepEqual(words.slice(0, 7), [
    'reply1',
    'reply3',
    'data1:1',
    'rst4:1',
    'rst3:1',
    'reply101',
    'rst99:1',
  ])
  assert.equal(words.filter((word) => word.endsWith(':3')).length, 20 - 13)
  ;(await backend.next()).end.resolve({ code: 0 })
  await client.until(() => client.ended)
})

test('goes on after a goaway and accepts no further stream', async (t) => {
  const { exec, backend } = startServer(t)
  const client = await SpdyClient.connect(await exec(['hold'], { stdin: true }))
  await client.openAll('error', 'stdin', 'stdout')
  const run = await backend.next()
  client.send(control(types.goAway, 0, u32(0, 0)), await client.syn({ streamtype: 'resize' }))
  client.send(control(types.ping, 0, u32(3)))
  await client.until(() => client.framesOf(3, types.ping).length > 0)
  run.stdio.stdout?.write(Buffer.from('still here'))
  run.end.resolve({ code: 4 })
  await client.until(() => client.ended)
  assert.equal(client.bytesOf(5).toString(), 'still here')
  assert.deepEqual(decodeStatus(client.bytesOf(1)), { kind: 'exited', status: { code: 4 } })
  assert.equal(client.framesOf(7, types.synReply).length, 0)
})

test('stops only stdout when the client resets it', async (t) => {
  const { exec, backend } = startServer(t)
  const client = await SpdyClient.connect(await exec(['hold'], { stderr: true }))
  await client.openAll('error', 'stdout', 'stderr')
  const run = await backend.next()
  client.send(control(types.rst, 0, u32(3, 5)), control(types.ping, 0, u32(5)))
  await client.until(() => client.framesOf(5, types.ping).length > 0)
  assert.equal(run.stdio.stdout?.write(Buffer.alloc(100_000)), true)
  run.stdio.stderr?.write(Buffer.from('err'))
  run.end.resolve({ code: 0 })
  await client.until(() => client.ended)
  assert.equal(client.bytesOf(3).length, 0)
  assert.equal(client.bytesOf(5).toString(), 'err')
  assert.deepEqual(decodeStatus(client.bytesOf(1)), { kind: 'success' })
})
