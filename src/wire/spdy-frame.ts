// SPDY/3.1 frames as CRI streaming uses them (streaming.md §2.2): an incremental reader of what clients send, and
// the frames that a server sends. It knows no streams and inflates nothing.
//
//   control: 80 03 | type u16 | flags u8 | length u24 | payload
//   data:    0 + streamId u31 | flags u8 (01 = FIN)   | length u24 | payload

import { MonitorError } from '../base/errors.ts'
import { MAX_SPDY_CONTROL_BYTES } from '../base/limits.ts'

const frameTypes = {
  synStream: 1,
  synReply: 2,
  rstStream: 3,
  settings: 4,
  ping: 6,
  goAway: 7,
  headers: 8,
} as const

/** Flags of SYN_STREAM; FIN is also one of DATA. */
export const spdyFlags = { fin: 0x01, unidirectional: 0x02 } as const

/** Why a stream is reset, and why a connection ends. */
export const rstStatus = { protocolError: 1, refusedStream: 3, cancel: 5 } as const
export const goAwayStatus = { ok: 0, protocolError: 1 } as const

/** Payload of one DATA frame out: longer ones delay the answers to pings. */
export const maxDataPayload = 64 * 1024

/** Gets what frames say, in order. What it throws stops the reading. */
export interface SpdyFrameListener {
  /** A piece of a DATA payload, a view; a frame may come in many pieces, and a piece is never empty. */
  onData(streamId: number, piece: Buffer): void
  /** A DATA frame with FIN is complete. */
  onFin(streamId: number): void
  onSynStream(streamId: number, flags: number, block: Buffer): void
  /** Of SYN_REPLY or HEADERS: means nothing, but belongs to the compression. */
  onOtherBlock(block: Buffer): void
  onReset(streamId: number): void
  onPing(id: number): void
  onGoAway(): void
}

const headerBytes = 8

/** Reads frames from chunks that are split anywhere. SETTINGS, WINDOW_UPDATE and unknown frames are skipped. */
export class SpdyReader {
  readonly #listener: SpdyFrameListener
  /** A frame header that is split over chunks. */
  readonly #header = Buffer.alloc(headerBytes)
  #headerFill = 0
  /** A control frame's payload that is split over chunks. */
  #control: Buffer | undefined
  #controlFill = 0
  #type = 0
  #flags = 0
  /** The DATA frame being read; its payload that is still to come. */
  #streamId = 0
  #dataLeft = 0
  #inData = false
  #stopped = false
  /** Frames that may still be begun in this call of read(). */
  #framesLeft = 0

  constructor(listener: SpdyFrameListener) {
    this.#listener = listener
  }

  /** Nothing is read any more, not even the rest of the current chunk. */
  stop(): void {
    this.#stopped = true
    this.#control = undefined
  }

