// The last bytes of a CRI log, for a client that attaches late.

import { closeSync, fstatSync, openSync, readSync } from 'node:fs'
import { parseCriLogLine } from '../wire/cri-log-line.ts'

export interface LogTail {
  readonly stdout: Buffer
  readonly stderr: Buffer
}

/** What is read for so many bytes of output: short lines are mostly timestamp. */
const readFor = (maxBytes: number): number => 4 * maxBytes + 64 * 1024

/** What the container said last, at most `maxBytes` of it; whole entries only. Empty when there is no log to read. */
export function readLogTail(path: string, maxBytes: number): LogTail {
  const entries = readTail(path, readFor(maxBytes)).flatMap((line) => parseCriLogLine(line) ?? [])
  const kept: typeof entries = []
  let bytes = 0
  for (const entry of entries.toReversed()) {
    bytes += entry.content.length + 1
    if (bytes > maxBytes) break
    kept.unshift(entry)
  }
  const text = (stream: string): Buffer =>
    Buffer.concat(
      kept.flatMap((entry) => {
        if (entry.stream !== stream) return []
        return entry.partial ? [entry.content] : [entry.content, Buffer.from('\n')]
      }),
    )
  return { stdout: text('stdout'), stderr: text('stderr') }
}

/** Lines of the last `maxBytes` of the file; the first, which may be cut, is left out unless it is the file's first. */
function readTail(path: string, maxBytes: number): Buffer[] {
  let fd: number
  try {
    fd = openSync(path, 'r')
  } catch {
    return []
  }
  try {
    const { size } = fstatSync(fd)
    const start = Math.max(0, size - maxBytes)
    const buffer = Buffer.alloc(size - start)
    const length = readSync(fd, buffer, 0, buffer.length, start)
    const lines: Buffer[] = []
    for (let from = 0; from < length;) {
      const newline = buffer.indexOf(10, from)
      if (newline < 0 || newline >= length) break
      lines.push(buffer.subarray(from, newline))
      from = newline + 1
    }
    return start === 0 ? lines : lines.slice(1)
  } finally {
    closeSync(fd)
  }
}
