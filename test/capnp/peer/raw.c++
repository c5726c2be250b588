// Hand-built RPC messages, as no library sends them. Exits with 0 when every check held.
// usage: raw SOCKET TEST          raw - dump DIRECTORY    (writes sample messages, one a file)

#include "check.h"
#include "conmon.capnp.h"
#include <capnp/message.h>
#include <capnp/rpc.capnp.h>
#include <capnp/serialize.h>
#include <fcntl.h>
#include <kj/debug.h>
#include <map>
#include <poll.h>
#include <string.h>
#include <string>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

namespace rpc = capnp::rpc;

// One message to be sent. When spread, each object has a segment of its own, so that there are far and double-far
// pointers everywhere.
struct Outgoing {
  // Mutable, because writing a message lays it out.
  mutable kj::Own<capnp::MallocMessageBuilder> message;
  rpc::Message::Builder root;

  explicit Outgoing(bool spread = false)
      : message(spread ? kj::heap<capnp::MallocMessageBuilder>(1, capnp::AllocationStrategy::FIXED_SIZE)
                       : kj::heap<capnp::MallocMessageBuilder>()),
        root(message->initRoot<rpc::Message>()) {}
};

static Outgoing bootstrap(uint question, bool spread = false) {
  Outgoing out(spread);
  out.root.initBootstrap().setQuestionId(question);
  return out;
}

// A call of the bootstrap capability by its export number, 0.
static rpc::Call::Builder startCall(Outgoing& out, uint question, uint16_t method) {
  auto call = out.root.initCall();
  call.setQuestionId(question);
  call.setInterfaceId(capnp::typeId<Conmon>());
  call.setMethodId(method);
  call.initTarget().setImportedCap(0);
  return call;
}

static Outgoing versionCall(uint question) {
  Outgoing out;
  startCall(out, question, 0).initParams().getContent().initAs<Conmon::VersionParams>();
  return out;
}

static Outgoing execCall(uint question, kj::StringPtr id) {
  Outgoing out;
  auto content = startCall(out, question, 2).initParams().getContent();
  content.initAs<Conmon::ExecSyncContainerParams>().initRequest().setId(id);
  return out;
}

static Outgoing finish(uint question, bool releaseResultCaps, bool spread = false) {
  Outgoing out(spread);
  auto message = out.root.initFinish();
  message.setQuestionId(question);
  message.setReleaseResultCaps(releaseResultCaps);
  return out;
}

static Outgoing release(uint id, uint count) {
  Outgoing out;
  out.root.initRelease().setId(id);
  out.root.getRelease().setReferenceCount(count);
  return out;
}

struct Peer {
  int socket;
  kj::Own<capnp::StreamFdMessageReader> reader;

  explicit Peer(const char* path) : socket(::socket(AF_UNIX, SOCK_STREAM, 0)) {
    sockaddr_un address{};
    address.sun_family = AF_UNIX;
    strncpy(address.sun_path, path, sizeof address.sun_path - 1);
    KJ_SYSCALL(connect(socket, reinterpret_cast<sockaddr*>(&address), sizeof address));
  }

  ~Peer() { close(socket); }

  void send(const Outgoing& out) { capnp::writeMessageToFd(socket, *out.message); }

  bool readable(int milliseconds) {
    pollfd poll{socket, POLLIN, 0};
    return ::poll(&poll, 1, milliseconds) > 0;
  }

  // The next message; it lives until the next one is received.
  rpc::Message::Reader receive() {
    KJ_REQUIRE(readable(5000), "no message came");
    reader = kj::heap<capnp::StreamFdMessageReader>(socket);
    return reader->getRoot<rpc::Message>();
  }

  bool silent() { return !readable(100); }

  // Whether the connection ends, with or without a last word.
  bool ends() {
    while (readable(5000)) {
      char bytes[4096];
      ssize_t count = read(socket, bytes, sizeof bytes);
      if (count <= 0) {
        return true;
      }
    }
    return false;
  }

  // Bootstraps with question 0.
  void start() {
    send(bootstrap(0));
    auto answer = receive();
    CHECK(answer.getReturn().getResults().getCapTable()[0].getSenderHosted() == 0);
  }

