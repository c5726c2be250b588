// Runs the whole of `npm test` with each supported Node in turn: 20, 22, 24 and 26, from npm packages. One build serves
// all of them, as the addon must work in each. Ends with a line per Node.
// usage: node dist/test/nodes.js [MAJOR…]

import { spawn } from 'node:child_process'
import { createWriteStream } from 'node:fs'
import { mkdir } from 'node:fs/promises'
import { delimiter, dirname, join } from 'node:path'
import { finished } from 'node:stream/promises'

const repository = dirname(dirname(import.meta.dirname))
const cache = join(repository, '.cache', 'nodes')
const majors = process.argv.length > 2 ? process.argv.slice(2) : ['20', '22', '24', '26']

const lines: string[] = []
for (const major of majors) {
  const node = await install(major)
  lines.push(await runTests(major, node))
}
process.stdout.write(`\n${lines.join('\n')}\n`)

/** Resolves to the path of the newest release of that line. */
async function install(major: string): Promise<string> {
  const directory = join(cache, major)
  await mkdir(directory, { recursive: true })
  const name = `node-linux-${process.arch}`
  say(`Node ${major}: installing`)
  const args = [
    'install',
    '--no-save',
    '--no-audit',
    '--no-fund',
    '--loglevel',
    'error',
    '--prefix',
    directory,
  ]
  const { code } = await run('npm', [...args, `${name}@${major}`], process.env)
  if (code !== 0) throw new Error(`npm could not install ${name}@${major}; its messages are above`)
  return join(directory, 'node_modules', name, 'bin', 'node')
}

async function runTests(major: string, node: string): Promise<string> {
  const log = join(cache, `${major}.log`)
  say(`Node ${major}: testing; the output goes to ${log}`)
  // Launchers find this Node in $PATH, the keeper by its own variable.
  const path = [dirname(node), process.env['PATH'] ?? ''].join(delimiter)
  const env = { ...process.env, PATH: path, HOLDFAST_NODE: node }
  const begin = Date.now()
  const { code, text } = await run(node, [join(repository, 'dist', 'test', 'run.js')], env, log)
  const seconds = Math.round((Date.now() - begin) / 1000)
  const count = (word: string): number =>
    Number(new RegExp(`^\\S* ?${word} (\\d+)$`, 'm').exec(text)?.[1] ?? 0)
  const version = (await run(node, ['--version'], process.env, '')).text.trim()
  const good = code === 0 && count('pass') > 0
  if (!good) {
    process.exitCode = 1
    const failures = text.lastIndexOf('failing tests:')
    process.stdout.write(failures < 0 ? text.slice(-4096) : text.slice(failures))
  }
  return `${good ? 'ok    ' : 'FAILED'} ${version}: ${count('pass')} passed, ${count('fail')} failed, ${seconds} s`
}

/** Runs to the end. Its output goes to the file if one is named, nowhere but into the result for '', else through. */
async function run(
  command: string,
  args: readonly string[],
  env: NodeJS.ProcessEnv,
  log?: string,
): Promise<{ code: number; text: string }> {
  const child = spawn(command, args, {
    cwd: repository,
    env,
    stdio: ['ignore', log === undefined ? 'inherit' : 'pipe', log === undefined ? 'inherit' : 'pipe'],
  })
  const file = log === undefined || log === '' ? undefined : createWriteStream(log)
  let text = ''
  for (const stream of [child.stdout, child.stderr]) {
    stream?.on('data', (chunk: Buffer) => {
      text += chunk.toString()
      file?.write(chunk)
    })
  }
  const code = await new Promise<number>((resolve, reject) => {
    child.once('error', reject)
    child.once('close', (exit) => resolve(exit ?? 1))
  })
  if (file !== undefined) await finished(file.end())
  return { code, text }
}

function say(text: string): void {
  process.stderr.write(`nodes: ${text}\n`)
}
