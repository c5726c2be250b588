// Reads one entry of a CRI log back; the keeper's cri_log.c writes them.
//
//   2026-11-30T06:37:21.022626000+00:00 stdout F text
//   ├─ time, RFC 3339 ────────────────┤ ├────┤ │ └ the rest of the line: bytes, not text
//                                     stream  tag: P is a part of a line, F the line's last part

export interface CriLogEntry {
  readonly stream: 'stdout' | 'stderr'
  /** More of the same line follows. */
  readonly partial: boolean
  /** A view of the line that was given. */
  readonly content: Buffer
}

const space = 0x20
const partialTag = 0x50
const fullTag = 0x46

/** The entry of a line (without its newline); undefined: the line is none. */
export function parseCriLogLine(line: Buffer): CriLogEntry | undefined {
  const afterTime = line.indexOf(space) + 1
  const afterStream = line.indexOf(space, afterTime) + 1
  if (afterTime <= 1 || afterStream <= afterTime) return undefined
  const stream = line.toString('latin1', afterTime, afterStream - 1)
  const tag = line[afterStream]
  if (stream !== 'stdout' && stream !== 'stderr') return undefined
  if ((tag !== partialTag && tag !== fullTag) || line[afterStream + 1] !== space) return undefined
  return { stream, partial: tag === partialTag, content: line.subarray(afterStream + 2) }
}