  // A version call by this question is answered.
  void checkAlive(uint question) {
    send(versionCall(question));
    auto answer = receive();
    CHECK(answer.isReturn() && answer.getReturn().getAnswerId() == question);
    auto content = answer.getReturn().getResults().getContent();
    CHECK(content.getAs<Conmon::VersionResults>().getResponse().getTag() == "tag");
  }

  void checkAborted(kj::StringPtr reason) {
    auto answer = receive();
    CHECK(answer.isAbort(), kj::str(answer));
    if (answer.isAbort()) {
      CHECK(answer.getAbort().getReason() == reason, answer.getAbort().getReason());
    }
    CHECK(ends());
  }

  void checkException(uint question, rpc::Exception::Type type) {
    auto answer = receive();
    CHECK(answer.isReturn() && answer.getReturn().getAnswerId() == question, kj::str(answer));
    CHECK(answer.getReturn().isException());
    CHECK(answer.getReturn().getException().getType() == type);
  }
};

static void fillCreate(Conmon::CreateContainerRequest::Builder request) {
  request.setId("segmented-id");
  request.setBundlePath("/bundle");
  request.setTerminal(true);
  auto arguments = request.initCommandArgs(20);
  for (uint i = 0; i < 20; i++) {
    arguments.set(i, kj::str("arg-", i));
  }
  auto drivers = request.initLogDrivers(2);
  drivers[0].setPath("/p0");
  drivers[1].setPath("/p1");
  drivers[1].setType(Conmon::LogDriver::Type::JSON);
  drivers[1].setMaxSize(1ull << 50);
  auto variables = request.initEnvVars(2);
  variables[0].setKey("A");
  variables[0].setValue("B");
  variables[1].setKey("C");
  auto fds = request.initAdditionalFds(2);
  fds.set(0, 5);
  fds.set(1, ~0ull);
  request.setCgroupManager(Conmon::CgroupManager::CGROUPFS);
}

static Outgoing createCall(uint question, bool spread) {
  Outgoing out(spread);
  auto content = startCall(out, question, 1).initParams().getContent();
  fillCreate(content.initAs<Conmon::CreateContainerParams>().initRequest());
  return out;
}

static Outgoing namespacesCall(uint question, bool spread) {
  Outgoing out(spread);
  auto content = startCall(out, question, 6).initParams().getContent();
  auto request = content.initAs<Conmon::CreateNamespacesParams>().initRequest();
  request.setBasePath("/b");
  request.setPodId("p");
  request.initNamespaces(2).set(1, Conmon::Namespace::USER);
  return out;
}

static void testSegments(Peer& peer) {
  peer.send(bootstrap(7, true));
  CHECK(peer.receive().getReturn().isResults());
  auto create = createCall(8, true);
  create.root.getCall().getTarget().initPromisedAnswer().setQuestionId(7);
  CHECK(create.message->getSegmentsForOutput().size() > 30);
  peer.send(create);
  auto content = peer.receive().getReturn().getResults().getContent();
  CHECK(content.getAs<Conmon::CreateContainerResults>().getResponse().getContainerPid() == 4242);
  peer.send(finish(8, true, true));
  // The id is free again.
  peer.send(namespacesCall(8, true));
  auto namespaces = peer.receive().getReturn().getResults().getContent();
  CHECK(namespaces.getAs<Conmon::CreateNamespacesResults>().getResponse().getNamespaces().size() == 2);
}

