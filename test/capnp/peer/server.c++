// A server of the same interface on Cap'n Proto's C++ implementation. Prints `listening` when it is.
// usage: server SOCKET

#include "conmon.capnp.h"
#include <capnp/rpc-twoparty.h>
#include <kj/async-io.h>
#include <kj/debug.h>
#include <string>
#include <unistd.h>

class FakeMonitor final : public Conmon::Server {
public:
  explicit FakeMonitor(kj::Timer& timer) : timer(timer) {}

  kj::Promise<void> version(VersionContext context) override {
    bool verbose = context.getParams().getRequest().getVerbose();
    auto response = context.getResults().initResponse();
    response.setProcessId(getpid());
    response.setVersion("1.2.3");
    response.setTag("tag");
    response.setCommit("c0ffee");
    response.setBuildDate("now");
    response.setTarget("c++");
    response.setRustVersion("none");
    response.setCargoVersion("none");
    response.setCargoTree(verbose ? "verbose-tree \u2603" : "");
    return kj::READY_NOW;
  }

  // Fails unless the request is the one that the test sends.
  kj::Promise<void> createContainer(CreateContainerContext context) override {
    auto request = context.getParams().getRequest();
    KJ_REQUIRE(request.getId() == "id \u2603" && request.getBundlePath() == "/b" && request.getTerminal());
    KJ_REQUIRE(!request.getStdin() && request.getCgroupManager() == Conmon::CgroupManager::CGROUPFS);
    KJ_REQUIRE(request.getExitPaths().size() == 2 && request.getExitPaths()[1] == "");
    auto drivers = request.getLogDrivers();
    KJ_REQUIRE(drivers.size() == 2 && drivers[0].getPath() == "/log" && drivers[0].getMaxSize() == 1ull << 40);
    KJ_REQUIRE(drivers[1].getType() == Conmon::LogDriver::Type::JOURNALD);
    KJ_REQUIRE(request.getCommandArgs().size() == 300 && request.getCommandArgs()[299] == "argument 299");
    KJ_REQUIRE(request.getEnvVars()[0].getKey() == "K" && request.getEnvVars()[0].getValue() == "V");
    context.getResults().initResponse().setContainerPid(4242);
    return kj::READY_NOW;
  }

  kj::Promise<void> execSyncContainer(ExecSyncContainerContext context) override {
    auto request = context.getParams().getRequest();
    std::string id(request.getId().cStr());
    if (id.rfind("sleep:", 0) == 0) {
      auto delay = std::stoi(id.substr(6)) * kj::MILLISECONDS;
      return timer.afterDelay(delay).then([context]() mutable {
        auto arguments = context.getParams().getRequest().getCommand().size();
        context.getResults().initResponse().setExitCode(arguments);
      });
    }
    if (id == "hang") {
      return kj::NEVER_DONE;
    }
    if (id.rfind("big:", 0) == 0) {
      size_t bytes = std::stoul(id.substr(4));
      auto response = context.getResults(capnp::MessageSize{bytes / 8 + 64, 0}).initResponse();
      auto output = response.initStdout(bytes);
      memset(output.begin(), 'a', bytes);
      return kj::READY_NOW;
    }
    if (id == "spread") {
      // Without a hint of the size: several segments.
      auto response = context.getResults(capnp::MessageSize{4, 0}).initResponse();
      response.setExitCode(-3);
      response.setTimedOut(true);
      memset(response.initStderr(100000).begin(), 'e', 100000);
      memset(response.initStdout(300001).begin(), 'o', 300001);
      return kj::READY_NOW;
    }
    if (id == "null") {
      context.getResults();
      return kj::READY_NOW;
    }
    context.getResults().initResponse().setExitCode(request.getTimeoutSec());
    return kj::READY_NOW;
  }

  kj::Promise<void> attachContainer(AttachContainerContext) override {
    KJ_FAIL_REQUIRE("attach is broken");
  }

  kj::Promise<void> reopenLogContainer(ReopenLogContainerContext) override {
    return KJ_EXCEPTION(OVERLOADED, "too busy");
  }

  kj::Promise<void> createNamespaces(CreateNamespacesContext context) override {
    auto request = context.getParams().getRequest();
    auto wanted = request.getNamespaces();
    auto made = context.getResults(capnp::MessageSize{2, 0}).initResponse().initNamespaces(wanted.size());
    for (uint i = 0; i < wanted.size(); i++) {
      made[i].setType(wanted[i]);
      made[i].setPath(kj::str(request.getBasePath(), "/", static_cast<uint>(wanted[i]), "/", request.getPodId()));
    }
    return kj::READY_NOW;
  }

private:
  kj::Timer& timer;
};

int main(int argc, char** argv) {
  if (argc < 2) {
    fprintf(stderr, "usage: server SOCKET\n");
    return 2;
  }
  auto io = kj::setupAsyncIo();
  capnp::TwoPartyServer server(kj::heap<FakeMonitor>(io.provider->getTimer()));
  auto address = io.provider->getNetwork().parseAddress(kj::str("unix:", argv[1])).wait(io.waitScope);
  auto listener = address->listen();
  printf("listening\n");
  fflush(stdout);
  server.listen(*listener).wait(io.waitScope);
}
