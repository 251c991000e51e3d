// Accepts connections for gRPC, which has no limit to their number of its own.
#ifndef HARDTACK_SERVER_GRPC_ACCEPTOR_H
#define HARDTACK_SERVER_GRPC_ACCEPTOR_H

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <unordered_set>

#include "server/core/error.h"
#include "server/core/log.h"

namespace hardtack::serve::rpc {

/// One thread accepts, and watches through a second descriptor of each connection when it has ended.
class Acceptor {
 public:
  /// Takes over the connection `file`, which came through `listener`.
  using HandOver = std::function<void(int listener, int file)>;

  /// Listens; at most `most` connections are open at a time, and more are closed at once. kInvalid: the address is not
  /// known, in use or not ours. `log` must outlive this.
  static Outcome<std::unique_ptr<Acceptor>> listen(const std::string& host, std::uint16_t port, std::size_t most,
                                                   Log& log);
  ~Acceptor();
  Acceptor(const Acceptor&) = delete;
  Acceptor& operator=(const Acceptor&) = delete;

  std::uint16_t port() const { return port_; }
  /// Begins to accept; `hand_over` is called on the acceptor's thread.
  void start(HandOver hand_over);
  /// Accepts no more, and returns when `hand_over` runs no more. Connections that are open stay so.
  void close();

  struct Counts {
    std::atomic<std::size_t> open{0};
    std::atomic<std::uint64_t> accepted{0}, refused{0};
  };
  const Counts& counts() const { return counts_; }

 private:
  Acceptor(std::size_t most, Log& log) : most_(most), log_(log) {}
  Failure open(const std::string& host, std::uint16_t port);
  void run(const HandOver& hand_over) noexcept;
  void accept(const HandOver& hand_over);
  void forget(int watched);

  const std::size_t most_;
  Log& log_;
  int listener_ = -1, events_ = -1, wake_ = -1;
  std::uint16_t port_ = 0;
  std::unordered_set<int> watched_;  // of the thread, while it runs
  Counts counts_;
  Seldom unaccepted_, refused_;
  std::thread thread_;
};

}  // namespace hardtack::serve::rpc

#endif  // HARDTACK_SERVER_GRPC_ACCEPTOR_H
