import assert from 'node:assert/strict'
import { execFileSync, type ChildProcess } from 'node:child_process'
import { createHash, randomBytes } from 'node:crypto'
import { once } from 'node:events'
import { mkdtempSync, readFileSync, readlinkSync, rmSync } from 'node:fs'
import { connect } from 'node:net'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { after, before, test } from 'node:test'
import { setTimeout as sleep } from 'node:timers/promises'
import { childrenOf, takeStock, tracesOf } from '../demo/host.ts'
import { finish, Installation, type CommandResult } from '../demo/programs.ts'
import { Stage } from '../demo/stage.ts'
import { Terminal } from '../demo/terminal.ts'

let directory: string
let installation: Installation
let stage: Stage

before(async () => {
  directory = mkdtempSync(join(tmpdir(), 'holdfast-cli-'))
  installation = new Installation(directory)
  stage = new Stage(installation)
  await installation.startDaemon()
  const run = await holdfast('run', '-d', '--name', 'box', '--', 'sh', '-c', 'sleep 100000')
  assert.equal(run.code, 0, run.stderr)
})
after(async () => {
  const belongings = await takeStock(stage.belongings, stage.paths)
  await holdfast('rm', ...belongings.pods)
  await installation.killDaemon('SIGTERM')
  for (let tries = 0; tries < 100 && tracesOf(belongings).length > 0; tries++) await sleep(50)
  const remains = tracesOf(belongings)
  rmSync(directory, { recursive: true, force: true })
  assert.deepEqual(remains, [])
})

function holdfast(...args: string[]): Promise<CommandResult> {
  return installation.run(...args)
}

/** Runs `holdfast ARGS…` with input; resolves to what came out, as bytes. */
async function pipe(
  input: Buffer,
  ...args: string[]
): Promise<{ code: number; stdout: Buffer; stderr: string }> {
  const child = installation.start('pipe', ...args)
  child.stdin?.on('error', () => {})
  child.stdin?.end(input)
  const stdout: Buffer[] = []
  let stderr = ''
  child.stdout?.on('data', (chunk: Buffer) => stdout.push(chunk))
  child.stderr?.on('data', (chunk: Buffer) => (stderr += String(chunk)))
  await once(child, 'close')
  return { code: child.exitCode ?? -1, stdout: Buffer.concat(stdout), stderr }
}

function terminal(...args: string[]): Terminal {
  return new Terminal(installation.command(...args), installation.env)
}

function digest(bytes: Buffer): string {
  return createHash('sha256').update(bytes).digest('hex')
}

async function removePods(...pods: string[]): Promise<void> {
  const removed = await holdfast('rm', ...pods)
  assert.equal(removed.code, 0, removed.stderr)
}

test('exec passes output, errors and the exit code on', async () => {
  const result = await holdfast('exec', 'box', '--', 'sh', '-c', 'echo out; echo err >&2; exit 5')
  assert.deepEqual(result, { code: 5, stdout: 'out\n', stderr: 'err\n' })
})

test('exec passes a death by signal on as 128 and its number', async () => {
  assert.equal((await holdfast('exec', 'box', '--', 'sh', '-c', 'kill -9 $$')).code, 137)
})

test('exec leaves the arguments of the command alone', async () => {
  const words = ['a  b', "it's", '$HOME', '', '--help', 'ä\n']
  const result = await holdfast('exec', 'box', '--', 'printf', '<%s>', ...words)
  assert.equal(result.stdout, words.map((word) => `<${word}>`).join(''))
})

test('a command that is not there is 127, one that is no program 126', async () => {
  const missing = await holdfast('exec', 'box', 'nosuch')
  assert.equal(missing.code, 127)
  assert.match(missing.stderr, /^error: exec nosuch in box: .*nosuch/)
  assert.equal((await holdfast('exec', 'box', '/etc')).code, 126)
})

test('a container that is not there is 125 and named', async () => {
  for (const args of [
    ['exec', 'ghost', 'ls'],
    ['attach', 'ghost'],
    ['logs', 'ghost'],
    ['port-forward', 'ghost', '80'],
  ]) {
    const result = await holdfast(...args)
    assert.equal(result.code, 125, args[0])
    assert.match(result.stderr, /^error: (container|pod) ghost not found/)
  }
})

