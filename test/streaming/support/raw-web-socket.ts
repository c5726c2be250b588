// A WebSocket client that sends any bytes as frames, right or wrong.

import { once } from 'node:events'
import { request, type IncomingMessage } from 'node:http'
import type { Socket } from 'node:net'

export interface RawWebSocket {
  readonly socket: Socket
  readonly response: IncomingMessage
  /** Everything after the handshake. */
  readonly received: () => Buffer
}

export async function rawWebSocket(url: string, headers: Record<string, string> = {}): Promise<RawWebSocket> {
  const sent = request(url, {
    headers: {
      Connection: 'Upgrade',
      Upgrade: 'websocket',
      'Sec-WebSocket-Version': '13',
      'Sec-WebSocket-Key': 'dGhlIHNhbXBsZSBub25jZQ==',
      'Sec-WebSocket-Protocol': 'v5.channel.k8s.io',
      ...headers,
    },
  })
  sent.end()
  const [response, socket, head] = (await once(sent, 'upgrade')) as [IncomingMessage, Socket, Buffer]
  const chunks = [head]
  socket.on('data', (chunk: Buffer) => chunks.push(chunk))
  socket.on('error', () => {})
  return { socket, response, received: () => Buffer.concat(chunks) }
}

/** A masked frame; the first byte is FIN, reserved bits and opcode. */
export function maskedFrame(first: number, payload: Buffer | string): Buffer {
  const bytes = Buffer.from(payload)
  const long = bytes.length > 125
  const header = Buffer.alloc(long ? 8 : 6)
  header[0] = first
  header[1] = 0x80 | (long ? 126 : bytes.length)
  if (long) header.writeUInt16BE(bytes.length, 2)
  const mask = Buffer.from([1, 2, 3, 4])
  mask.copy(header, header.length - 4)
  bytes.forEach((byte, i) => (bytes[i] = byte ^ (mask[i % 4] ?? 0)))
  return Buffer.concat([header, bytes])
}

/** The code of the Close frame at the end of what came. */
export function closeCodeOf(received: Buffer): number {
  const frame = received.subarray(-4)
  return frame[0] === 0x88 ? frame.readUInt16BE(2) : 0
}
