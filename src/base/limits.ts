// Every size and time limit, each with its origin. Grouped by the folder that uses it.

// streaming
/** Pending tokens: k8s.io/cri-streaming's request cache. */
export const MAX_PENDING_TOKENS = 1000
/** A token's life: k8s.io/cri-streaming's request cache. */
export const TOKEN_LIFETIME_MS = 60_000
/** All streams of a session must be there by then: k8s.io/cri-streaming StreamCreationTimeout. */
export const STREAM_CREATION_TIMEOUT_MS = 30_000
/** Silence (no data, no new stream) after which a session ends: k8s.io/cri-streaming StreamIdleTimeout. */
export const IDLE_TIMEOUT_MS = 4 * 60 * 60 * 1000
/** Time for a client to close after we did. */
export const CLOSE_TIMEOUT_MS = 5_000
/** TCP keep-alive: notices half-open clients. */
export const KEEPALIVE_MS = 30_000
/** Inflated header block and control frame payload of SPDY: CVE-2026-35469. */
export const MAX_SPDY_CONTROL_BYTES = 64 * 1024
/** Headers of one SPDY block: spdystream 0.5.1. */
export const MAX_SPDY_HEADERS = 1000
/** WebSocket message: k8s.io/cri-streaming. */
export const MAX_WEBSOCKET_MESSAGE_BYTES = 32 * 1024 * 1024
/** Input of one client that no process has taken yet; above it the client's socket is not read. */
export const MAX_PENDING_STDIN_BYTES = 256 * 1024
/** Bytes in a client's socket above which output waits. */
export const SOCKET_HIGH_WATER_BYTES = 128 * 1024
/** Port-forward: silence of the pod after the client's FIN that ends the connection (streaming.md §5.1). */
export const HALF_CLOSED_QUIET_MS = 60_000
/** A dial into the pod, both address families together. */
export const DIAL_TIMEOUT_MS = 5_000
/** Port-forward: bytes that a pod has not taken, of one forwarded connection and of all of one client; above either
 * the client's socket is not read. */
export const MAX_FORWARD_BUFFER_BYTES = 4 * 1024 * 1024
export const MAX_TOTAL_FORWARD_BUFFER_BYTES = 32 * 1024 * 1024
/** Port-forward: open streams of one client, two for each forwarded connection. */
export const MAX_FORWARD_STREAMS = 4096

// stdio
/** One read of a pipe or terminal. */
export const READ_BYTES = 64 * 1024
/** What an attached client may have pending before it counts as full. */
export const MAX_ATTACH_BUFFER_BYTES = 1024 * 1024
/** How long one full attached client may hold up the others. */
export const STALL_LIMIT_MS = 100
/** How long the keeper waits for a copy: STALL_LIMIT_MS plus a tolerated stall of the server's loop, with room. */
export const COPY_PATIENCE_MS = 400
/** ExecSync keeps this much of each stream: CVE-2022-1708. */
export const MAX_EXEC_SYNC_BYTES = 16 * 1024 * 1024
/** After an exit, how long streams may stay open before they are finished anyway (cases B48). */
export const DRAIN_GRACE_MS = 2_000

// container
/** A terminal's process is started when its client has said a size, or by then: all clients of kubectl's kind say one. */
export const FIRST_SIZE_MS = 50
/** After a client vanished, what ignores the hang-up of its terminal is killed (streaming.md §8 rule 33). */
export const VANISHED_KILL_MS = 10_000
/** An OCI runtime that has not finished by then is killed. */
export const OCI_RUNTIME_TIMEOUT_MS = 240_000
/** A successor waits so long for its predecessor's OCI runtime. */
export const OCI_RUNTIME_ADOPT_MS = 10_000
/** What a late attach through conmon-rs's interface replays of the log (CRI-O's tests expect it). */
export const ATTACH_REPLAY_BYTES = 16 * 1024