  /**
   * Reads a chunk, or its part up to the frame that is one too many; returns the bytes taken. Throws a MonitorError at
   * the first frame that is malformed; the reader is then stopped.
   */
  read(chunk: Buffer, maxFrames = Infinity): number {
    this.#framesLeft = maxFrames
    let offset = 0
    try {
      while (offset < chunk.length && !this.#stopped) {
        if (this.#framesLeft === 0 && !this.#inData && this.#control === undefined) return offset
        if (this.#inData) offset = this.#readData(chunk, offset)
        else if (this.#control !== undefined) offset = this.#readControl(chunk, offset, this.#control)
        else offset = this.#readHeader(chunk, offset)
      }
    } catch (error) {
      this.stop()
      throw error
    }
    return chunk.length
  }

  #readHeader(chunk: Buffer, offset: number): number {
    if (this.#headerFill === 0 && chunk.length - offset >= headerBytes) {
      return this.#startFrame(chunk, offset, chunk, offset + headerBytes)
    }
    const copied = chunk.copy(this.#header, this.#headerFill, offset)
    this.#headerFill += copied
    if (this.#headerFill < headerBytes) return offset + copied
    this.#headerFill = 0
    return this.#startFrame(this.#header, 0, chunk, offset + copied)
  }

  /** Returns the offset in `chunk` after what was taken. */
  #startFrame(header: Buffer, at: number, chunk: Buffer, offset: number): number {
    this.#framesLeft--
    const first = header.readUInt32BE(at)
    const second = header.readUInt32BE(at + 4)
    const length = second & 0xffffff
    this.#flags = second >>> 24
    if (first >>> 31 === 0) {
      if (first === 0) throw malformed('DATA on stream 0')
      this.#streamId = first
      this.#dataLeft = length
      this.#inData = true
      if (length === 0) this.#endData()
      return offset
    }
    if (first >>> 16 !== 0x8003) throw malformed(`control frame of version ${(first >>> 16) & 0x7fff}`)
    this.#type = first & 0xffff
    if (length > MAX_SPDY_CONTROL_BYTES) throw malformed(`control frame of ${length} bytes`)
    if (chunk.length - offset >= length) {
      this.#controlFrame(chunk.subarray(offset, offset + length))
      return offset + length
    }
    this.#control = Buffer.allocUnsafe(length)
    this.#controlFill = 0
    return offset
  }

  #readData(chunk: Buffer, offset: number): number {
    const end = Math.min(chunk.length, offset + this.#dataLeft)
    this.#dataLeft -= end - offset
    const whole = offset === 0 && end === chunk.length
    this.#listener.onData(this.#streamId, whole ? chunk : chunk.subarray(offset, end))
    if (this.#dataLeft === 0) this.#endData()
    return end
  }

  #endData(): void {
    this.#inData = false
    if ((this.#flags & spdyFlags.fin) !== 0) this.#listener.onFin(this.#streamId)
  }

  #readControl(chunk: Buffer, offset: number, control: Buffer): number {
    const copied = chunk.copy(control, this.#controlFill, offset)
    this.#controlFill += copied
    if (this.#controlFill === control.length) {
      this.#control = undefined
      this.#controlFrame(control)
    }
    return offset + copied
  }

  #controlFrame(payload: Buffer): void {
    const u31 = (at: number) => {
      if (payload.length < at + 4) throw malformed(`control frame of type ${this.#type} is cut`)
      return payload.readUInt32BE(at) & 0x7fffffff
    }
    switch (this.#type) {
      case frameTypes.synStream:
        u31(6)
        this.#listener.onSynStream(u31(0), this.#flags, payload.subarray(10))
        return
      case frameTypes.synReply:
      case frameTypes.headers:
        u31(0)
        this.#listener.onOtherBlock(payload.subarray(4))
        return
      case frameTypes.rstStream:
        this.#listener.onReset(u31(0))
        return
      case frameTypes.ping:
        u31(0)
        this.#listener.onPing(payload.readUInt32BE(0))
        return
      case frameTypes.goAway:
        this.#listener.onGoAway()
        return
      case frameTypes.settings:
        if (u31(0) * 8 + 4 !== payload.length) throw malformed('SETTINGS of a wrong length')
        return
      default:
    }
  }
}

/** The eight bytes before a DATA payload. */
export function dataHeader(streamId: number, length: number, fin = false): Buffer {
  const header = Buffer.allocUnsafe(headerBytes)
  writeDataHeader(header, streamId, length, fin)
  return header
}

/** A whole DATA frame, with the payload copied: for small ones. */
export function dataFrame(streamId: number, payload: Buffer, fin = false): Buffer {
  const frame = Buffer.allocUnsafe(headerBytes + payload.length)
  writeDataHeader(frame, streamId, payload.length, fin)
  payload.copy(frame, headerBytes)
  return frame
}

/** SYN_REPLY with a block that is already compressed. */
export function synReplyFrame(streamId: number, block: Buffer): Buffer {
  const frame = controlHeader(frameTypes.synReply, 4 + block.length)
  frame.writeUInt32BE(streamId, 8)
  block.copy(frame, 12)
  return frame
}

export function rstStreamFrame(streamId: number, status: number): Buffer {
  return controlFrame(frameTypes.rstStream, streamId, status)
}

export function goAwayFrame(lastStreamId: number, status: number): Buffer {
  return controlFrame(frameTypes.goAway, lastStreamId, status)
}

export function pingFrame(id: number): Buffer {
  return controlFrame(frameTypes.ping, id)
}

function writeDataHeader(into: Buffer, streamId: number, length: number, fin: boolean): void {
  into.writeUInt32BE(streamId, 0)
  into.writeUInt32BE((fin ? 0x01000000 : 0) + length, 4)
}

function controlFrame(type: number, ...words: number[]): Buffer {
  const frame = controlHeader(type, 4 * words.length)
  words.forEach((word, i) => frame.writeUInt32BE(word, headerBytes + 4 * i))
  return frame
}

/** A control frame whose payload is still to be written. */
function controlHeader(type: number, length: number): Buffer {
  const frame = Buffer.allocUnsafe(headerBytes + length)
  frame.writeUInt32BE(0x80030000 + type, 0)
  frame.writeUInt32BE(length, 4)
  return frame
}

function malformed(what: string): MonitorError {
  return new MonitorError('invalid-argument', `read SPDY frame: ${what}`)
}
