// Accepts connections, and looks after them again and again.
#ifndef HARDTACK_SERVER_HTTP_LISTENER_H
#define HARDTACK_SERVER_HTTP_LISTENER_H

#include <atomic>
#include <boost/asio/io_context.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <cstdint>
#include <functional>
#include <string>
#include <thread>

#include "server/core/error.h"
#include "server/core/log.h"

namespace hardtack::serve::http {

/// A thread of its own, and no chain of handlers in which each has to find memory for the next: whatever fails once, the
/// next connection and the next look come. (In a strand of Boost 1.74 an allocation that fails ends the process.)
class Listener {
 public:
  using Socket = boost::asio::ip::tcp::socket;

  /// Sockets belong to `io`, which like `log` must outlive this.
  Listener(boost::asio::io_context& io, Log& log) : io_(io), log_(log) {}
  ~Listener() { stop(); }
  Listener(const Listener&) = delete;
  Listener& operator=(const Listener&) = delete;

  /// kInvalid: the address is not known, in use or not ours.
  Failure open(const std::string& host, std::uint16_t port);
  std::uint16_t port() const { return port_; }
  /// Once, after open(): from now on `accepted` is called for each connection, and `look` every 100 ms. What they throw
  /// ends the connection or that look.
  void start(std::function<void(Socket&&)> accepted, std::function<void()> look);
  /// Listens no more, at once or a moment later; look() goes on.
  void close();
  /// Ends the thread.
  void stop();

 private:
  void run() noexcept;
  bool accept() noexcept;
  void wake() const;

  boost::asio::io_context& io_;
  Log& log_;
  boost::asio::ip::tcp::acceptor acceptor_{io_};  // of the thread, once that runs
  int wake_ = -1;                                 // an eventfd
  std::uint16_t port_ = 0;
  std::function<void(Socket&&)> accepted_;
  std::function<void()> look_;
  std::atomic<bool> closing_{false}, ending_{false};
  Seldom unaccepted_;
  std::thread thread_;
};

}  // namespace hardtack::serve::http

#endif  // HARDTACK_SERVER_HTTP_LISTENER_H