// capnp
/** Calls of one connection that run at once. */
export const MAX_RUNNING_CALLS = 1024
/** Unfinished answers of one connection; go-capnp's Finish lags behind by thousands. */
export const MAX_ANSWERS = 65_536
/** One message in. */
export const MAX_MESSAGE_BYTES = 16 * 1024 * 1024
/** Replies that the peer has not read: of one connection, and of all. */
export const MAX_CONNECTION_REPLY_BYTES = 64 * 1024 * 1024
export const MAX_TOTAL_REPLY_BYTES = 256 * 1024 * 1024
/** What a running call with a large reply counts before the reply is there: so at most 64 of a connection run at once. */
export const RESERVED_REPLY_BYTES = 1024 * 1024
/** One reply: below the traversal limit of C++, Rust and Go readers. */
export const MAX_REPLY_BYTES = 64 * 1024 * 1024 - 4096
/** Structs, texts and list elements of one message: bounds the time that decoding it may take. */
export const MAX_MESSAGE_VALUES = 128 * 1024
/** Segments of one message: capnproto C++. */
export const MAX_MESSAGE_SEGMENTS = 512
/** Half-received messages of all connections. */
export const MAX_TOTAL_REQUEST_BYTES = 256 * 1024 * 1024
/** Connections of the RPC socket; each costs a descriptor. */
export const MAX_RPC_CONNECTIONS = 512
/** Exception texts are cut here. */
export const MAX_EXCEPTION_BYTES = 64 * 1024
/** After an Abort, how long the peer has to read it. */
export const ABORT_LINGER_MS = 500

// client
/** A call that starts no OCI runtime. */
export const CALL_TIMEOUT_MS = 30_000
/** A call that does: the monitor's own limit and room to report. */
export const OCI_CALL_TIMEOUT_MS = OCI_RUNTIME_TIMEOUT_MS + 30_000
/** From its launch to its RPC socket. */
export const MONITOR_START_TIMEOUT_MS = 30_000

// cri
/** What crictl and the kubelet take in one message; both answers of ExecSync must fit together (cri-client). */
export const MAX_CRI_CLIENT_MESSAGE_BYTES = 16 * 1024 * 1024
/** One request: ours is more than any client sends (containerd and CRI-O take 16 MiB). */
export const MAX_CRI_REQUEST_BYTES = 16 * 1024 * 1024
/** The text of a gRPC error travels in a header. */
export const MAX_CRI_ERROR_BYTES = 4 * 1024
/** After SIGKILL a container's exit must be reported by then. */
export const KILL_TIMEOUT_MS = 10_000
/** A monitor that was told to end has this long (conmon.md §1.3: 15 s for its own shutdown). */
export const MONITOR_STOP_TIMEOUT_MS = 20_000
/** Start, kill, delete and state of an OCI runtime. */
export const OCI_CONTROL_TIMEOUT_MS = 60_000
/** How often exits and dead monitors are looked for, beside being told. */
export const STATE_SCAN_MS = 3_000

// cli
/** One read of a log file. */
export const LOG_READ_BYTES = 64 * 1024
/** How often a followed log is looked at although nothing announced a change: watching misses network mounts. */
export const LOG_LOOK_AGAIN_MS = 500
/** A call to holdfastd: removing a pod takes as long as its containers and its monitor take to end. */
export const CRI_CALL_TIMEOUT_MS = 60_000
/** How long the first detach key waits for the next one (cases B34: 100 ms at most). */
export const DETACH_HOLD_MS = 50
/** How long a session may take to say goodbye after a detach. */
export const DETACH_TIMEOUT_MS = 1_000
/** Connecting to a stream URL: as client-go waits for a stream. */
export const SESSION_OPEN_TIMEOUT_MS = 30_000
/** After an attach session, how long the container's exit may take to be told. */
export const ATTACHED_EXIT_NEWS_MS = 1_000
/** After the output of a container in the foreground ended: DRAIN_GRACE_MS and room for a busy machine. */
export const FOREGROUND_EXIT_NEWS_MS = 15_000
/** Input that a session has not taken yet; above it our stdin is not read. */
export const MAX_SESSION_INPUT_BYTES = 256 * 1024
/** What one forwarded local connection may have pending before the whole session waits (streaming.md §5.1). */
export const MAX_FORWARD_PENDING_BYTES = 4 * 1024 * 1024
