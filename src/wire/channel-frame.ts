// WebSocket messages of exec and attach (streaming.md §3.2), and the frames around the server's own ones.
//
//   binary:  [channel byte][payload]                    in one unmasked, unfragmented binary frame
//   base64:  [digit '0' + channel][base64 of payload]   in one text frame
//   frame:   82 or 81 | length: 1 byte, or 7e and u16   (a message is at most 32 KiB + 1)

/** Channel numbers. */
export const channels = { stdin: 0, stdout: 1, stderr: 2, error: 3, resize: 4, close: 255 } as const

/** Payload of one message out: as k8s.io/cri-streaming. */
export const maxMessagePayload = 32 * 1024

const binaryFrame = 0x82
const textFrame = 0x81
const digitZero = 0x30

/** The bytes before a binary payload of at most maxMessagePayload bytes: frame header and channel byte. */
export function channelHeader(channel: number, payloadLength: number): Buffer {
  return withHeader(binaryFrame, channel, payloadLength, 0)
}

/** Header and payload in one buffer, with the payload copied: for small ones. */
export function channelFrame(channel: number, payload: Buffer): Buffer {
  const frame = withHeader(binaryFrame, channel, payload.length, payload.length)
  payload.copy(frame, frame.length - payload.length)
  return frame
}

/** One message of the base64 codec. */
export function base64Frame(channel: number, payload: Buffer): Buffer {
  const text = payload.toString('base64')
  const frame = withHeader(textFrame, digitZero + channel, text.length, text.length)
  frame.write(text, frame.length - text.length, 'latin1')
  return frame
}

/** What a message says; undefined: it is to be ignored (empty, or not base64). */
export interface ChannelMessage {
  readonly channel: number
  readonly payload: Buffer
}

/** Takes a message apart; the payload of the binary codec is a view. */
export function parseChannelMessage(message: Buffer, base64: boolean): ChannelMessage | undefined {
  const first = message[0]
  if (first === undefined) return undefined
  if (!base64) return { channel: first, payload: message.subarray(1) }
  const text = message.toString('latin1', 1)
  if (first < digitZero || first > digitZero + 9 || !isBase64(text)) return undefined
  return { channel: first - digitZero, payload: Buffer.from(text, 'base64') }
}

function isBase64(text: string): boolean {
  return text.length % 4 === 0 && /^[A-Za-z0-9+/]*={0,2}$/.test(text)
}

/** A frame header, the channel, and `room` bytes after them. */
function withHeader(opcode: number, channel: number, payloadLength: number, room: number): Buffer {
  const length = payloadLength + 1
  const headerLength = length > 125 ? 4 : 2
  const frame = Buffer.allocUnsafe(headerLength + 1 + room)
  frame[0] = opcode
  if (headerLength === 2) frame[1] = length
  else {
    frame[1] = 126
    frame.writeUInt16BE(length, 2)
  }
  frame[headerLength] = channel
  return frame
}
