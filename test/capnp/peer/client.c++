// A client of the monitor on Cap'n Proto's C++ implementation. Exits with 0 when every check held.
// usage: client SOCKET TEST [COUNT]

#include "check.h"
#include "conmon.capnp.h"
#include "conmon08.capnp.h"
#include <capnp/rpc-twoparty.h>
#include <chrono>
#include <kj/async-io.h>
#include <kj/async-unix.h>
#include <kj/debug.h>
#include <map>
#include <stdlib.h>
#include <string>
#include <vector>

using ExecResults = Conmon::ExecSyncContainerResults;
using ExecPromise = kj::Promise<capnp::Response<ExecResults>>;

static double now() {
  auto time = std::chrono::steady_clock::now().time_since_epoch();
  return std::chrono::duration<double>(time).count();
}

struct Client {
  kj::AsyncIoContext& io;
  kj::Own<kj::AsyncIoStream> stream;
  kj::Own<capnp::TwoPartyClient> rpc;
  Conmon::Client monitor;

  Client(kj::AsyncIoContext& io, const char* path)
      : io(io), stream(dial(io, path)), rpc(kj::heap<capnp::TwoPartyClient>(*stream)),
        monitor(rpc->bootstrap().castAs<Conmon>()) {}

  static kj::Own<kj::AsyncIoStream> dial(kj::AsyncIoContext& io, const char* path) {
    auto& network = io.provider->getNetwork();
    return network.parseAddress(kj::str("unix:", path)).wait(io.waitScope)->connect().wait(io.waitScope);
  }

  bool answers() {
    return monitor.versionRequest().send().wait(io.waitScope).getResponse().getTag() == "tag";
  }

  // With a size hint of one word the request is spread over many segments.
  ExecPromise exec(kj::StringPtr id, uint arguments = 0, bool spread = false) {
    auto call = spread ? monitor.execSyncContainerRequest(capnp::MessageSize{1, 0})
                       : monitor.execSyncContainerRequest();
    auto request = call.initRequest();
    request.setId(id);
    auto command = request.initCommand(arguments);
    for (uint i = 0; i < arguments; i++) {
      command.set(i, kj::str("argument-", i));
    }
    return call.send();
  }

  std::string stats() {
    auto answer = exec("stats").wait(io.waitScope);
    auto text = answer.getResponse().getStdout().asChars();
    return std::string(text.begin(), text.size());
  }

  // Waits until the server's figures are these: a call that was given up ends a moment later.
  void checkStats(const std::string& expected) {
    std::string seen;
    for (int i = 0; i < 200 && seen != expected; i++) {
      seen = stats();
      pause(10);
    }
    CHECK(seen == expected, seen.c_str());
  }

  void pause(int milliseconds) {
    io.provider->getTimer().afterDelay(milliseconds * kj::MILLISECONDS).wait(io.waitScope);
  }
};