test('mistakes on the command line are 2', async () => {
  for (const args of [
    [],
    ['nosuch'],
    ['--nope'],
    ['exec', '--nope', 'box', 'ls'],
    ['exec', 'box'],
    ['exec', '-it', 'box', 'sh'],
    ['logs', '--tail', 'x', 'box'],
    ['port-forward', 'box', '0'],
    ['attach', '--detach-keys', 'F1', 'box'],
    ['run', '-d', '--rm', 'ls'],
  ]) {
    const result = await holdfast(...args)
    assert.equal(result.code, 2, args.join(' '))
    assert.match(result.stderr, /^error: /)
  }
})

test('containers are found by id and by the beginning of their id', async () => {
  const id = (await holdfast('ps', '-q')).stdout.trim()
  for (const name of [id, id.slice(0, 6)])
    assert.equal((await holdfast('exec', name, 'echo', 'found')).stdout, 'found\n')
})

test('the end of input ends the input of the command and nothing else', async () => {
  const result = await pipe(
    Buffer.from('abc'),
    'exec',
    '-i',
    'box',
    '--',
    'sh',
    '-c',
    'cat | wc -c; echo after; exit 3',
  )
  assert.equal(result.stdout.toString(), '3\nafter\n')
  assert.equal(result.code, 3)
})

test('twenty megabytes come back as they went', async () => {
  const bytes = randomBytes(20 * 1024 * 1024)
  const result = await pipe(bytes, 'exec', '-i', 'box', '--', 'cat')
  assert.equal(result.code, 0, result.stderr)
  assert.equal(digest(result.stdout), digest(bytes))
})

test('a command that ends before its input does is not kept waiting', async () => {
  const result = await pipe(Buffer.alloc(8 * 1024 * 1024), 'exec', '-i', 'box', '--', 'sh', '-c', 'exit 4')
  assert.equal(result.code, 4, result.stderr)
})

test('a reader that has enough ends the command line as a signal would', async () => {
  const child = installation.start('ignore', 'exec', 'box', '--', 'yes')
  await once(child.stdout ?? child, 'data')
  child.stdout?.destroy()
  await once(child, 'close')
  assert.equal(child.exitCode, 141)
})

test('a terminal follows its size', async () => {
  const script = 'trap "stty size" WINCH; trap "exit 9" INT; echo waiting; while :; do sleep 0.1; done'
  const session = terminal('exec', '-it', 'box', '--', 'sh', '-c', script)
  await session.expect(/waiting\r\n/)
  const here = readlinkSync(`/proc/${childrenOf(session.pid, 'holdfast')[0]}/fd/0`)
  execFileSync('stty', ['-F', here, 'rows', '50', 'cols', '132'])
  await session.expect(/50 132/)
  session.type('\x03')
  assert.equal(await session.exitCode(), 9)
})

test('a terminal passes bytes as they are: no CR is added to LF', async () => {
  const session = terminal('exec', '-it', 'box', '--', 'sh', '-c', 'stty raw; printf "<a\\nb\\tc>"')
  await session.expect(/<a\nb\tc>/)
  assert.equal(await session.exitCode(), 0)
})

