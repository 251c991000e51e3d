#include "server/grpc/acceptor.h"

#include <fcntl.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <utility>

#include "server/core/contain.h"

namespace hardtack::serve::rpc {

namespace {

constexpr auto kPause =
    std::chrono::milliseconds(100);  // out of file descriptors, as a rule: trying again burns the CPU

struct Addresses {
  addrinfo* first = nullptr;
  ~Addresses() {
    if (first != nullptr) ::freeaddrinfo(first);
  }
};

std::uint16_t port_of(int listener) {
  sockaddr_storage address{};
  socklen_t nbytes = sizeof address;
  if (::getsockname(listener, reinterpret_cast<sockaddr*>(&address), &nbytes) != 0) return 0;
  const in_port_t port = address.ss_family == AF_INET6 ? reinterpret_cast<sockaddr_in6*>(&address)->sin6_port
                                                       : reinterpret_cast<sockaddr_in*>(&address)->sin_port;
  return ntohs(port);
}

bool set(int file, int level, int option) {
  const int on = 1;
  return ::setsockopt(file, level, option, &on, sizeof on) == 0;
}

bool watch(int events, int file, std::uint32_t what) {
  epoll_event event{};
  event.events = what;
  event.data.fd = file;
  return ::epoll_ctl(events, EPOLL_CTL_ADD, file, &event) == 0;
}

}  // namespace

Outcome<std::unique_ptr<Acceptor>> Acceptor::listen(const std::string& host, std::uint16_t port, std::size_t most,
                                                    Log& log) {
  auto made = std::unique_ptr<Acceptor>(new Acceptor(most, log));
  if (Failure failed = made->open(host, port)) return *failed;
  return made;
}

Failure Acceptor::open(const std::string& host, std::uint16_t port) {
  const std::string where = host + ":" + std::to_string(port);
  addrinfo hints{};
  hints.ai_flags = AI_PASSIVE | AI_NUMERICSERV;
  hints.ai_socktype = SOCK_STREAM;
  Addresses found;
  const int unknown = ::getaddrinfo(host.c_str(), std::to_string(port).c_str(), &hints, &found.first);
  if (unknown != 0) {
    return Error{Code::kInvalid, "the address " + where + " is not known: " + ::gai_strerror(unknown)};
  }
  const addrinfo& address = *found.first;
  listener_ = ::socket(address.ai_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
  // Connections inherit TCP_NODELAY. A port is free again at once after a server was killed.
  const bool good = listener_ >= 0 && set(listener_, SOL_SOCKET, SO_REUSEADDR) &&
                    set(listener_, IPPROTO_TCP, TCP_NODELAY) &&
                    ::bind(listener_, address.ai_addr, address.ai_addrlen) == 0 && ::listen(listener_, SOMAXCONN) == 0;
  if (!good) {
    return Error{Code::kInvalid, "cannot listen on " + where + " for gRPC: " + std::strerror(errno)};
  }
  port_ = port_of(listener_);
  events_ = ::epoll_create1(EPOLL_CLOEXEC);
  wake_ = ::eventfd(0, EFD_CLOEXEC);
  if (events_ < 0 || wake_ < 0 || !watch(events_, listener_, EPOLLIN) || !watch(events_, wake_, EPOLLIN)) {
    return Error{Code::kInternal, std::string("cannot watch connections for gRPC: ") + std::strerror(errno)};
  }
  return std::nullopt;
}

Acceptor::~Acceptor() {
  close();
  for (const int file : {listener_, events_, wake_}) {
    if (file >= 0) ::close(file);
  }
  for (const int file : watched_) ::close(file);
}

void Acceptor::start(HandOver hand_over) {
  thread_ = std::thread([this, hand_over = std::move(hand_over)] { run(hand_over); });
}

void Acceptor::close() {
  if (!thread_.joinable()) return;
  const std::uint64_t one = 1;
  (void)!::write(wake_, &one, sizeof one);
  thread_.join();
  ::close(std::exchange(listener_, -1));
}

void Acceptor::run(const HandOver& hand_over) noexcept {
  std::array<epoll_event, 64> ready{};
  while (true) {
    const int count = ::epoll_wait(events_, ready.data(), static_cast<int>(ready.size()), -1);
    for (int i = 0; i < count; ++i) {
      const int file = ready[static_cast<std::size_t>(i)].data.fd;
      if (file == wake_) return;
      if (file != listener_) {
        forget(file);
      } else if (!contain(log_, "a connection that came", [&] { accept(hand_over); })) {
        std::this_thread::sleep_for(kPause);
      }
    }
  }
}

void Acceptor::accept(const HandOver& hand_over) {
  const int file = ::accept4(listener_, nullptr, nullptr, SOCK_NONBLOCK | SOCK_CLOEXEC);
  if (file < 0) {
    if (errno != EMFILE && errno != ENFILE && errno != ENOBUFS && errno != ENOMEM) return;  // the client is gone
    log_.write_seldom(unaccepted_, Level::kError, "a connection cannot be accepted",
                      {{"reason", std::strerror(errno)}});
    std::this_thread::sleep_for(kPause);
    return;
  }
  if (counts_.open >= most_) {
    ++counts_.refused;
    log_.write_seldom(refused_, Level::kWarning, "connections beyond --max-connections are refused",
                      {{"protocol", "gRPC"}, {"max_connections", most_}});
    ::close(file);
    return;
  }
  // gRPC shuts a connection down before it closes its descriptor, which shows on this one, too.
  const int watched = ::fcntl(file, F_DUPFD_CLOEXEC, 0);
  try {
    if (watched >= 0) watched_.insert(watched);
  } catch (...) {
    ::close(watched);
    ::close(file);
    throw;
  }
  if (watched < 0 || !watch(events_, watched, 0)) {
    log_.write_seldom(unaccepted_, Level::kError, "a connection cannot be accepted",
                      {{"reason", std::strerror(errno)}});
    watched_.erase(watched);
    if (watched >= 0) ::close(watched);
    ::close(file);
    return;
  }
  ++counts_.accepted;
  ++counts_.open;
  hand_over(listener_, file);
}

void Acceptor::forget(int watched) {
  ::epoll_ctl(events_, EPOLL_CTL_DEL, watched, nullptr);
  watched_.erase(watched);
  ::close(watched);
  --counts_.open;
}

}  // namespace hardtack::serve::rpc