static void testBasic(kj::AsyncIoContext& io, const char* path, int) {
  Client client(io, path);
  auto& wait = io.waitScope;

  auto version = client.monitor.versionRequest();
  version.initRequest().setVerbose(true);
  auto answer = version.send().wait(wait);
  CHECK(answer.getResponse().getCargoTree() == "verbose-tree \u2603");
  CHECK(answer.getResponse().getProcessId() == 4242);
  // Without a request struct at all.
  CHECK(client.monitor.versionRequest().send().wait(wait).getResponse().getCargoTree() == "");

  auto resize = client.monitor.setWindowSizeContainerRequest();
  auto size = resize.initRequest();
  size.setId("c1");
  size.setWidth(65535);
  size.setHeight(40);
  CHECK(resize.send().wait(wait).hasResponse(), "an empty struct is there");

  auto attach = client.monitor.attachContainerRequest();
  attach.initRequest().setId("c1");
  attach.getRequest().setSocketPath("/run/attach");
  attach.getRequest().setStopAfterStdinEof(true);
  CHECK(attach.send().wait(wait).hasResponse());

  auto namespaces = client.monitor.createNamespacesRequest();
  namespaces.initRequest().setBasePath("/run");
  namespaces.getRequest().setPodId("pod");
  auto wanted = namespaces.getRequest().initNamespaces(5);
  for (int i = 0; i < 5; i++) {
    wanted.set(i, static_cast<Conmon::Namespace>(4 - i));
  }
  auto made = namespaces.send().wait(wait);
  CHECK(made.getResponse().getNamespaces().size() == 5);
  CHECK(made.getResponse().getNamespaces()[0].getType() == Conmon::Namespace::UTS);
  CHECK(made.getResponse().getNamespaces()[0].getPath() == "/run/utsns/pod");
  CHECK(client.monitor.createNamespacesRequest().send().wait(wait).getResponse().getNamespaces().size() == 0);

  auto serve = client.monitor.serveExecContainerRequest();
  serve.initRequest().setId("c1");
  auto command = serve.getRequest().initCommand(2);
  command.set(0, "sh");
  command.set(1, "-c");
  CHECK(serve.send().wait(wait).getResponse().getUrl() == "http://127.0.0.1:1/exec/token");

  auto serveAttach = client.monitor.serveAttachContainerRequest();
  serveAttach.initRequest().setId("c1");
  serveAttach.getRequest().setStdin(true);
  CHECK(serveAttach.send().wait(wait).getResponse().getUrl() == "http://127.0.0.1:1/attach/token");

  auto forward = client.monitor.servePortForwardContainerRequest();
  forward.initRequest().setNetNsPath("/run/netns/x");
  CHECK(forward.send().wait(wait).getResponse().getUrl() == "http://127.0.0.1:1/portforward/token");
}

static void testExec(kj::AsyncIoContext& io, const char* path, int) {
  Client client(io, path);
  auto& wait = io.waitScope;
  auto plain = client.exec("x", 77).wait(wait);
  CHECK(plain.getResponse().getExitCode() == 77);
  CHECK(!plain.getResponse().hasStdout(), "empty output is a null pointer");
  CHECK(client.exec("sleep:1", 300, true).wait(wait).getResponse().getExitCode() == 300);
  CHECK(client.exec("signal:15").wait(wait).getResponse().getExitCode() == 143);
  auto late = client.exec("timeout").wait(wait);
  CHECK(late.getResponse().getTimedOut());
  CHECK(late.getResponse().getExitCode() == -3);

  for (uint bytes : {0u, 1u, 7u, 8u, 9u, 4095u, 4096u, 32767u, 32768u, 65535u, 65537u, 10u << 20}) {
    auto answer = client.exec(kj::str("big:", bytes)).wait(wait);
    auto output = answer.getResponse().getStdout();
    CHECK(output.size() == bytes, bytes);
    CHECK(answer.getResponse().getStderr().size() == 1);
    bool same = true;
    for (auto byte : output) {
      same = same && byte == 'a';
    }
    CHECK(same, bytes);
  }
}

// Every field of the largest request, in the layout of either schema. The test compares what the server saw.
template <typename Request> static void fillCreate(Request request, kj::StringPtr id, bool longArguments) {
  request.setId(id);
  request.setBundlePath("/bundle \u00e9");
  request.setTerminal(true);
  request.setStdin(true);
  auto exitPaths = request.initExitPaths(2);
  exitPaths.set(0, "/e0");
  exitPaths.set(1, "");
  request.initOomExitPaths(1).set(0, "/oom");
  auto drivers = request.initLogDrivers(2);
  drivers[0].setMaxSize(0xffffffffffffffffull);
  drivers[1].setPath("/log");
  drivers[1].setMaxSize(1ull << 40);
  request.initCleanupCmd(1).set(0, "cleanup");
  request.initGlobalArgs(1).set(0, "--debug");
  auto arguments = request.initCommandArgs(longArguments ? 500 : 1);
  for (uint i = 0; i < arguments.size(); i++) {
    arguments.set(i, kj::str("a-rather-long-argument-number-", i));
  }
  auto metadata = request.initMetadata(1);
  metadata[0].setKey("traceparent");
  metadata[0].setValue("00-1-2-3");
  auto variables = request.initEnvVars(2);
  for (uint i = 0; i < 2; i++) {
    variables[i].setKey(kj::str("K", i));
    variables[i].setValue(kj::str("V", i));
  }
  auto additional = request.initAdditionalFds(3);
  additional.set(0, 1);
  additional.set(1, 1ull << 63);
  additional.set(2, 3);
  request.initLeakFds(1).set(0, 9);
}

