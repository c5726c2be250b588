// Reads CRI log files strictly, and writes what containers would.

import assert from 'node:assert/strict'
import { closeSync, openSync, readFileSync } from 'node:fs'
import { pipe2, write } from '../../src/native/addon.ts'
import type { PumpOptions } from '../../src/keeper/keeper-client.ts'
import type { LentServer } from './monitor.ts'

/** One entry: when, of which stream, whole (F) or not (P), and its text as latin1. */
export interface LogEntry {
  readonly time: string
  readonly stream: 'stdout' | 'stderr'
  readonly tag: 'P' | 'F'
  readonly text: string
}

const header = /^(\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{9}\+00:00) (stdout|stderr) ([PF]) /

/** All entries of a file; fails on anything else in it. */
export function readLog(path: string): LogEntry[] {
  const lines = readFileSync(path, 'latin1').split('\n')
  assert.equal(lines.pop(), '', 'the file ends with a newline')
  return lines.map((line) => {
    const match = header.exec(line)
    assert.ok(match, `no header: ${line.slice(0, 100)}`)
    return {
      time: match[1] ?? '',
      stream: match[2] as LogEntry['stream'],
      tag: match[3] as LogEntry['tag'],
      text: line.slice(match[0].length),
    }
  })
}

/** What one stream wrote, as far as a log can tell: an F adds a newline. */
export function textOf(entries: readonly LogEntry[], stream: LogEntry['stream'] = 'stdout'): string {
  return entries
    .filter((entry) => entry.stream === stream)
    .map((entry) => entry.text + (entry.tag === 'F' ? '\n' : ''))
    .join('')
}

/** Writes everything, blocking; the pipe's other end is read by the keeper, not by us. */
export function writeAll(fd: number, text: string | Buffer): void {
  const bytes = typeof text === 'string' ? Buffer.from(text, 'latin1') : text
  for (let offset = 0; offset < bytes.length;) offset += write(fd, bytes, offset)
}

/** A pump on two fresh pipes, with a log at `path`. Returns the write ends. */
export async function pumpTo(
  server: LentServer,
  name: string,
  path: string | undefined,
  options: PumpOptions = {},
): Promise<[stdout: number, stderr: number]> {
  const [out, stdout] = pipe2()
  const [err, stderr] = pipe2()
  const log = path === undefined ? undefined : openSync(path, 'a', 0o640)
  try {
    await server.client.pump(name, {
      stdout: out,
      stderr: err,
      ...(log === undefined ? {} : { log }),
      ...options,
    })
  } catch (error) {
    for (const fd of [stdout, stderr]) closeSync(fd)
    throw error
  } finally {
    for (const fd of [out, err, log]) if (fd !== undefined) closeSync(fd)
  }
  return [stdout, stderr]
}