for (const [how, end] of [
  ['its end', (session: Terminal) => session.type('exit 0\n')],
  [
    'SIGTERM',
    (session: Terminal) =>
      process.kill(childrenOf(childrenOf(session.pid, 'sh')[0] ?? 0, 'holdfast')[0] ?? 0, 'SIGTERM'),
  ],
] as const) {
  test(`the local terminal is as before after ${how}`, async () => {
    const command = installation.command('exec', '-it', 'box', '--', 'sh').join(' ')
    const session = new Terminal(['sh', '-c', `stty -g; ${command}; stty -g; echo done`], installation.env)
    const before = await session.expect(/([0-9a-f:]{50,})\r\n/)
    await session.expect(/# /)
    end(session)
    await session.expect(new RegExp(`${before[1]}\r\ndone`))
    assert.equal(await session.exitCode(), 0)
  })
}

test('run shows the output of the container and exits as it does', async () => {
  const result = await holdfast('run', '--rm', '--', 'sh', '-c', 'echo out; echo err >&2; exit 6')
  assert.deepEqual(result, { code: 6, stdout: 'out\n', stderr: 'err\n' })
  const input = await pipe(Buffer.from('typed\n'), 'run', '--rm', '-i', '--', 'sh', '-c', 'cat; exit 7')
  assert.equal(input.code, 7, input.stderr)
  assert.equal(input.stdout.toString(), 'typed\n')
})

test('run shows all of what was written just before the end', async () => {
  const result = await holdfast('run', '--rm', '--', 'sh', '-c', 'seq 200000')
  assert.equal(result.code, 0, result.stderr)
  assert.equal(
    digest(Buffer.from(result.stdout)),
    digest(Buffer.from(Array.from({ length: 200_000 }, (_, i) => `${i + 1}\n`).join(''))),
  )
})

test('run without a command to run leaves nothing behind', async () => {
  const result = await holdfast('run', '--name', 'never', '--', '/no/such')
  assert.equal(result.code, 127)
  assert.match(result.stderr, /^error: run \/no\/such: .*no such file/)
  assert.doesNotMatch((await holdfast('ps', '-a')).stdout, /never/)
})

test('an interrupt stops a run in the foreground', async () => {
  const child = installation.start(
    'ignore',
    'run',
    '--rm',
    '--name',
    'long',
    '--',
    'sh',
    '-c',
    'trap "exit 8" TERM; echo up; while :; do sleep 0.1; done',
  )
  const result = finish(child)
  await once(child.stdout ?? child, 'data')
  child.kill('SIGINT')
  assert.equal((await result).code, 8)
})

test('a terminal is left with the detach keys, and joined again', async () => {
  const first = terminal('run', '-it', '--name', 'kept', '--', 'sh')
  await first.expect(/# /)
  first.type('MARK=kept-$((40+2))\n')
  await first.expect(/# /)
  first.type('\x10')
  await sleep(300)
  first.type('\x11')
  await first.expect(/detached/)
  assert.equal(await first.exitCode(), 0)
  const second = terminal('attach', 'kept')
  second.type('echo $MARK\n')
  await second.expect(/kept-42/)
  second.type('stty size; cat -v\n')
  await second.expect(/24 80/)
  // A lone ctrl-p reaches the program, and two of them do.
  second.type('\x10')
  await second.expect(/\^P/)
  second.type('\x10\x10x\n')
  await second.expect(/\^P\^Px/)
  second.type('\x03')
  // The shell throws away what is typed before its prompt is back.
  await second.expect(/# /)
  second.type('exit 12\n')
  assert.equal(await second.exitCode(), 12)
  await removePods('kept')
})

test('logs shows the last lines, and follows to the end', async () => {
  await holdfast(
    'run',
    '-d',
    '--name',
    'ticks',
    '--',
    'sh',
    '-c',
    'for i in 1 2 3 4 5 6 7 8; do sleep 0.2; echo tick $i; done; printf rest',
  )
  const followed = await holdfast('logs', '-f', 'ticks')
  assert.equal(
    followed.stdout,
    '1 2 3 4 5 6 7 8'
      .split(' ')
      .map((i) => `tick ${i}\n`)
      .join('') + 'rest\n',
  )
  assert.equal(followed.code, 0)
  assert.equal((await holdfast('logs', '--tail', '2', 'ticks')).stdout, 'tick 8\nrest\n')
  await removePods('ticks')
})

test('port-forward keeps half-closed connections, and outlives one that is refused', async () => {
  await holdfast(
    'exec',
    'box',
    '--',
    'sh',
    '-c',
    'nc -l -p 7000 -e sh -c "cat >/tmp/got; echo reply" >/dev/null 2>&1 & nc -ll -p 7001 -e cat >/dev/null 2>&1 &',
  )
  const forward = installation.start('ignore', 'port-forward', 'box', ':7000', ':7001', ':7999')
  const ended = finish(forward)
  const [half = 0, echo = 0, refused = 0] = await portsOf(forward)
  assert.equal((await talk(refused, 'x')).toString(), '')
  assert.equal((await talk(half, 'input')).toString(), 'reply\n')
  const bytes = randomBytes(2 * 1024 * 1024)
  const replies = await Promise.all(Array.from({ length: 10 }, () => talk(echo, bytes)))
  for (const reply of replies) assert.equal(digest(reply), digest(bytes))
  forward.kill('SIGTERM')
  assert.match((await ended).stderr, /^error: connection to port 7999 of box: /)
})

test('without a daemon everything but run, rm goes on', async () => {
  const session = terminal('exec', '-it', 'box', '--', 'sh')
  await session.expect(/# /)
  await installation.killDaemon('SIGKILL')
  session.type('echo $((6*7))\n')
  await session.expect(/42/)
  assert.equal((await holdfast('exec', 'box', 'echo', 'still')).stdout, 'still\n')
  assert.equal((await holdfast('logs', 'box')).code, 0)
  const list = await holdfast('ps')
  assert.match(list.stdout, /box .*running/)
  assert.match(list.stderr, /no daemon answers/)
  const run = await holdfast('run', '--', 'ls')
  assert.equal(run.code, 125)
  assert.match(run.stderr, /^error: no holdfastd answers at .*; start it/)
  await installation.startDaemon()
  session.type('exit 4\n')
  assert.equal(await session.exitCode(), 4)
})

test('a session whose server dies is 121, with and without a terminal, and so is a forward', async () => {
  const shell = terminal('exec', '-it', 'box', '--', 'sh')
  await shell.expect(/# /)
  const cat = installation.start('pipe', 'exec', '-i', 'box', '--', 'cat')
  const catEnd = finish(cat)
  cat.stdin?.write('x\n')
  await once(cat.stdout ?? cat, 'data')
  const forward = installation.start('ignore', 'port-forward', 'box', ':7001')
  const forwardEnd = finish(forward)
  await portsOf(forward)
  process.kill((await stage.monitorOf('box')).server, 'SIGKILL')
  assert.equal(await shell.exitCode(), 121)
  for (const end of [await catEnd, await forwardEnd]) {
    assert.equal(end.code, 121, end.stderr)
    assert.match(end.stderr, /^error: .*the session broke/)
  }
  for (let tries = 0; tries < 100; tries++) {
    const again = await holdfast('exec', 'box', 'echo', 'back')
    if (again.stdout === 'back\n') return
    await sleep(50)
  }
  assert.fail('the next server does not serve')
})

test('doctor says what it found', async () => {
  const result = await holdfast('doctor')
  assert.match(result.stdout, /^ok +kernel +Linux /m)
  assert.equal(result.code, /^LACKS/m.test(result.stdout) ? 1 : 0)
})

test('help is there for every command, and the version', async () => {
  const help = await holdfast('--help')
  for (const [, name = ''] of help.stdout.matchAll(/^ {2}([a-z-]+) /gm))
    assert.match((await holdfast(name, '--help')).stdout, new RegExp(`^usage: holdfast ${name} `))
  const version = JSON.parse(readFileSync(join(import.meta.dirname, '../../../package.json'), 'utf8')) as {
    version: string
  }
  assert.equal((await holdfast('--version')).stdout, `holdfast ${version.version}\n`)
})

/** The local ports that a port-forward prints, one for each pair. */
async function portsOf(forward: ChildProcess): Promise<number[]> {
  const wanted = forward.spawnargs.filter((word) => word.startsWith(':')).length
  let text = ''
  for await (const chunk of forward.stdout?.iterator({ destroyOnReturn: false }) ?? []) {
    text += String(chunk)
    const ports = [...text.matchAll(/127\.0\.0\.1:(\d+) ->/g)].map((match) => Number(match[1]))
    if (ports.length === wanted) return ports
  }
  throw new Error(`port-forward ended: ${text}`)
}

/** Says something, closes its half, and hears everything. */
function talk(port: number, text: string | Buffer): Promise<Buffer> {
  return new Promise((resolve) => {
    const parts: Buffer[] = []
    const socket = connect({ host: '127.0.0.1', port, allowHalfOpen: true })
    socket.on('data', (chunk: Buffer) => parts.push(chunk))
    // A refused connection is reset.
    socket.on('error', () => {})
    socket.on('end', () => socket.end()).on('close', () => resolve(Buffer.concat(parts)))
    socket.end(text)
  })
}
