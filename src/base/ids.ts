// Identifiers that name files, sockets and records: parsed once, at the edge.

import { MonitorError } from './errors.ts'

/** Ids become file names and keeper entry names (at most 200 bytes with a prefix): no slash, no NUL, no dot files. */
const idPattern = /^[A-Za-z0-9_][A-Za-z0-9_.+:@-]*$/
const maxIdBytes = 128

/** The id, if it may name a file. `what` names the kind in the error: `container id`. */
export function parseId(what: string, id: string): string {
  if (id === '') throw new MonitorError('invalid-argument', `missing required ${what}`)
  if (id.length > maxIdBytes || !idPattern.test(id)) {
    throw new MonitorError(
      'invalid-argument',
      `${what} ${JSON.stringify(id.slice(0, 40))} is not usable: letters, digits and _.+:@- only, at most ${maxIdBytes} bytes`,
    )
  }
  return id
}
