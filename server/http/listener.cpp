#include "server/http/listener.h"

#include <poll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <cstring>
#include <utility>

#include "server/core/contain.h"
#include "server/core/request.h"

namespace hardtack::serve::http {

namespace {

namespace asio = boost::asio;
using asio::ip::tcp;
using ErrorCode = boost::system::error_code;

constexpr auto kLook = std::chrono::milliseconds(100);

int ms_until(Clock::time_point when) {
  const auto left = std::chrono::ceil<std::chrono::milliseconds>(when - Clock::now()).count();
  return left < 0 ? 0 : static_cast<int>(left);
}

}  // namespace

Failure Listener::open(const std::string& host, std::uint16_t port) {
  ErrorCode error;
  const std::string where = host + ":" + std::to_string(port);
  const auto found = tcp::resolver(io_).resolve(host, std::to_string(port), tcp::resolver::passive, error);
  if (error || found.empty()) {
    return Error{Code::kInvalid, "the address " + where + " is not known: " + error.message()};
  }
  const tcp::endpoint endpoint = found.begin()->endpoint();
  acceptor_.open(endpoint.protocol(), error);
  if (!error) acceptor_.set_option(tcp::acceptor::reuse_address(true), error);
  if (!error) acceptor_.bind(endpoint, error);
  if (!error) acceptor_.listen(asio::socket_base::max_listen_connections, error);
  if (!error) acceptor_.non_blocking(true, error);
  if (error) return Error{Code::kInvalid, "cannot listen on " + where + ": " + error.message()};
  port_ = acceptor_.local_endpoint(error).port();
  wake_ = ::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
  if (wake_ < 0) return Error{Code::kInternal, std::string("cannot wait for connections: ") + std::strerror(errno)};
  return std::nullopt;
}

void Listener::start(std::function<void(Socket&&)> accepted, std::function<void()> look) {
  accepted_ = std::move(accepted);
  look_ = std::move(look);
  thread_ = std::thread([this] { run(); });
}

void Listener::wake() const {
  const std::uint64_t one = 1;
  (void)!::write(wake_, &one, sizeof one);
}

void Listener::close() {
  closing_ = true;
  wake();
}

void Listener::stop() {
  ending_ = true;
  if (thread_.joinable()) {
    wake();
    thread_.join();
  }
  if (wake_ >= 0) ::close(std::exchange(wake_, -1));
}

void Listener::run() noexcept {
  auto next_look = Clock::now() + kLook, again = Clock::time_point::min();
  while (!ending_) {
    if (closing_ && acceptor_.is_open()) {
      ErrorCode ignored;
      acceptor_.close(ignored);
    }
    if (Clock::now() >= next_look) {
      contain(log_, "a look after connections", look_);
      next_look = Clock::now() + kLook;
    }
    const bool accepts = acceptor_.is_open() && Clock::now() >= again;
    pollfd files[] = {{wake_, POLLIN, 0}, {accepts ? acceptor_.native_handle() : -1, POLLIN, 0}};
    if (::poll(files, 2, ms_until(next_look)) <= 0) continue;
    std::uint64_t ignored = 0;
    if (files[0].revents != 0) (void)!::read(wake_, &ignored, sizeof ignored);
    if (files[1].revents != 0 && !closing_ && !accept()) again = next_look;
  }
}

// False: not now. It is out of memory or file descriptors, as a rule, and trying again at once would only burn the CPU.
bool Listener::accept() noexcept {
  ErrorCode error;
  const bool well = contain(log_, "a connection that came", [&] {
    Socket socket = acceptor_.accept(io_, error);
    if (!error) accepted_(std::move(socket));
  });
  const bool gone = error == asio::error::would_block || error == asio::error::try_again ||
                    error == asio::error::connection_aborted;  // the client
  if (!error || gone) return well;
  contain(log_, "a connection that came", [&] {
    log_.write_seldom(unaccepted_, Level::kError, "a connection cannot be accepted", {{"reason", error.message()}});
  });
  return false;
}

}  // namespace hardtack::serve::http
