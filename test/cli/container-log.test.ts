import assert from 'node:assert/strict'
import {
  appendFileSync,
  mkdtempSync,
  renameSync,
  rmSync,
  truncateSync,
  unlinkSync,
  writeFileSync,
} from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { PassThrough } from 'node:stream'
import { test } from 'node:test'
import { readContainerLog, type LogEntry } from '../../src/cli/container-log.ts'
import { LogPrinter } from '../../src/cli/logs-command.ts'
import { checkLeaks } from '../support/leak-check.ts'

checkLeaks()

const time = '2026-11-30T12:00:00.000000001+00:00'

function entry(text: string, stream = 'stdout', tag = 'F'): string {
  return `${time} ${stream} ${tag} ${text}\n`
}

/** Runs `body` with the path of a log in a directory of its own. */
async function withLog(content: string | undefined, body: (path: string) => Promise<void>): Promise<void> {
  const directory = mkdtempSync(join(tmpdir(), 'holdfast-log-'))
  const path = join(directory, 'c.log')
  try {
    if (content !== undefined) writeFileSync(path, content)
    await body(path)
  } finally {
    rmSync(directory, { recursive: true })
  }
}

async function texts(entries: AsyncIterable<LogEntry>): Promise<string[]> {
  const all: string[] = []
  for await (const { content, partial } of entries) all.push(`${String(content)}${partial ? '+' : ''}`)
  return all
}

const once = { follow: false, ended: () => Promise.resolve(true) }

const lines = (count: number): string => Array.from({ length: count }, (_, i) => entry(`${i}`)).join('')

const tails: [string, string, number, string[]][] = [
  ['the last two lines', lines(5), 2, ['3', '4']],
  ['no line', lines(5), 0, []],
  ['all lines when there are fewer', lines(2), 10, ['0', '1']],
  ['a line in parts as one', entry('a') + entry('b', 'stdout', 'P') + entry('c'), 1, ['b+', 'c']],
  ['an unfinished line as one', entry('a') + entry('b') + entry('c', 'stdout', 'P'), 2, ['b', 'c+']],
  [
    'parts of two streams apart',
    entry('a') + entry('b', 'stdout', 'P') + entry('e', 'stderr') + entry('c'),
    2,
    ['b+', 'e', 'c'],
  ],
  ['nothing of an empty log', '', 3, []],
]
for (const [name, content, count, expected] of tails) {
  test(`tail shows ${name}`, async () => {
    await withLog(content, async (path) => {
      assert.deepEqual(await texts(readContainerLog(path, { ...once, tail: count })), expected)
    })
  })
}

test('tail finds its lines in a log far larger than one read', async () => {
  const total = 40_000
  await withLog(lines(total), async (path) => {
    for (const count of [1, 999, 2000, 39_999]) {
      const shown = await texts(readContainerLog(path, { ...once, tail: count }))
      assert.equal(shown.length, count)
      assert.equal(shown[0], String(total - count))
      assert.equal(shown.at(-1), String(total - 1))
    }
  })
})

test('reads entries that are longer than one read', async () => {
  const long = 'x'.repeat(200_000)
  await withLog(entry(long) + entry('end'), async (path) => {
    assert.deepEqual(await texts(readContainerLog(path, { ...once, tail: undefined })), [long, 'end'])
    assert.deepEqual(await texts(readContainerLog(path, { ...once, tail: 2 })), [long, 'end'])
  })
})

test('skips what is no entry', async () => {
  await withLog(`nonsense\n${entry('a')}\n`, async (path) => {
    assert.deepEqual(await texts(readContainerLog(path, { ...once, tail: undefined })), ['a'])
  })
})

test('a log that is not there is an error that names it', async () => {
  await withLog(undefined, async (path) => {
    await assert.rejects(
      texts(readContainerLog(path, { ...once, tail: undefined })),
      new RegExp(`${path}: there is none`),
    )
  })
})

