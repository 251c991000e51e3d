// Where an allocation fails, whichever it is, a connection may end, and nothing else: others come, are served and looked after.
#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cstring>
#include <fstream>

#include "server/http/server.h"
#include "server/tests/failing.h"
#include "server/tests/folder.h"
#include "server/tests/served.h"

using namespace hardtack::serve;
using namespace hardtack::serve::testing;

namespace {

constexpr auto kLong = std::chrono::seconds(60);  // nothing takes so long on a busy machine

// Takes no memory from the heap.
class Client {
 public:
  explicit Client(std::uint16_t port) : file_(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)) {
    const timeval longest{60, 0};
    ::setsockopt(file_, SOL_SOCKET, SO_RCVTIMEO, &longest, sizeof longest);
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_port = htons(port);
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    connected_ = ::connect(file_, reinterpret_cast<const sockaddr*>(&address), sizeof address) == 0;
  }
  ~Client() { ::close(file_); }
  Client(const Client&) = delete;
  Client& operator=(const Client&) = delete;

  void send(std::string_view bytes) const { (void)!::send(file_, bytes.data(), bytes.size(), MSG_NOSIGNAL); }

  /// Until the server closes. False: it neither sends nor closes.
  bool read() {
    while (connected_) {
      const ssize_t n = ::recv(file_, text_ + nbytes_, sizeof text_ - nbytes_, 0);
      if (n == 0) return true;
      if (n < 0) return errno != EAGAIN && errno != EWOULDBLOCK;
      nbytes_ = std::min(nbytes_ + static_cast<std::size_t>(n), sizeof text_ - 1);
    }
    return true;
  }
  std::string_view text() const { return {text_, nbytes_}; }
  int status() const { return nbytes_ > 12 ? std::atoi(text_ + 9) : 0; }

 private:
  int file_;
  bool connected_ = false;
  char text_[1 << 16];
  std::size_t nbytes_ = 0;
};

struct HttpServed {
  HttpServed() {
    const std::string bundle = samples::bundle_of({samples::count_sample()}).build();
    std::ofstream(folder.path / "m.pkg", std::ios::binary) << bundle;
    RepositoryOptions models;
    models.path = folder.path;
    models.poll = std::chrono::milliseconds(0);
    models.threads = 1;
    models.defaults.sessions = 1;
    repository = std::move(*Repository::open(models, budget, *log));
    options.port = 0;
    options.io_threads = 2;
    options.log_requests = true;  // to /dev/null
    start();
    const auto until = Clock::now() + kLong;
    while (!repository->ready() && Clock::now() < until) std::this_thread::yield();
    REQUIRE(repository->ready());
  }
  void start() {
    auto made = http::HttpServer::start(options, *repository, shared, *access, *log, {});
    REQUIRE_MESSAGE(made.ok(), made.error().sentence);
    server = std::move(*made);
  }
  /// Of a connection that comes now.
  int status(std::string_view request) const {
    Client client(server->port());
    client.send(request);
    REQUIRE(client.read());
    return client.status();
  }

  Folder folder;
  std::unique_ptr<Log> log = std::move(*Log::open("/dev/null", LogFormat::kJson, Level::kInfo));
  std::unique_ptr<Access> access = std::move(*Access::open("", *log));
  Budget budget{std::uint64_t{1} << 32};
  SharedMemory shared;
  std::unique_ptr<Repository> repository;
  http::HttpOptions options;
  std::unique_ptr<http::HttpServer> server;
};

constexpr std::string_view kLive = "GET /v2/health/live HTTP/1.1\r\nHost: h\r\nConnection: close\r\n\r\n";

std::string post(const std::string& path, const std::string& body, const std::string& more = "") {
  return "POST " + path + " HTTP/1.1\r\nHost: h\r\nConnection: close\r\n" + more +
         "Content-Length: " + std::to_string(body.size()) + "\r\n\r\n" + body;
}

