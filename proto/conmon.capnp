# The RPC that runtimes speak to a monitor: wire-compatible with conmon-rs (same ids, ordinals and types).
#
# `metadataOld` is where the layouts differ: up to conmon-rs 0.8 it is Data and takes a pointer slot, from 1.0 on it is
# Void and takes none. This file is the newer layout; the generator notes the slot, and the codec reads both.

@0xffaaf7385bc4adad;

interface Conmon {
  version @0 (request: VersionRequest) -> (response: VersionResponse);
  createContainer @1 (request: CreateContainerRequest) -> (response: CreateContainerResponse);
  execSyncContainer @2 (request: ExecSyncContainerRequest) -> (response: ExecSyncContainerResponse);
  attachContainer @3 (request: AttachRequest) -> (response: AttachResponse);
  reopenLogContainer @4 (request: ReopenLogRequest) -> (response: ReopenLogResponse);
  setWindowSizeContainer @5 (request: SetWindowSizeRequest) -> (response: SetWindowSizeResponse);
  createNamespaces @6 (request: CreateNamespacesRequest) -> (response: CreateNamespacesResponse);
  startFdSocket @7 (request: StartFdSocketRequest) -> (response: StartFdSocketResponse);
  serveExecContainer @8 (request: ServeExecContainerRequest) -> (response: ServeExecContainerResponse);
  serveAttachContainer @9 (request: ServeAttachContainerRequest) -> (response: ServeAttachContainerResponse);
  servePortForwardContainer @10 (request: ServePortForwardContainerRequest) -> (response: ServePortForwardContainerResponse);

  struct TextTextMapEntry {
    key @0 :Text;
    value @1 :Text;
  }

  # Tracing context and the like. Read and ignored.
  using Metadata = List(TextTextMapEntry);

  enum CgroupManager {
    systemd @0;
    cgroupfs @1;
  }

  struct VersionRequest {
    # Also the dependency tree, which is long.
    verbose @0 :Bool;
    metadataOld @1 :Void;
    metadata @2 :Metadata;
  }

  struct VersionResponse {
    # The monitor's pid: the one that stands in its pidfile.
    processId @0 :UInt32;
    # Semantic version without a leading v; callers parse it strictly.
    version @1 :Text;
    tag @2 :Text;
    commit @3 :Text;
    buildDate @4 :Text;
    target @5 :Text;
    rustVersion @6 :Text;
    cargoVersion @7 :Text;
    cargoTree @8 :Text;
    metadataOld @9 :Void;
  }

  struct LogDriver {
    type @0 :Type;
    path @1 :Text;
    # Bytes after which the log starts anew; 0: no limit.
    maxSize @2 :UInt64;

    enum Type {
      containerRuntimeInterface @0;
      json @1;
      journald @2;
    }
  }

  struct CreateContainerRequest {
    id @0 :Text;
    bundlePath @1 :Text;
    terminal @2 :Bool;
    stdin @3 :Bool;
    # Files that get the exit code, and files that appear after an OOM kill.
    exitPaths @4 :List(Text);
    oomExitPaths @5 :List(Text);
    logDrivers @6 :List(LogDriver);
    # Runs once after the container has exited.
    cleanupCmd @7 :List(Text);
    # For the OCI runtime, before and after its command word.
    globalArgs @8 :List(Text);
    commandArgs @9 :List(Text);
    metadataOld @10 :Void;
    metadata @11 :Metadata;
    # Environment of the OCI runtime, on top of the monitor's.
    envVars @12 :Metadata;
    cgroupManager @13 :CgroupManager;
    # Slots of the fd socket: handed to the OCI runtime from 3 on, and held until the container exits.
    additionalFds @14 :List(UInt64);
    leakFds @15 :List(UInt64);
  }

  struct CreateContainerResponse {
    containerPid @0 :UInt32;
  }

  struct ExecSyncContainerRequest {
    id @0 :Text;
    # 0: no limit.
    timeoutSec @1 :UInt64;
    command @2 :List(Text);
    terminal @3 :Bool;
    metadataOld @4 :Void;
    metadata @5 :Metadata;
    envVars @6 :Metadata;
    cgroupManager @7 :CgroupManager;
  }

  struct ExecSyncContainerResponse {
    # 128 + N after signal N, -3 after a timeout.
    exitCode @0 :Int32;
    stdout @1 :Data;
    stderr @2 :Data;
    timedOut @3 :Bool;
  }

  struct AttachRequest {
    id @0 :Text;
    # Where the attach socket is made.
    socketPath @1 :Text;
    execSessionId @2 :Text;
    stopAfterStdinEof @3 :Bool;
    metadataOld @4 :Void;
    metadata @5 :Metadata;
  }

  struct AttachResponse {}

  struct ReopenLogRequest {
    id @0 :Text;
    metadataOld @1 :Void;
    metadata @2 :Metadata;
  }

  struct ReopenLogResponse {}

  struct SetWindowSizeRequest {
    id @0 :Text;
    # Columns and rows.
    width @1 :UInt16;
    height @2 :UInt16;
    metadataOld @3 :Void;
    metadata @4 :Metadata;
  }

  struct SetWindowSizeResponse {}

  enum Namespace {
    ipc @0;
    net @1;
    pid @2;
    user @3;
    uts @4;
  }

  struct CreateNamespacesRequest {
    metadataOld @0 :Void;
    namespaces @1 :List(Namespace);
    # "CONTAINER_ID HOST_ID SIZE" each.
    uidMappings @2 :List(Text);
    gidMappings @3 :List(Text);
    basePath @4 :Text;
    podId @5 :Text;
    metadata @6 :Metadata;
  }

  struct NamespaceResponse {
    type @0 :Namespace;
    path @1 :Text;
  }

  struct CreateNamespacesResponse {
    namespaces @0 :List(NamespaceResponse);
  }

  struct StartFdSocketRequest {
    metadata @0 :Metadata;
  }

  struct StartFdSocketResponse {
    path @0 :Text;
  }

  struct ServeExecContainerRequest {
    metadata @0 :Metadata;
    id @1 :Text;
    command @2 :List(Text);
    tty @3 :Bool;
    stdin @4 :Bool;
    stdout @5 :Bool;
    stderr @6 :Bool;
    cgroupManager @7 :CgroupManager;
  }

  struct ServeExecContainerResponse {
    url @0 :Text;
  }

  struct ServeAttachContainerRequest {
    metadata @0 :Metadata;
    id @1 :Text;
    stdin @2 :Bool;
    stdout @3 :Bool;
    stderr @4 :Bool;
  }

  struct ServeAttachContainerResponse {
    url @0 :Text;
  }

  struct ServePortForwardContainerRequest {
    metadata @0 :Metadata;
    # Empty: the host's network.
    netNsPath @1 :Text;
  }

  struct ServePortForwardContainerResponse {
    url @0 :Text;
  }
}
