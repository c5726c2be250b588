// The protocol versions of exec, attach and port-forward as rows of one table (streaming.md §2.7, §3.1), and how one
// of them is chosen. No bytes are read or written here.

/** What a version can do. */
export interface StreamProtocol {
  /** As in `X-Stream-Protocol-Version` and `Sec-WebSocket-Protocol`. */
  readonly name: string
  /** Terminal sizes travel on a channel of their own (v3 and later). */
  readonly resize: boolean
  /** The error channel carries one JSON Status at each end; else text, and only for failures. */
  readonly statusAsJson: boolean
  /** WebSocket: the message `ff 00` ends stdin. */
  readonly closeSignal: boolean
  /** WebSocket: text messages, a digit for the channel and base64. */
  readonly base64: boolean
}

const v1: StreamProtocol = {
  name: 'channel.k8s.io',
  resize: false,
  statusAsJson: false,
  closeSignal: false,
  base64: false,
}
const v2: StreamProtocol = { ...v1, name: 'v2.channel.k8s.io' }
const v3: StreamProtocol = { ...v2, name: 'v3.channel.k8s.io', resize: true }
const v4: StreamProtocol = { ...v3, name: 'v4.channel.k8s.io', statusAsJson: true }
const v5: StreamProtocol = { ...v4, name: 'v5.channel.k8s.io', closeSignal: true }
/** On WebSocket all five channels exist in every version, the one for sizes too. */
const webSocketV1: StreamProtocol = { ...v1, resize: true }

/** Exec and attach over SPDY. */
export const spdyProtocols: readonly StreamProtocol[] = [v4, v3, v2, v1]

/** Exec and attach over WebSocket. */
export const webSocketProtocols: readonly StreamProtocol[] = [
  v5,
  v4,
  { ...v4, name: 'v4.base64.channel.k8s.io', base64: true },
  webSocketV1,
  { ...webSocketV1, name: 'base64.channel.k8s.io', base64: true },
]

/** A WebSocket client that names no protocol gets this one, and no response header. */
export const webSocketDefault: StreamProtocol = webSocketV1

/** Port-forward over SPDY: the only version. */
export const portForwardProtocol: StreamProtocol = { ...v1, name: 'portforward.k8s.io' }

/** The values of a header that may come as several lines, as comma-separated lists, or both; empty ones are dropped. */
export function splitHeader(lines: readonly string[] | undefined): string[] {
  return (lines ?? []).flatMap((line) => line.split(',')).flatMap((value) => value.trim() || [])
}

/** The first of the client's names that the server has. */
export function chooseProtocol(
  offered: readonly string[],
  accepted: readonly StreamProtocol[],
): StreamProtocol | undefined {
  for (const name of offered) {
    const found = accepted.find((protocol) => protocol.name === name)
    if (found !== undefined) return found
  }
  return undefined
}