static void testUnimplemented(Peer& peer) {
  peer.start();
  Outgoing provide;
  provide.root.initProvide().setQuestionId(5);
  peer.send(provide);
  CHECK(peer.receive().getUnimplemented().getProvide().getQuestionId() == 5);

  Outgoing join;
  join.root.initJoin().setQuestionId(6);
  peer.send(join);
  CHECK(peer.receive().getUnimplemented().getJoin().getQuestionId() == 6);

  // A tag that nobody knows, written over another message's.
  Outgoing other = finish(99, true);
  auto segment = other.message->getSegmentsForOutput()[0];
  auto words = kj::heapArray<capnp::word>(segment.begin(), segment.size());
  reinterpret_cast<uint16_t*>(words.begin() + 1)[0] = 100;
  kj::ArrayPtr<const capnp::word> segments[1] = {words};
  capnp::writeMessageToFd(peer.socket, kj::arrayPtr(segments, 1));
  CHECK(peer.receive().isUnimplemented());

  // The peer says it did not understand ours: nothing to do.
  Outgoing unimplemented;
  unimplemented.root.initUnimplemented().initBootstrap().setQuestionId(0);
  peer.send(unimplemented);
  CHECK(peer.silent());
  peer.checkAlive(10);

  // Of several segments it cannot be echoed.
  Outgoing spread(true);
  spread.root.initJoin().initTarget();
  peer.send(spread);
  peer.checkAborted("a message of an unknown kind");
}

static void testDisembargo(Peer& peer) {
  peer.start();
  Outgoing loopback;
  auto disembargo = loopback.root.initDisembargo();
  disembargo.initTarget().initPromisedAnswer().setQuestionId(0);
  disembargo.getContext().setSenderLoopback(77);
  peer.send(loopback);
  CHECK(peer.receive().getDisembargo().getContext().getReceiverLoopback() == 77);

  Outgoing accept;
  accept.root.initDisembargo().initTarget().setImportedCap(0);
  accept.root.getDisembargo().getContext().setAccept();
  peer.send(accept);
  CHECK(peer.receive().isUnimplemented());

  Outgoing resolve;
  resolve.root.initResolve().setPromiseId(3);
  peer.send(resolve);
  CHECK(peer.silent());
  peer.checkAlive(10);

  Outgoing abort;
  abort.root.initAbort().setReason("bye");
  peer.send(abort);
  CHECK(peer.ends());
}

static void testStrayReturn(Peer& peer) {
  peer.start();
  Outgoing stray;
  stray.root.initReturn().setAnswerId(1234);
  peer.send(stray);
  peer.checkAborted("Return for a question that is not open");
}

static void testFinishFirst(Peer& peer) {
  peer.start();
  peer.send(execCall(1, "hang"));
  peer.send(finish(1, true));
  auto answer = peer.receive();
  CHECK(answer.getReturn().getAnswerId() == 1);
  CHECK(answer.getReturn().isCanceled());
  // With the bootstrap answer goes our only reference to the capability.
  peer.send(finish(0, true));
  peer.send(versionCall(2));
  peer.checkAborted("the target of a call is not exported");
}

static void testDuplicateQuestion(Peer& peer) {
  peer.start();
  peer.send(execCall(1, "hang"));
  peer.send(execCall(1, "hang"));
  peer.checkAborted("the question id is already in use");
}

static void testUnknownExport(Peer& peer) {
  peer.start();
  Outgoing call = versionCall(2);
  call.root.getCall().getTarget().setImportedCap(4711);
  peer.send(call);
  peer.checkAborted("the target of a call is not exported");
}

static void testUnknownQuestion(Peer& peer) {
  peer.start();
  Outgoing call = versionCall(2);
  call.root.getCall().getTarget().initPromisedAnswer().setQuestionId(4711);
  peer.send(call);
  peer.checkAborted("the target of a call is not a question that is open");
}

// Calls on what is not a capability fail alone.
static void testWrongTargets(Peer& peer) {
  peer.start();
  peer.send(versionCall(1));
  peer.receive();
  Outgoing onResult = versionCall(2);
  onResult.root.getCall().getTarget().initPromisedAnswer().setQuestionId(1);
  peer.send(onResult);
  peer.checkException(2, rpc::Exception::Type::FAILED);

  Outgoing farField = versionCall(3);
  auto promised = farField.root.getCall().getTarget().initPromisedAnswer();
  promised.setQuestionId(0);
  promised.initTransform(2)[0].setGetPointerField(65535);
  peer.send(farField);
  peer.checkException(3, rpc::Exception::Type::FAILED);

  Outgoing withoutParams;
  startCall(withoutParams, 4, 0);
  peer.send(withoutParams);
  CHECK(peer.receive().getReturn().isResults(), "all defaults");
  peer.checkAlive(5);

  // Question 0 is in use, by the bootstrap.
  Outgoing empty;
  empty.root.initCall();
  peer.send(empty);
  peer.checkAborted("the question id is already in use");
}