static capnp::Request<capnp::AnyPointer, capnp::AnyPointer> untyped(Client& client, uint16_t method) {
  return capnp::Capability::Client(client.monitor)
      .typelessRequest(capnp::typeId<Conmon>(), method, capnp::MessageSize{64, 0});
}

// Both layouts of conmon-rs in turn on one connection.
static void testLayouts(kj::AsyncIoContext& io, const char* path, int) {
  Client client(io, path);
  auto& wait = io.waitScope;
  for (int round = 0; round < 4; round++) {
    bool old = round % 2 == 1;
    auto call = untyped(client, 1);
    if (old) {
      auto request = call.initAs<old_layout::Conmon::CreateContainerParams>().initRequest();
      fillCreate(request, kj::str("old-", round), round > 1);
      request.getLogDrivers()[0].setType(old_layout::Conmon::LogDriver::Type::JOURNALD);
      request.setCgroupManager(old_layout::Conmon::CgroupManager::CGROUPFS);
      request.initMetadataOld(100);
    } else {
      auto request = call.initAs<Conmon::CreateContainerParams>().initRequest();
      fillCreate(request, kj::str("new-", round), round > 1);
      request.getLogDrivers()[0].setType(Conmon::LogDriver::Type::JOURNALD);
      request.setCgroupManager(Conmon::CgroupManager::CGROUPFS);
    }
    auto answer = call.send().wait(wait);
    CHECK(answer.getAs<Conmon::CreateContainerResults>().getResponse().getContainerPid() == 4242);
  }
}

// The other requests of the old layout, each with the retired field set.
static void testOldRequests(kj::AsyncIoContext& io, const char* path, int) {
  using Old = old_layout::Conmon;
  Client client(io, path);
  auto& wait = io.waitScope;

  auto version = untyped(client, 0);
  version.initAs<Old::VersionParams>().initRequest().setVerbose(true);
  auto versionAnswer = version.send().wait(wait);
  CHECK(versionAnswer.getAs<Old::VersionResults>().getResponse().getCargoTree() == "verbose-tree \u2603");

  auto exec = untyped(client, 2);
  auto execRequest = exec.initAs<Old::ExecSyncContainerParams>().initRequest();
  execRequest.setId("x");
  execRequest.setTimeoutSec(5);
  execRequest.initCommand(1).set(0, "true");
  execRequest.initMetadataOld(3);
  execRequest.initMetadata(1)[0].setKey("k");
  execRequest.initEnvVars(1)[0].setKey("E");
  CHECK(exec.send().wait(wait).getAs<Old::ExecSyncContainerResults>().getResponse().getExitCode() == 1);

  auto attach = untyped(client, 3);
  auto attachRequest = attach.initAs<Old::AttachContainerParams>().initRequest();
  attachRequest.setId("c1");
  attachRequest.setSocketPath("/run/attach");
  attachRequest.initMetadataOld(3);
  attach.send().wait(wait);

  auto resize = untyped(client, 5);
  auto resizeRequest = resize.initAs<Old::SetWindowSizeContainerParams>().initRequest();
  resizeRequest.setId("c1");
  resizeRequest.setWidth(80);
  resizeRequest.setHeight(24);
  resizeRequest.initMetadataOld(3);
  resize.send().wait(wait);

  auto namespaces = untyped(client, 6);
  auto namespacesRequest = namespaces.initAs<Old::CreateNamespacesParams>().initRequest();
  namespacesRequest.initMetadataOld(3);
  namespacesRequest.initNamespaces(1).set(0, Old::Namespace::USER);
  namespacesRequest.initUidMappings(1).set(0, "0 1 2");
  namespacesRequest.initGidMappings(1).set(0, "3 4 5");
  namespacesRequest.setBasePath("/base");
  namespacesRequest.setPodId("pod");
  auto made = namespaces.send().wait(wait);
  CHECK(made.getAs<Old::CreateNamespacesResults>().getResponse().getNamespaces()[0].getPath() == "/base/userns/pod");
}

