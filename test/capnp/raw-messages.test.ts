// Messages that no library sends, built by hand on Cap'n Proto's C++ serialization.

import { afterEach, beforeEach, describe, test } from 'node:test'
import { TestServer } from '../rpc/serve.ts'
import { checkLeaks } from '../support/leak-check.ts'
import { passes } from './peers.ts'

checkLeaks()

let server: TestServer
beforeEach(() => {
  server = new TestServer()
})
afterEach(() => server.close())

const cases = [
  ['segments', 'reads messages with one object a segment'],
  ['unimplemented', 'echoes messages of other levels and unknown kinds'],
  ['disembargo', 'returns a loopback, ignores Resolve, takes an Abort'],
  ['stray-return', 'aborts on a Return that nobody waits for'],
  ['finish-first', 'answers a cancelled call at once, and releases the capability with its answer'],
  ['duplicate-question', 'aborts when a question id is used twice'],
  ['unknown-export', 'aborts on a call of what is not exported'],
  ['unknown-question', 'aborts on a call of an answer that is not open'],
  ['wrong-targets', 'fails only the call whose target is not a capability'],
  ['release', 'counts references, and aborts when too many are released'],
  ['unknown-finish', 'aborts on a Finish of nothing'],
  ['send-results', 'sends results to nobody but the caller'],
] as const

describe('the server', () => {
  for (const [name, title] of cases) {
    test(title, async () => {
      await passes('raw', [server.path, name])
    })
  }
})
