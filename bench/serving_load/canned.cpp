// The least a server can do: one thread that reads requests of a known size and sends prepared bytes back. What it takes
// is what the machine, its loopback and the load generator take, whatever the server.
#include <arpa/inet.h>
#include <netinet/tcp.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <array>
#include <cstdio>
#include <cstring>
#include <map>

#include "load.h"

namespace load {

namespace {

struct Reply {
  std::string bytes;
  std::size_t id_offset = 0;
};

Reply reply_to(const Case& one) {
  const std::string json = "{\"id\":\"" + std::string(kIdNbytes, '#') + "\"}";
  const std::size_t nbytes = one.expected.size() * sizeof(float);
  Reply reply;
  reply.bytes = "HTTP/1.1 200 OK\r\nContent-Length: " + std::to_string(json.size() + nbytes) +
                "\r\nInference-Header-Content-Length: " + std::to_string(json.size()) + "\r\n\r\n" + json;
  reply.id_offset = reply.bytes.find('#');
  reply.bytes.append(reinterpret_cast<const char*>(one.expected.data()), nbytes);
  return reply;
}

int listener() {
  const int socket = ::socket(AF_INET, SOCK_STREAM, 0);
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t nbytes = sizeof address;
  auto* any = reinterpret_cast<sockaddr*>(&address);
  if (::bind(socket, any, nbytes) != 0 || ::listen(socket, 128) != 0 || ::getsockname(socket, any, &nbytes) != 0) {
    die("cannot listen");
  }
  std::printf("%d\n", ntohs(address.sin_port));
  std::fflush(stdout);
  return socket;
}

void watch(int epoll, int socket) {
  epoll_event event{};
  event.events = EPOLLIN;
  event.data.fd = socket;
  ::epoll_ctl(epoll, EPOLL_CTL_ADD, socket, &event);
}

}  // namespace

void serve_canned(const Case& one) {
  Reply reply = reply_to(one);
  const int door = listener(), epoll = ::epoll_create1(0);
  watch(epoll, door);
  std::map<int, std::string> received;  // by socket
  while (true) {
    std::array<epoll_event, 64> events;
    const int count = ::epoll_wait(epoll, events.data(), events.size(), -1);
    for (int i = 0; i < count; ++i) {
      const int socket = events[static_cast<std::size_t>(i)].data.fd;
      if (socket == door) {
        const int accepted = ::accept(door, nullptr, nullptr), on = 1;
        ::setsockopt(accepted, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
        watch(epoll, accepted);
        continue;
      }
      std::array<char, 65536> buffer;
      const ssize_t n = ::recv(socket, buffer.data(), buffer.size(), MSG_DONTWAIT);
      std::string& request = received[socket];
      if (n <= 0) {
        received.erase(socket);
        ::close(socket);
        continue;
      }
      request.append(buffer.data(), static_cast<std::size_t>(n));
      if (request.size() < one.request.size()) continue;
      std::memcpy(reply.bytes.data() + reply.id_offset, request.data() + one.id_offset, kIdNbytes);
      if (::send(socket, reply.bytes.data(), reply.bytes.size(), MSG_NOSIGNAL) < 0) ::close(socket);
      request.clear();
    }
  }
}

}  // namespace load