std::vector<std::string> requests() {
  const std::string infer = "/v2/models/m/infer", body = R"({"id":"a text that is long enough","inputs":[]})";
  const std::string sequence =
      R"({"inputs":[],"parameters":{"sequence_id":"one","sequence_start":true,"sequence_end":true}})";
  const std::string chunked =
      "POST " + infer + " HTTP/1.1\r\nHost: h\r\nConnection: close\r\nTransfer-Encoding: chunked\r\n\r\n";
  return {std::string(kLive),
          "GET /v2/models/m HTTP/1.1\r\nHost: h\r\n\r\n" + std::string(kLive),  // two that come at once
          "GET /metrics HTTP/1.1\r\nHost: h\r\nConnection: close\r\n\r\n",
          "nonsense\r\n\r\n",
          post(infer, body),
          post(infer, body, "Accept-Encoding: gzip\r\n"),
          post(infer, sequence),
          post(infer, "x", "Content-Encoding: gzip\r\n"),  // is read by another thread
          post(infer, body, "Expect: 100-continue\r\n"),
          post("/v2/models/none/infer", body),
          chunked + "9\r\n{\"inputs\"\r\n4\r\n:[]}\r\n0\r\n\r\n",
          post("/v2/repository/index", "{}"),
          post("/v2/repository/models/none/load", "{}")};
}

void wait_until(const std::function<bool()>& holds) {
  const auto until = Clock::now() + kLong;
  while (!holds() && Clock::now() < until) std::this_thread::sleep_for(std::chrono::milliseconds(5));
  REQUIRE(holds());
}

}  // namespace

TEST_CASE("without memory a connection ends, and the next is served") {
  const HttpServed served;
  for (const std::string& request : requests()) {
    CAPTURE(request);
    const int status = served.status(request);
    CHECK(status >= 200);
    with_each_failing([&](long good, bool rest) {
      Client client(served.server->port());
      bool came = false, ended = false;
      {
        const Failing failing(good, rest);
        client.send(request);
        ended = client.read();
        came = Failing::came();
      }
      CAPTURE(good);
      REQUIRE(ended);
      const bool fine = client.status() == 0 || client.status() == status || client.status() == 503;
      CHECK_MESSAGE(fine, client.text());
      REQUIRE(served.status(kLive) == 200);
      return came;
    });
    REQUIRE(served.status(request) == status);
  }
  wait_until([&] { return served.server->drained(); });  // of every connection
  CHECK(served.log->exceptions() > 0);
}

TEST_CASE("without memory the server goes on to accept") {
  const HttpServed served;
  with_each_failing([&](long good, bool rest) {
    bool came = false, ended = false;
    {
      const Failing failing(good, rest);
      Client client(served.server->port());
      client.send(kLive);
      ended = client.read();
      came = Failing::came();
    }
    CAPTURE(good);
    REQUIRE(ended);
    REQUIRE(served.status(kLive) == 200);
    return came;
  });
}

TEST_CASE("a look after connections for which there was no memory is made up for") {
  HttpServed served;
  served.server.reset();
  served.options.idle_timeout = std::chrono::seconds(1);
  served.start();
  Client idle(served.server->port());
  wait_until([&] { return !served.server->drained(); });
  const std::uint64_t before = served.log->exceptions();
  {
    const Failing failing(0, true);
    const auto until = Clock::now() + kLong;
    while (served.log->exceptions() < before + 3 && Clock::now() < until) std::this_thread::yield();
  }
  CHECK(served.log->exceptions() >= before + 3);
  CHECK(idle.read());
  wait_until([&] { return served.server->drained(); });
}

TEST_CASE("without memory a server drains") {
  const HttpServed served;
  Client idle(served.server->port());
  wait_until([&] { return !served.server->drained(); });
  {
    const Failing failing(0, true);
    served.server->drain();
    std::this_thread::sleep_for(std::chrono::milliseconds(400));  // beyond what idle connections are given
  }
  wait_until([&] { return served.server->drained(); });
  CHECK(idle.read());
  served.server->stop();
}
