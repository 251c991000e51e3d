// Requests over HTTP/1.1: a connection a client, all watched by one epoll.
#include <arpa/inet.h>
#include <netinet/tcp.h>
#include <sys/epoll.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <utility>

#include "load.h"

namespace load {

namespace {

// The number behind the name of a header, or 0. `head` ends with a zero.
std::size_t number_of(const char* head, const char* name) {
  const char* found = ::strcasestr(head, name);
  return found == nullptr ? 0 : std::strtoull(found + std::strlen(name), nullptr, 10);
}

class Connection {
 public:
  Connection(int port, int client) : client_(client), socket_(::socket(AF_INET, SOCK_STREAM, 0)) {
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_port = htons(static_cast<std::uint16_t>(port));
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    if (::connect(socket_, reinterpret_cast<sockaddr*>(&address), sizeof address) != 0) die("cannot connect");
    const int one = 1;
    ::setsockopt(socket_, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
  }
  ~Connection() { ::close(socket_); }
  Connection(const Connection&) = delete;
  Connection& operator=(const Connection&) = delete;

  int socket() const { return socket_; }

  void send(const std::string& request) {
    received_ = 0;
    head_nbytes_ = 0;
    waits_ = true;
    unsent_ = request;
    send_more();
  }

  void send_more() {
    while (!unsent_.empty()) {
      const ssize_t n = ::send(socket_, unsent_.data(), unsent_.size(), MSG_NOSIGNAL | MSG_DONTWAIT);
      if (n < 0) return;  // the socket is full, or reading will tell
      unsent_.remove_prefix(static_cast<std::size_t>(n));
    }
  }

  // Reads what is there; true: the answer is complete, or will not come.
  bool receive(Answer& answer) {
    answer.client = client_;
    while (true) {
      buffer_.resize(std::max(buffer_.size(), received_ + 16384 + 1));
      const ssize_t n = ::recv(socket_, buffer_.data() + received_, buffer_.size() - received_ - 1, MSG_DONTWAIT);
      if (n < 0 && (errno == EAGAIN || errno == EINTR)) return false;
      if (n <= 0) {
        if (waits_) answer.error = "the connection ended before the answer did";
        return std::exchange(waits_, false);
      }
      received_ += static_cast<std::size_t>(n);
      if (!waits_) {
        answer.error = "an answer too much";
        return true;
      }
      if (complete()) break;
    }
    waits_ = false;
    read(answer);
    return true;
  }

 private:
  bool complete() {
    if (head_nbytes_ == 0) {
      const auto* end = static_cast<const char*>(::memmem(buffer_.data(), received_, "\r\n\r\n", 4));
      if (end == nullptr) return false;
      head_nbytes_ = static_cast<std::size_t>(end - buffer_.data()) + 4;
      buffer_[head_nbytes_ - 1] = '\0';  // the last newline: the head is text now
      body_nbytes_ = number_of(buffer_.data(), "\r\nContent-Length:");
    }
    return received_ >= head_nbytes_ + body_nbytes_;
  }

  void read(Answer& answer) {
    const char* body = buffer_.data() + head_nbytes_;
    if (std::strncmp(buffer_.data(), "HTTP/1.1 200", 12) != 0) {
      answer.error =
          std::string(buffer_.data(), 12) + ": " + std::string(body, std::min<std::size_t>(body_nbytes_, 400));
    } else if (received_ != head_nbytes_ + body_nbytes_) {
      answer.error = "an answer too much";
    } else {
      const std::size_t json = number_of(buffer_.data(), "\r\nInference-Header-Content-Length:");
      const std::string_view text(body, std::min(json, body_nbytes_));
      const std::size_t id = text.find("\"id\":\"");
      if (id != text.npos) answer.id = text.substr(id + 6, kIdNbytes);
      answer.output = std::string_view(body + text.size(), body_nbytes_ - text.size());
    }
  }

  const int client_;
  const int socket_;
  std::string_view unsent_;
  std::string buffer_;
  std::size_t received_ = 0, head_nbytes_ = 0, body_nbytes_ = 0;
  bool waits_ = false;
};

class Http : public Transport {
 public:
  Http(int port, int clients) : epoll_(::epoll_create1(0)) {
    ::prctl(PR_SET_TIMERSLACK, 1, 0, 0, 0);
    for (int client = 0; client < clients; ++client) {
      connections_.push_back(std::make_unique<Connection>(port, client));
      epoll_event event{};
      event.events = EPOLLIN | EPOLLOUT | EPOLLET;
      event.data.ptr = connections_.back().get();
      ::epoll_ctl(epoll_, EPOLL_CTL_ADD, connections_.back()->socket(), &event);
    }
  }
  ~Http() override { ::close(epoll_); }

  void send(int client, const std::string& request) override {
    connections_[static_cast<std::size_t>(client)]->send(request);
  }

  void wait(Clock::time_point until, std::vector<Answer>& answers) override {
    const auto ns = std::max<Clock::duration::rep>((until - Clock::now()).count(), 0);
    const timespec longest{ns / 1000000000, ns % 1000000000};
    std::array<epoll_event, 64> events;
    const int count = ::epoll_pwait2(epoll_, events.data(), events.size(), &longest, nullptr);
    for (int i = 0; i < count; ++i) {
      auto* connection = static_cast<Connection*>(events[static_cast<std::size_t>(i)].data.ptr);
      if ((events[static_cast<std::size_t>(i)].events & EPOLLOUT) != 0) connection->send_more();
      if ((events[static_cast<std::size_t>(i)].events & ~EPOLLOUT) == 0) continue;
      Answer answer;
      if (connection->receive(answer)) answers.push_back(std::move(answer));
    }
  }

 private:
  const int epoll_;
  std::vector<std::unique_ptr<Connection>> connections_;
};

}  // namespace

std::unique_ptr<Transport> http(int port, int clients) { return std::make_unique<Http>(port, clients); }

}  // namespace load
