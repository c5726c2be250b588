// CRI log files read strictly, for tests: every line must be an entry.

import assert from 'node:assert/strict'
import { readFileSync } from 'node:fs'

export interface LogEntry {
  readonly time: string
  readonly stream: string
  /** P: the line goes on in a later entry of its stream; F: it ends here. */
  readonly tag: string
  readonly text: string
}

const entryPattern =
  /^(\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{9}(?:Z|[+-]\d\d:\d\d)) (stdout|stderr) ([PF]) (.*)$/s

/** The entries of a log file; fails for anything that is none, also at its end. */
export function readLog(path: string): LogEntry[] {
  const text = readFileSync(path, 'latin1')
  if (text === '') return []
  assert.ok(text.endsWith('\n'), `${path} ends in a torn entry: ${JSON.stringify(text.slice(-80))}`)
  return text
    .slice(0, -1)
    .split('\n')
    .map((line) => {
      const [, time, stream, tag, content] =
        entryPattern.exec(line) ?? assert.fail(`${path}: no entry: ${JSON.stringify(line.slice(0, 200))}`)
      return { time: time ?? '', stream: stream ?? '', tag: tag ?? '', text: content ?? '' }
    })
}

/** The lines of one stream, fragments joined; fails when the last one was left open. */
export function linesOf(entries: readonly LogEntry[], stream = 'stdout'): string[] {
  const lines: string[] = []
  let open = ''
  let isOpen = false
  for (const entry of entries.filter((other) => other.stream === stream)) {
    open += entry.text
    isOpen = entry.tag === 'P'
    if (isOpen) continue
    lines.push(open)
    open = ''
  }
  assert.ok(!isOpen, `the last line of ${stream} has no F`)
  return lines
}
