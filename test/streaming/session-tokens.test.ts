import assert from 'node:assert/strict'
import { test } from 'node:test'
import { SessionTokens } from '../../src/streaming/session-tokens.ts'
import type { ExecSession } from '../../src/streaming/session.ts'
import { checkLeaks } from '../support/leak-check.ts'
import { FakeClock } from './support/fake-clock.ts'

checkLeaks()

const session: ExecSession = {
  kind: 'exec',
  containerId: 'c1',
  command: ['true'],
  tty: false,
  stdin: false,
  stdout: true,
  stderr: false,
}

function createTokens(maxPending = 1000): { tokens: SessionTokens; clock: FakeClock } {
  const clock = new FakeClock()
  let count = 0
  const randomToken = () => `token-${++count}`
  return { clock, tokens: new SessionTokens({ clock, randomToken, maxPending, lifetimeMs: 60_000 }) }
}

test('takes a token once', () => {
  const { tokens } = createTokens()
  const token = tokens.issue(session)
  assert.equal(tokens.take(token), session)
  assert.equal(tokens.take(token), undefined)
  assert.equal(tokens.pending, 0)
})

test('knows no token that it has not issued', () => {
  const { tokens } = createTokens()
  const token = tokens.issue(session)
  assert.equal(tokens.take(token.toUpperCase()), undefined)
  assert.equal(tokens.take(token), session)
})

test('honours a token for sixty seconds and not longer', () => {
  const { tokens, clock } = createTokens()
  const [first, second] = [tokens.issue(session), tokens.issue(session)]
  clock.advance(60_000)
  assert.equal(tokens.take(first), session)
  clock.advance(1)
  assert.equal(tokens.take(second), undefined)
})

test('refuses the thousand and first token, and displaces none', () => {
  const { tokens } = createTokens()
  const issued = Array.from({ length: 1000 }, () => tokens.issue(session))
  assert.throws(() => tokens.issue(session), {
    code: 'resource-exhausted',
    message: 'maximum number of in-flight requests exceeded',
  })
  assert.ok(issued.every((token) => tokens.take(token) === session))
})

test('makes room by forgetting expired tokens', () => {
  const { tokens, clock } = createTokens(2)
  tokens.issue(session)
  clock.advance(30_000)
  tokens.issue(session)
  clock.advance(30_001)
  tokens.issue(session)
  assert.equal(tokens.pending, 2)
})