template <typename Promise>
static void expectException(Promise&& promise, kj::WaitScope& wait, kj::Exception::Type type, kj::StringPtr text) {
  auto thrown = kj::runCatchingExceptions([&]() { promise.wait(wait); });
  KJ_IF_MAYBE(exception, thrown) {
    CHECK(exception->getType() == type, exception->getDescription());
    auto description = exception->getDescription();
    CHECK(description == text || description == kj::str("remote exception: ", text), description);
  } else {
    CHECK(thrown != nullptr, text);
  }
}

static void testExceptions(kj::AsyncIoContext& io, const char* path, int) {
  Client client(io, path);
  auto& wait = io.waitScope;
  auto failed = kj::Exception::Type::FAILED;
  auto unimplemented = kj::Exception::Type::UNIMPLEMENTED;

  auto create = client.monitor.createContainerRequest();
  create.initRequest().setId("broken");
  expectException(create.send(), wait, failed, "create container broken: it is");
  auto reopen = client.monitor.reopenLogContainerRequest();
  reopen.initRequest().setId("c9");
  expectException(reopen.send(), wait, failed, "reopen log of container c9: no such container");
  expectException(client.exec("bug"), wait, failed, "x is not a function");
  expectException(client.exec(""), wait, failed, "missing required container id");
  auto fds = client.monitor.startFdSocketRequest();
  expectException(fds.send(), wait, unimplemented, "start fd socket: not supported yet");
  expectException(untyped(client, 99).send(), wait, unimplemented, "method 99 of Conmon is not implemented");
  auto other = capnp::Capability::Client(client.monitor).typelessRequest(0x1234ull, 0, capnp::MessageSize{8, 0});
  expectException(other.send(), wait, unimplemented, "interface 0x1234 is not implemented");
  auto number = client.monitor.createNamespacesRequest();
  number.initRequest().initNamespaces(1).set(0, static_cast<Conmon::Namespace>(77));
  expectException(number.send(), wait, failed, "namespaces has the unknown value 77");
  CHECK(client.answers(), "after all that");
}

static void testConcurrent(kj::AsyncIoContext& io, const char* path, int) {
  Client client(io, path);
  std::vector<ExecPromise> execs;
  for (int i = 0; i < 64; i++) {
    execs.push_back(client.exec(kj::str("sleep:", 300 - i), i));
  }
  for (int i = 0; i < 64; i++) {
    CHECK(execs[i].wait(io.waitScope).getResponse().getExitCode() == i);
  }
}

static void testPipelined(kj::AsyncIoContext& io, const char* path, int) {
  Client client(io, path);
  // Sent before the bootstrap has returned.
  auto first = client.monitor.versionRequest().send();
  auto second = client.monitor.versionRequest().send();
  CHECK(first.wait(io.waitScope).getResponse().getTag() == "tag");
  CHECK(second.wait(io.waitScope).getResponse().getTag() == "tag");
  client.monitor.whenResolved().wait(io.waitScope);
  CHECK(client.answers());
  for (int i = 0; i < 50; i++) {
    auto again = client.rpc->bootstrap().castAs<Conmon>();
    CHECK(again.versionRequest().send().wait(io.waitScope).getResponse().getTag() == "tag");
  }
}

static void testCancel(kj::AsyncIoContext& io, const char* path, int) {
  Client client(io, path);
  client.monitor.whenResolved().wait(io.waitScope);
  {
    std::vector<ExecPromise> execs;
    for (int i = 0; i < 20; i++) {
      execs.push_back(client.exec("hang"));
    }
    client.pause(50);
  }
  client.checkStats("{\"running\":0,\"givenUp\":20}");
  { auto cancelledAtOnce = client.exec("big:10000000"); }
  CHECK(client.answers());
}