/** Follows a log; each step is done when all entries of the steps before were seen. */
async function follow(
  path: string,
  steps: readonly { write: () => void; see: readonly string[] }[],
): Promise<void> {
  let ended = false
  const reader = readContainerLog(path, {
    tail: undefined,
    follow: true,
    ended: () => Promise.resolve(ended),
  })
  for (const { write, see } of steps) {
    write()
    for (const text of see) assert.equal(String((await reader.next()).value?.content), text)
  }
  ended = true
  assert.equal((await reader.next()).done, true)
}

test('follows what is appended, entries written in pieces included', async () => {
  await withLog(entry('a'), async (path) => {
    const [head, tail] = [entry('c').slice(0, 20), entry('c').slice(20)]
    await follow(path, [
      { write: () => {}, see: ['a'] },
      { write: () => appendFileSync(path, entry('b') + head), see: ['b'] },
      { write: () => appendFileSync(path, tail), see: ['c'] },
    ])
  })
})

test('follows a log that does not exist yet', async () => {
  await withLog(undefined, async (path) => {
    const waiting = follow(path, [{ write: () => {}, see: ['a'] }])
    setImmediate(() => writeFileSync(path, entry('a')))
    await waiting
  })
})

test('follows across rotation by the monitor, the rest of the old file first', async () => {
  await withLog(entry('a'), async (path) => {
    await follow(path, [
      { write: () => {}, see: ['a'] },
      {
        write: () => {
          appendFileSync(path, entry('b'))
          renameSync(path, `${path}.1`)
          writeFileSync(path, entry('c'))
        },
        see: ['b', 'c'],
      },
    ])
  })
})

test('loses nothing when the log is rotated twice between two looks', async () => {
  await withLog(entry('a'), async (path) => {
    writeFileSync(`${path}.1`, entry('older'))
    await follow(path, [
      { write: () => {}, see: ['a'] },
      {
        write: () => {
          for (const text of ['b', 'c']) {
            renameSync(path, `${path}.1`)
            writeFileSync(path, entry(text))
          }
        },
        see: ['b', 'c'],
      },
    ])
  })
})

test('follows across rotation by a kubelet, which renames and has the log reopened', async () => {
  await withLog(entry('a'), async (path) => {
    await follow(path, [
      { write: () => {}, see: ['a'] },
      { write: () => renameSync(path, `${path}.20261130-120000`), see: [] },
      { write: () => appendFileSync(`${path}.20261130-120000`, entry('b')), see: ['b'] },
      { write: () => writeFileSync(path, entry('c')), see: ['c'] },
    ])
  })
})

test('starts anew when the log is truncated', async () => {
  await withLog(entry('a') + entry('b'), async (path) => {
    await follow(path, [
      { write: () => {}, see: ['a', 'b'] },
      {
        write: () => {
          truncateSync(path)
          appendFileSync(path, entry('c'))
        },
        see: ['c'],
      },
    ])
  })
})

test('reads a removed log to its end', async () => {
  await withLog(entry('a'), async (path) => {
    await follow(path, [
      { write: () => {}, see: ['a'] },
      {
        write: () => {
          appendFileSync(path, entry('b'))
          unlinkSync(path)
        },
        see: ['b'],
      },
    ])
  })
})

test('prints the bytes as the container wrote them, each stream to its own', async () => {
  const output = { stdout: new PassThrough(), stderr: new PassThrough() }
  const content =
    entry('a') + entry('b', 'stdout', 'P') + entry('e', 'stderr') + entry('c') + entry('', 'stderr')
  await withLog(content, async (path) => {
    const printer = new LogPrinter(output, false)
    for await (const each of readContainerLog(path, { ...once, tail: undefined })) await printer.print(each)
  })
  assert.equal(String(output.stdout.read()), 'a\nbc\n')
  assert.equal(String(output.stderr.read()), 'e\n\n')
})

test('prints the time once a line', async () => {
  const output = { stdout: new PassThrough(), stderr: new PassThrough() }
  await withLog(entry('b', 'stdout', 'P') + entry('c') + entry('d'), async (path) => {
    const printer = new LogPrinter(output, true)
    for await (const each of readContainerLog(path, { ...once, tail: undefined })) await printer.print(each)
  })
  assert.equal(String(output.stdout.read()), `${time} bc\n${time} d\n`)
})
