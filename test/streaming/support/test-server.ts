// A streaming server with a fake backend, closed after each test.

import type { TestContext } from 'node:test'
import { Diagnostics } from '../../../src/base/diagnostics.ts'
import type { AttachSession, ExecSession } from '../../../src/streaming/session.ts'
import { StreamingServer, type StreamingServerOptions } from '../../../src/streaming/streaming-server.ts'
import { FakeBackend } from './fake-backend.ts'

export interface TestServer {
  readonly server: StreamingServer
  readonly backend: FakeBackend
  /** What the server said about itself. */
  readonly lines: string[]
  /** URLs of new sessions. */
  readonly exec: (command: readonly string[], flags?: Partial<ExecSession>) => Promise<string>
  readonly attach: (flags?: Partial<AttachSession>) => Promise<string>
  readonly portForward: () => Promise<string>
}

export function startServer(context: TestContext, options: Partial<StreamingServerOptions> = {}): TestServer {
  const lines: string[] = []
  const backend = new FakeBackend()
  const diagnostics = new Diagnostics((line) => lines.push(line), 'debug')
  const server = new StreamingServer({ backend, diagnostics, ...options })
  context.after(() => server.close())
  const streams = { containerId: 'c1', tty: false, stdin: false, stdout: true, stderr: false }
  return {
    server,
    backend,
    lines,
    exec: (command, flags) => server.issue({ kind: 'exec', command, ...streams, ...flags }),
    attach: (flags) =>
      server.issue({ kind: 'attach', stdinOnce: false, replayBytes: 0, ...streams, ...flags }),
    portForward: () => server.issue({ kind: 'portforward', podSandboxId: 'pod1', netnsPath: '', ports: [] }),
  }
}
