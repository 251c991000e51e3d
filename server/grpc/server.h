// The gRPC server: the service inference.GRPCInferenceService of the Open Inference Protocol.
//
// Threads. gRPC's own threads read and write calls; no thread is held by a request that waits or runs, but for those that
// may run a model themselves (Request::run_here): one thread less than gRPC has, and all where the run is short. Results
// from worker threads are written by those. Everything public is safe from any thread, start() and stop() excepted.
#ifndef HARDTACK_SERVER_GRPC_SERVER_H
#define HARDTACK_SERVER_GRPC_SERVER_H

#include <cstdint>
#include <memory>
#include <string>

#include "server/core/access.h"
#include "server/core/log.h"
#include "server/core/metrics.h"
#include "server/core/repository.h"
#include "server/core/shared_memory.h"

namespace hardtack::serve::rpc {

/// How replies are compressed, with an algorithm that the client accepts. Requests may always be compressed.
enum class Compression { kNone, kLow, kMedium, kHigh };

struct GrpcOptions {
  std::string host = "127.0.0.1";
  std::uint16_t port = 8001;                         // 0: one that is free
  std::size_t max_message = std::size_t{256} << 20;  // of a request, inflated; at most 2 GiB
  std::uint32_t max_metadata = 16U << 10;
  std::size_t max_connections = 1024;  // one more is closed at once
  int max_concurrent_calls = 1024;     // on one connection; more wait in the client
  std::chrono::seconds handshake_timeout{10};
  std::chrono::seconds message_timeout{30};  // from the beginning of a call to the end of its message; not of streams
  Compression compression = Compression::kNone;
  std::string tls_certificate, tls_key;  // PEM files; empty: no TLS
  std::string tls_client_ca;             // PEM file: clients must show a certificate of it
  bool log_requests = false;
};

class GrpcServer {
 public:
  /// Listens and serves. kInvalid: the address is in use or not ours, or a TLS file is bad. What is referred to must
  /// outlive the server; the repository must have answered everything before the server is stopped or destroyed.
  static Outcome<std::unique_ptr<GrpcServer>> start(const GrpcOptions& options, Repository& repository,
                                                    SharedMemory& shared, Access& access, Log& log);
  ~GrpcServer();

  std::uint16_t port() const;
  /// Listens no more and tells clients so. Calls that were begun are finished, streams end after their last answer; what
  /// is left at `until` is cancelled. Does not wait.
  void drain(Clock::time_point until);
  /// After drain(): no call is left.
  bool drained() const;
  /// Cancels what is left and waits until it is gone.
  void stop();

  void write_metrics(MetricsPage& page) const;

 private:
  struct State;
  explicit GrpcServer(std::unique_ptr<State> state);
  std::unique_ptr<State> state_;
};

}  // namespace hardtack::serve::rpc

#endif  // HARDTACK_SERVER_GRPC_SERVER_H
