# What a holdfast monitor offers beyond conmon-rs, on the same bootstrap capability: a client that knows only Conmon
# never notices. Fields are only ever added, at the end.

@0xc211c12693c81452;

using Conmon = import "conmon.capnp".Conmon;

interface Holdfast extends(Conmon) {
  serveAttach @0 (request: ServeAttachRequest) -> (response: ServeResponse);
  servePortForward @1 (request: ServePortForwardRequest) -> (response: ServeResponse);
  listContainers @2 (request: ListContainersRequest) -> (response: ListContainersResponse);

  # A flag that the caller may not know.
  enum Flag {
    unknown @0;
    no @1;
    yes @2;
  }

  struct ServeAttachRequest {
    id @0 :Text;
    stdin @1 :Bool;
    stdout @2 :Bool;
    stderr @3 :Bool;
    # Checked against the container when known.
    tty @4 :Flag;
    # The container's stdin ends with its first client's.
    stdinOnce @5 :Flag;
    # How much of the log's tail comes before live output.
    replayBytes @6 :UInt32;
  }

  struct ServePortForwardRequest {
    # Empty: the host's network.
    netnsPath @0 :Text;
    # For messages.
    podSandboxId @1 :Text;
    # Only for clients that cannot name ports themselves.
    ports @2 :List(UInt16);
  }

  # A single-use URL.
  struct ServeResponse {
    url @0 :Text;
  }

  struct ListContainersRequest {}

  struct ListContainersResponse {
    containers @0 :List(ContainerInfo);
  }

  enum ContainerState {
    creating @0;
    running @1;
    exited @2;
  }

  struct ContainerInfo {
    id @0 :Text;
    pid @1 :UInt32;
    state @2 :ContainerState;
    # Only of an exited container.
    exitCode @3 :Int32;
    terminal @4 :Bool;
    # Exec and attach clients connected now.
    sessions @5 :UInt32;
  }
}
