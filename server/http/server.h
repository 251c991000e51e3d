// The HTTP server: listens, keeps count of connections, ends those that take too long, drains.
//
// Threads. A few io threads serve all connections; any of them may handle any connection, one at a time each. All may run a
// model themselves (Request::run_here), so that a small model costs no thread switch; what may take long, all but one, so
// that one thread is left for the others. Results from worker threads are written by those. Bodies that take long to read
// (Background) are read by threads of their own. One more thread accepts and sweeps (Listener).
#ifndef HARDTACK_SERVER_HTTP_SERVER_H
#define HARDTACK_SERVER_HTTP_SERVER_H

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include "server/core/access.h"
#include "server/core/file_watch.h"
#include "server/core/log.h"
#include "server/core/metrics.h"
#include "server/core/repository.h"
#include "server/core/shared_memory.h"

namespace hardtack::serve::http {

struct HttpOptions {
  std::string host = "127.0.0.1";
  std::uint16_t port = 8000;  // 0: one that is free
  int io_threads = 0;         // 0: as many as CPUs may be used, from 2 to 4
  std::size_t max_body = std::size_t{256} << 20;
  std::uint32_t max_header = 16U << 10;
  std::size_t max_connections = 1024;
  std::chrono::seconds idle_timeout{75};    // a connection without a request
  std::chrono::seconds header_timeout{10};  // from the first byte of a request to the end of its header
  std::chrono::seconds stall_timeout{30};   // for a body or a reply, and a second more for each 64 KiB
  std::string tls_certificate, tls_key;     // PEM files; empty: no TLS
  std::string tls_client_ca;                // PEM file: clients must show a certificate of it
  bool log_requests = false;
};

class HttpServer {
 public:
  /// Listens and starts the threads. kInvalid: the address is in use or not ours, or a TLS file is bad. What is referred
  /// to must outlive the server; the repository must have answered everything before the server is destroyed.
  /// `more_metrics` adds to /metrics.
  static Outcome<std::unique_ptr<HttpServer>> start(const HttpOptions& options, Repository& repository,
                                                    SharedMemory& shared, Access& access, Log& log,
                                                    std::function<void(MetricsPage&)> more_metrics);
  ~HttpServer();

  std::uint16_t port() const;
  /// Reads the files of TLS again, for connections that come from now on; bad ones change nothing, and the log says so.
  /// False: they cannot be read now.
  bool reload_tls() noexcept;
  /// The files of TLS, as they were at the start.
  FileWatch::Watched watched();
  /// Listens no more. Requests on open connections are served; each reply says that it is the last, and connections that
  /// are idle a quarter of a second later are closed.
  void drain();
  /// No connection is left.
  bool drained() const;
  /// Closes what is left and ends the threads.
  void stop();

 private:
  class State;
  explicit HttpServer(std::unique_ptr<State> state);
  std::unique_ptr<State> state_;
};

}  // namespace hardtack::serve::http

#endif  // HARDTACK_SERVER_HTTP_SERVER_H
