// The program hardtack-server: puts repository and protocols together, waits for a signal, drains.

#include <malloc.h>
#include <pthread.h>
#include <sys/resource.h>
#include <unistd.h>

#include <csignal>
#include <cstdio>
#include <memory>
#include <thread>
#include <vector>

#include "server/command_line.h"
#include "server/core/access.h"
#include "server/core/contain.h"
#include "server/core/file_watch.h"
#ifdef HARDTACK_SERVER_GRPC
#include "server/grpc/server.h"
#endif

namespace {

using namespace hardtack::serve;

int refuse(const Error& error) {
  std::fprintf(stderr, "hardtack-server: %s\n", error.sentence.c_str());
  return 1;
}

// The sentence comes after what was logged before; a log file has it, too.
int refuse(const Error& error, Log& log, const CommandLine& line) {
  if (!line.log_file.empty()) log.write(Level::kError, "cannot serve", {{"reason", error.sentence}});
  log.flush();
  return refuse(error);
}

// Not only when the first model is loaded.
Failure check_trusted_keys(const RepositoryOptions& options) {
  if (options.trusted_keys.empty()) return std::nullopt;
  ht_status* bad = ht_check_trusted_keys(options.trusted_keys.c_str());
  if (bad == nullptr) return std::nullopt;
  return from_status(bad);
}

extern "C" void at_once(int) { ::_exit(1); }

// SIGTERM and SIGINT wait until wait_for_signal() takes them; call it before any thread is made.
sigset_t hold_signals() {
  std::signal(SIGPIPE, SIG_IGN);
  sigset_t signals;
  sigemptyset(&signals);
  sigaddset(&signals, SIGTERM);
  sigaddset(&signals, SIGINT);
  pthread_sigmask(SIG_BLOCK, &signals, nullptr);
  return signals;
}

// Connections need descriptors, those of gRPC two: as many as this process may have.
void raise_file_limit() {
  rlimit files{};
  if (::getrlimit(RLIMIT_NOFILE, &files) != 0) return;
  files.rlim_cur = files.rlim_max;
  ::setrlimit(RLIMIT_NOFILE, &files);
}

// Five dozen threads would have half a GiB of addresses at the usual 8 MiB each; kernels and parsers need some kilobytes.
// Call it before any thread is made.
void limit_stacks() {
  constexpr std::size_t kStack = std::size_t{1} << 20;
  pthread_attr_t attributes;
  if (pthread_getattr_default_np(&attributes) != 0) return;
  std::size_t nbytes = 0;
  if (pthread_attr_getstacksize(&attributes, &nbytes) == 0 && nbytes > kStack &&
      pthread_attr_setstacksize(&attributes, kStack) == 0) {
    pthread_setattr_default_np(&attributes);
  }
  pthread_attr_destroy(&attributes);
}

int wait_for_signal(const sigset_t& signals) {
  int number = 0;
  while (sigwait(&signals, &number) != 0) {
  }
  std::signal(SIGTERM, at_once);  // the next one does not wait
  std::signal(SIGINT, at_once);
  pthread_sigmask(SIG_UNBLOCK, &signals, nullptr);
  return number;
}

#ifdef HARDTACK_SERVER_GRPC
using GrpcServer = rpc::GrpcServer;

Outcome<std::unique_ptr<GrpcServer>> start_grpc(const CommandLine& line, Repository& repository, SharedMemory& shared,
                                                Access& access, Log& log) {
  if (!line.serve_grpc) return std::unique_ptr<GrpcServer>();
  return GrpcServer::start(line.grpc, repository, shared, access, log);
}
#else
struct GrpcServer {  // built without gRPC
  std::uint16_t port() const { return 0; }
  void drain(Clock::time_point) {}
  bool drained() const { return true; }
  void stop() {}
  void write_metrics(MetricsPage&) const {}
};

Outcome<std::unique_ptr<GrpcServer>> start_grpc(const CommandLine&, Repository&, SharedMemory&, Access&, Log&) {
  return std::unique_ptr<GrpcServer>();
}
#endif

bool drain(Repository& repository, http::HttpServer& http, GrpcServer* grpc, Clock::time_point until) {
  const auto drained = [&] { return http.drained() && (grpc == nullptr || grpc->drained()); };
  repository.drain();
  http.drain();
  if (grpc != nullptr) grpc->drain(until);
  while (!drained() && Clock::now() < until) std::this_thread::sleep_for(std::chrono::milliseconds(10));
  repository.stop();
  const bool all = repository.drained(until) && drained();
  if (!all) return false;  // joining threads that still run a model could take forever
  http.stop();
  if (grpc != nullptr) grpc->stop();
  return true;
}

// Whether all is answered. What fails for want of memory is begun again: each step may be done twice.
bool drain(Repository& repository, http::HttpServer& http, GrpcServer* grpc, std::chrono::seconds longest, Log& log) {
  const auto until = Clock::now() + longest;
  bool all = false;
  while (!contain(log, "the drain", [&] { all = drain(repository, http, grpc, until); }) && Clock::now() < until) {
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
  }
  return all;
}

int serve(const CommandLine& line) {
  // Bodies come and go on several threads: few arenas, and large blocks given back, keep the memory from creeping up.
  mallopt(M_ARENA_MAX, 2);
  mallopt(M_MMAP_THRESHOLD, 1 << 20);
  mallopt(M_TRIM_THRESHOLD, 4 << 20);
  raise_file_limit();
  limit_stacks();
  const sigset_t signals = hold_signals();

  auto log = Log::open(line.log_file, line.log_format, line.log_level);
  if (!log.ok()) return refuse(log.error());
  if (Failure bad = check_trusted_keys(line.repository)) return refuse(*bad, **log, line);
  auto access = Access::open(line.tokens, **log);
  if (!access.ok()) return refuse(access.error(), **log, line);
  Budget budget(line.max_memory > 0 ? line.max_memory : budget_within(memory_limit()),
                addresses_are_limited() ? Budget::Unwritten::kCounted : Budget::Unwritten::kFree);
  auto repository = Repository::open(line.repository, budget, **log);
  if (!repository.ok()) return refuse(repository.error(), **log, line);
  SharedMemory shared;
  auto grpc = start_grpc(line, **repository, shared, **access, **log);
  if (!grpc.ok()) return refuse(grpc.error(), **log, line);
  auto http = http::HttpServer::start(line.http, **repository, shared, **access, **log, [&](MetricsPage& page) {
    (*access)->write_metrics(page);
    if (*grpc != nullptr) (*grpc)->write_metrics(page);
  });
  if (!http.ok()) return refuse(http.error(), **log, line);
  auto watch =
      std::make_unique<FileWatch>(std::vector<FileWatch::Watched>{(*access)->watched(), (*http)->watched()}, **log);
  (*log)->write(Level::kInfo, "listening",
                {{"host", line.http.host},
                 {"http_port", (*http)->port()},
                 {"grpc_port", *grpc == nullptr ? 0 : (*grpc)->port()},
                 {"tls", line.http.tls_certificate.empty() ? "no" : "yes"},
                 {"models", line.repository.path},
                 {"max_memory", budget.limit()},
                 {"version", ht_version()}});

  const int number = wait_for_signal(signals);
  watch.reset();
  (*log)->write(Level::kInfo, "draining", {{"signal", number == SIGTERM ? "SIGTERM" : "SIGINT"}});
  const bool all = drain(**repository, **http, grpc->get(), line.drain_timeout, **log);
  if (all && (*repository)->loading()) {
    (*log)->write(Level::kInfo, "stopped while a model was being loaded");
    (*log)->flush();
    ::_exit(0);  // all requests are answered; a load may take as long as it likes
  }
  if (all) {
    repository->reset();
    (*log)->write(Level::kInfo, "stopped");
    http->reset();
    return 0;
  }
  (*log)->write(Level::kError, "not all requests were answered in time", {{"seconds", line.drain_timeout.count()}});
  (*log)->flush();
  ::_exit(1);  // runs that do not end hold threads; there is nothing left to wait for
}

}  // namespace

int main(int argc, char** argv) try {
  std::optional<int> exit_code;
  const CommandLine line = read_command_line(argc, argv, exit_code);
  return exit_code ? *exit_code : serve(line);
} catch (...) {  // before it serves, for want of memory as a rule
  return refuse(from_exception());
}
