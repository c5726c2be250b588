// `holdfast port-forward`: local listeners whose connections go into a pod, through the pod's monitor.

import type { Server, Socket } from 'node:net'
import { MonitorError } from '../base/errors.ts'
import { UsageError, type CommandSpec, type ParsedCommand } from './command-line.ts'
import { stateOption, statePaths, thePod, withMonitor, type CommandContext } from './context.ts'
import { EXIT_BROKEN } from './exit-codes.ts'
import { SpdyForwarder } from './spdy-client.ts'

export const portForwardSpec: CommandSpec = {
  summary: 'Forward local ports into a pod',
  usage: 'POD [LOCAL:]REMOTE…',
  options: {
    address: { value: 'ADDRESS', help: 'where to listen (127.0.0.1)' },
    ...stateOption,
  },
  positionals: [2, 1000],
  notes: [
    'LOCAL empty (`:8080`) is any free port, which is printed. Runs until it is interrupted; exits with 121 if the',
    'session broke.',
  ],
}

/** A local port (0: any free one) and a port of the pod. */
export interface PortPair {
  readonly local: number
  readonly remote: number
}

/** `8080`, `1234:8080` or `:8080`. */
export function parsePortPair(text: string): PortPair {
  const match = /^(?:(\d{0,5}):)?(\d{1,5})$/.exec(text)
  const remote = Number(match?.[2])
  const local = match?.[1] === undefined ? remote : Number(match[1])
  if (match === null || remote < 1 || remote > 65_535 || local > 65_535)
    throw new UsageError(`${JSON.stringify(text)} is no pair of ports: LOCAL:REMOTE, :REMOTE or PORT`)
  return { local, remote }
}

/** Runs `port-forward`. */
export async function portForwardCommand(parsed: ParsedCommand, context: CommandContext): Promise<number> {
  const [name = '', ...texts] = parsed.positionals
  const pairs = texts.map(parsePortPair)
  const { pod, paths } = await thePod(statePaths(parsed, context.env), name)
  const netnsPath = pod.namespaces.net ?? ''
  const url = await withMonitor(paths, (monitor) =>
    monitor.servePortForward({ netnsPath, podSandboxId: pod.id, ports: pairs.map(({ remote }) => remote) }),
  )
  const forwarder = await SpdyForwarder.open(url, (port, text) =>
    context.say(`error: connection to port ${port} of ${name}: ${text}`),
  )
  const servers: Server[] = []
  try {
    const address = parsed.values.get('address') ?? '127.0.0.1'
    for (const { local, remote } of pairs) {
      const server = await listen(address, local, (socket) => forwarder.forward(socket, remote))
      servers.push(server)
      const bound = server.address()
      const port = typeof bound === 'object' && bound !== null ? bound.port : local
      context.stdout.write(`Forwarding from ${address}:${port} -> ${remote}\n`)
    }
    context.say(`error: port-forward ${name}: the session broke: ${await forwarder.ended}`)
    return EXIT_BROKEN
  } finally {
    for (const server of servers) server.close()
    forwarder.close()
  }
}

async function listen(
  address: string,
  port: number,
  onConnection: (socket: Socket) => void,
): Promise<Server> {
  const { createServer } = await import('node:net')
  // Half-open: a client that has said everything still waits for the answer.
  const server = createServer({ allowHalfOpen: true }, onConnection)
  return new Promise((resolve, reject) => {
    server.once('error', (error) =>
      reject(
        new MonitorError('failed-precondition', `listen on ${address}:${port}: ${error.message}`, {
          cause: error,
        }),
      ),
    )
    server.listen(port, address, () => resolve(server))
  })
}
