#include "service.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <deque>
#include <list>
#include <utility>
#include <vector>

// One thread and one session: while a batch is computed, lines of all clients gather in the sockets and become the next one.
namespace {

constexpr std::size_t kLongestLine = 64 << 10;  // bytes
constexpr std::size_t kMostUnread = 1 << 20;    // bytes of answers; a client that leaves them there gets no more
constexpr std::size_t kMostClients = 256;       // others wait to be accepted

struct Client {
  explicit Client(int accepted) : socket(accepted) {}
  Client(const Client&) = delete;
  Client& operator=(const Client&) = delete;
  ~Client() { ::close(socket); }

  int socket;
  std::string in, out;            // the beginning of a line; answers that were not sent yet
  std::deque<std::string> lines;  // not answered yet
  bool sends = true;              // nothing more comes from it otherwise
  bool gone = false;

  bool wants_answer() const { return !lines.empty() && out.size() < kMostUnread; }
  bool wants_more() const { return sends && lines.empty() && out.size() < kMostUnread; }
  bool is_done() const { return gone || (!sends && lines.empty() && out.empty()); }
};

std::string failed(const char* what) { return std::string(what) + ": " + std::strerror(errno); }

// Takes what has come, and cuts it into lines. A last one without an end counts.
void receive(Client& client) {
  char bytes[16 << 10];
  const ssize_t count = ::recv(client.socket, bytes, sizeof bytes, MSG_DONTWAIT);
  if (count < 0) {
    client.gone = errno != EAGAIN && errno != EINTR;
    return;
  }
  client.sends = count > 0;
  client.in.append(bytes, static_cast<std::size_t>(count));
  std::size_t begin = 0;
  for (std::size_t end = 0; (end = client.in.find('\n', begin)) != std::string::npos; begin = end + 1) {
    client.lines.push_back(client.in.substr(begin, end - begin));
  }
  client.in.erase(0, begin);
  if (!client.sends && !client.in.empty()) client.lines.push_back(std::exchange(client.in, ""));
  if (client.in.size() > kLongestLine) {
    client.out += "error: a line has more than " + std::to_string(kLongestLine) + " bytes\n";
    client.sends = false;
  }
}

void send_out(Client& client) {
  const ssize_t count = ::send(client.socket, client.out.data(), client.out.size(), MSG_DONTWAIT | MSG_NOSIGNAL);
  if (count >= 0) {
    client.out.erase(0, static_cast<std::size_t>(count));
  } else if (errno != EAGAIN && errno != EINTR) {
    client.gone = true;
  }
}

// One batch of what waits, a line of each client in turn; each answer goes to the client that asked.
std::string answer(Embedder& embedder, std::list<Client>& clients) {
  std::vector<std::string> lines;
  std::vector<Client*> asked;
  for (bool found = true; found && lines.size() < embedder.most_lines();) {
    found = false;
    for (Client& client : clients) {
      if (!client.wants_answer() || lines.size() == embedder.most_lines()) continue;
      lines.push_back(std::move(client.lines.front()));
      client.lines.pop_front();
      asked.push_back(&client);
      found = true;
    }
  }
  if (lines.empty()) return "";
  std::vector<std::vector<float>> embeddings;
  if (std::string wrong = embedder.embed(lines, embeddings); !wrong.empty()) return wrong;
  for (std::size_t i = 0; i < lines.size(); ++i) asked[i]->out += text_of(embeddings[i]);
  return "";
}

std::string listen_on(std::uint16_t port, int* listener) {
  *listener = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  if (*listener < 0) return failed("socket");
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  address.sin_port = htons(port);
  const int yes = 1;
  ::setsockopt(*listener, SOL_SOCKET, SO_REUSEADDR, &yes, sizeof yes);
  if (::bind(*listener, reinterpret_cast<sockaddr*>(&address), sizeof address) < 0) {
    return failed(("127.0.0.1:" + std::to_string(port)).c_str());
  }
  socklen_t size = sizeof address;
  if (::listen(*listener, 128) < 0 || ::getsockname(*listener, reinterpret_cast<sockaddr*>(&address), &size) < 0) {
    return failed("listen");
  }
  std::printf("listening on 127.0.0.1:%d\n", ntohs(address.sin_port));
  std::fflush(stdout);
  return "";
}

}  // namespace

std::string serve(Embedder& embedder, std::uint16_t port) {
  int listener = -1;
  if (std::string wrong = listen_on(port, &listener); !wrong.empty()) return wrong;
  std::list<Client> clients;
  while (true) {
    const int accepts = clients.size() < kMostClients ? POLLIN : 0;
    std::vector<pollfd> wanted = {{listener, static_cast<short>(accepts), 0}};
    bool waiting = false;
    for (const Client& client : clients) {
      const int events = (client.wants_more() ? POLLIN : 0) | (client.out.empty() ? 0 : POLLOUT);
      wanted.push_back({client.socket, static_cast<short>(events), 0});
      waiting = waiting || client.wants_answer();
    }
    if (::poll(wanted.data(), wanted.size(), waiting ? 0 : -1) < 0 && errno != EINTR) return failed("poll");
    std::size_t i = 1;
    for (Client& client : clients) {
      const int events = wanted[i++].revents;
      if ((events & POLLIN) != 0 && client.wants_more()) receive(client);
      if ((events & (POLLERR | POLLNVAL)) != 0) client.gone = true;
    }
    if ((wanted[0].revents & POLLIN) != 0) {
      const int accepted = ::accept4(listener, nullptr, nullptr, SOCK_CLOEXEC);
      if (accepted >= 0) clients.emplace_back(accepted);
    }
    if (std::string wrong = answer(embedder, clients); !wrong.empty()) return wrong;
    for (Client& client : clients) {
      if (!client.out.empty()) send_out(client);
    }
    clients.remove_if([](const Client& client) { return client.is_done(); });
  }
}