static void testDisconnect(kj::AsyncIoContext& io, const char* path, int) {
  for (int i = 0; i < 20; i++) {
    Client client(io, path);
    auto hanging = client.exec("hang");
    auto large = client.exec("big:10000000");
    client.pause(20);
    if (i % 2 == 1) {
      client.rpc = nullptr;
    }
  }
  Client client(io, path);
  client.checkStats("{\"running\":0,\"givenUp\":20}");
}

// The server goes away during the call.
static void testServerDeath(kj::AsyncIoContext& io, const char* path, int) {
  Client client(io, path);
  client.monitor.whenResolved().wait(io.waitScope);
  auto call = client.exec("hang");
  CHECK(client.answers());
  printf("hanging\n");
  auto thrown = kj::runCatchingExceptions([&]() { call.wait(io.waitScope); });
  KJ_IF_MAYBE(exception, thrown) {
    CHECK(exception->getType() == kj::Exception::Type::DISCONNECTED, exception->getDescription());
  } else {
    CHECK(thrown != nullptr);
  }
}

static void testMany(kj::AsyncIoContext& io, const char* path, int count) {
  for (int i = 0; i < count; i++) {
    Client client(io, path);
    CHECK(client.answers());
  }
}

static void testSoak(kj::AsyncIoContext& io, const char* path, int count) {
  Client client(io, path);
  for (int i = 0; i < count; i++) {
    CHECK(client.answers());
  }
}

static kj::Promise<void> callsInTurn(Client& client, int& left) {
  if (left-- <= 0) {
    return kj::READY_NOW;
  }
  auto call = client.monitor.versionRequest();
  call.initRequest();
  return call.send().then([&](auto&&) { return callsInTurn(client, left); });
}

// Prints one line: calls per second one after another, with 64 under way, and MiB per second of 10 MiB replies.
static void bench(kj::AsyncIoContext& io, const char* path, int count) {
  Client client(io, path);
  for (int i = 0; i < count / 5; i++) {
    client.answers();
  }
  double start = now();
  for (int i = 0; i < count; i++) {
    client.answers();
  }
  double sequential = count / (now() - start);

  int left = count * 4;
  kj::Vector<kj::Promise<void>> lanes;
  start = now();
  for (int i = 0; i < 64; i++) {
    lanes.add(callsInTurn(client, left));
  }
  kj::joinPromises(lanes.releaseAsArray()).wait(io.waitScope);
  double concurrent = count * 4 / (now() - start);

  size_t bytes = 0;
  start = now();
  for (int i = 0; i < 40; i++) {
    bytes += client.exec("big:10485760").wait(io.waitScope).getResponse().getStdout().size();
  }
  printf("%.0f %.0f %.0f\n", sequential, concurrent, bytes / (now() - start) / 1048576);
}

int main(int argc, char** argv) {
  setvbuf(stdout, nullptr, _IOLBF, 0);
  std::map<std::string, void (*)(kj::AsyncIoContext&, const char*, int)> tests = {
      {"basic", testBasic},           {"exec", testExec},       {"layouts", testLayouts},
      {"old-requests", testOldRequests}, {"exceptions", testExceptions}, {"concurrent", testConcurrent},
      {"pipelined", testPipelined},   {"cancel", testCancel},   {"disconnect", testDisconnect},
      {"server-death", testServerDeath}, {"many", testMany},    {"soak", testSoak},
      {"bench", bench},
  };
  if (argc < 3 || tests.count(argv[2]) == 0) {
    fprintf(stderr, "usage: client SOCKET TEST [COUNT]\n");
    return 2;
  }
  auto io = kj::setupAsyncIo();
  tests[argv[2]](io, argv[1], argc > 3 ? atoi(argv[3]) : 1000);
  return failures > 0;
}