static void testRelease(Peer& peer) {
  peer.start();
  peer.send(release(0, 1));
  peer.send(bootstrap(3));
  CHECK(peer.receive().getReturn().isResults());
  peer.checkAlive(4);
  peer.send(release(0, 4000000000u));
  peer.checkAborted("Release of a capability that is not exported");
}

static void testUnknownFinish(Peer& peer) {
  peer.start();
  peer.send(finish(55, false));
  peer.checkAborted("Finish for a question that is not open");
}

static void testSendResults(Peer& peer) {
  peer.start();
  Outgoing yourself = versionCall(2);
  yourself.root.getCall().getSendResultsTo().setYourself();
  peer.send(yourself);
  peer.checkException(2, rpc::Exception::Type::UNIMPLEMENTED);
  Outgoing thirdParty = versionCall(3);
  thirdParty.root.getCall().getSendResultsTo().initThirdParty();
  peer.send(thirdParty);
  peer.checkException(3, rpc::Exception::Type::UNIMPLEMENTED);
  peer.checkAlive(4);
}

static void dumpOne(const std::string& path, Outgoing out) {
  int file = open(path.c_str(), O_CREAT | O_TRUNC | O_WRONLY, 0644);
  KJ_REQUIRE(file >= 0);
  capnp::writeMessageToFd(file, *out.message);
  close(file);
}

// Samples for the fuzzer, each in one segment and in many.
static void dump(const std::string& directory) {
  for (bool spread : {false, true}) {
    auto path = [&](const char* name) { return directory + "/" + name + (spread ? ".spread" : ""); };
    dumpOne(path("bootstrap"), bootstrap(0, spread));
    auto create = createCall(1, spread);
    create.root.getCall().getParams().initCapTable(1);
    dumpOne(path("create"), kj::mv(create));
    dumpOne(path("namespaces"), namespacesCall(3, spread));
    dumpOne(path("finish"), finish(1, true, spread));
    Outgoing exec(spread);
    auto request = startCall(exec, 2, 2).initParams().getContent().initAs<Conmon::ExecSyncContainerParams>().initRequest();
    request.setId("x");
    request.initCommand(3).set(0, "sh");
    dumpOne(path("exec"), kj::mv(exec));
    Outgoing loopback(spread);
    loopback.root.initDisembargo().initTarget().initPromisedAnswer().setQuestionId(0);
    loopback.root.getDisembargo().getContext().setSenderLoopback(1);
    dumpOne(path("disembargo"), kj::mv(loopback));
    Outgoing results(spread);
    results.root.initReturn().initResults().initCapTable(2)[0].setSenderHosted(4);
    dumpOne(path("return"), kj::mv(results));
  }
}

int main(int argc, char** argv) {
  setvbuf(stdout, nullptr, _IOLBF, 0);
  std::map<std::string, void (*)(Peer&)> tests = {
      {"segments", testSegments},
      {"unimplemented", testUnimplemented},
      {"disembargo", testDisembargo},
      {"stray-return", testStrayReturn},
      {"finish-first", testFinishFirst},
      {"duplicate-question", testDuplicateQuestion},
      {"unknown-export", testUnknownExport},
      {"unknown-question", testUnknownQuestion},
      {"wrong-targets", testWrongTargets},
      {"release", testRelease},
      {"unknown-finish", testUnknownFinish},
      {"send-results", testSendResults},
  };
  if (argc > 3 && std::string(argv[2]) == "dump") {
    dump(argv[3]);
    return 0;
  }
  if (argc < 3 || tests.count(argv[2]) == 0) {
    fprintf(stderr, "usage: raw SOCKET TEST\n");
    return 2;
  }
  Peer peer(argv[1]);
  tests[argv[2]](peer);
  return failures > 0;
}
