#include "server/http/server.h"

#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <boost/asio/executor_work_guard.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/post.hpp>
#include <boost/asio/ssl/context.hpp>
#include <cerrno>
#include <cstring>
#include <optional>
#include <thread>
#include <vector>

#include "server/core/background.h"
#include "server/core/contain.h"
#include "server/core/cpus.h"
#include "server/http/connection.h"
#include "server/http/listener.h"
#include "server/http/routes.h"
#include "server/http/shared_state.h"

namespace hardtack::serve::http {

namespace {

namespace asio = boost::asio;
using asio::ip::tcp;
using ErrorCode = boost::system::error_code;

constexpr int kControlThreads = 8, kParsingThreads = 3;
constexpr auto kLongWait = std::chrono::milliseconds(10);  // 64 clients of small models wait for 1 or 2

int io_threads(const HttpOptions& options) {
  if (options.io_threads > 0) return options.io_threads;
  return std::clamp(usable_cpus(), 2, 4);
}

Error invalid(std::string sentence) { return {Code::kInvalid, std::move(sentence)}; }

}  // namespace

class HttpServer::State {
 public:
  State(const HttpOptions& options_, Repository& repository, SharedMemory& memory, Access& access, Log& log_,
        std::function<void(MetricsPage&)> more_metrics)
      : options(options_),
        log(log_),
        routes(repository, memory, access, log_, options_.max_body, control, parsing,
               [this, more = std::move(more_metrics)](MetricsPage& page) {
                 write_metrics(page);
                 if (more) more(page);
               }),
        shared(options, routes, parsing, repository.budget(), log_, io_threads(options_) - 1) {}
  ~State() { stop(); }

  Outcome<std::shared_ptr<asio::ssl::context>> tls_context() const;
  void start();
  void stop() noexcept;
  void begin(tcp::socket&& socket);
  void serve_connections() noexcept;
  void measure_wait();
  void write_metrics(MetricsPage& page) const;

  const HttpOptions options;
  const std::vector<std::string> tls_files{options.tls_certificate, options.tls_key, options.tls_client_ca};
  const std::string tls_stamp = stamp_of_files(tls_files);  // before they are read
  Log& log;
  Background control{kControlThreads, log}, parsing{kParsingThreads, log};
  Routes routes;
  SharedState shared;
  asio::io_context io{io_threads(options)};
  std::shared_ptr<asio::ssl::context> tls;  // null: plain; changed by reload_tls() while others read it
  Listener listener{io, log};
  Seldom refused, unreadable;
  Clock::time_point asked;  // when what is `waiting` was posted
  std::atomic<bool> waiting{false};
  asio::executor_work_guard<asio::io_context::executor_type> open_end = asio::make_work_guard(io);
  std::vector<std::thread> threads;
};

Outcome<std::shared_ptr<asio::ssl::context>> HttpServer::State::tls_context() const {
  if (options.tls_certificate.empty()) return std::shared_ptr<asio::ssl::context>();
  auto made = std::make_shared<asio::ssl::context>(asio::ssl::context::tls_server);
  made->set_options(asio::ssl::context::default_workarounds | asio::ssl::context::no_sslv2 |
                    asio::ssl::context::no_sslv3 | asio::ssl::context::no_tlsv1 | asio::ssl::context::no_tlsv1_1);
  ErrorCode error;
  const auto bad_file = [&error](const std::string& what, const std::string& path) {
    const bool readable = ::access(path.c_str(), R_OK) == 0;
    return invalid(what + " " + path + " cannot be used: " + (readable ? error.message() : std::strerror(errno)));
  };
  made->use_certificate_chain_file(options.tls_certificate, error);
  if (error) return bad_file("the TLS certificate", options.tls_certificate);
  made->use_private_key_file(options.tls_key, asio::ssl::context::pem, error);
  if (error) return bad_file("the TLS key", options.tls_key);
  if (options.tls_client_ca.empty()) return made;
  made->load_verify_file(options.tls_client_ca, error);
  if (error) return bad_file("the file of client authorities", options.tls_client_ca);
  made->set_verify_mode(asio::ssl::verify_peer | asio::ssl::verify_fail_if_no_peer_cert);
  return made;
}

void HttpServer::State::begin(tcp::socket&& socket) {
  if (shared.draining) return;
  if (shared.open() >= options.max_connections) {
    ++shared.counts.refused;
    log.write_seldom(refused, Level::kWarning, "connections beyond --max-connections are refused",
                     {{"protocol", "HTTP"}, {"max_connections", options.max_connections}});
    return turn_away(socket, options.max_connections);
  }
  serve(std::move(socket), std::atomic_load(&tls).get(), shared);
}

// A connection's own steps throw nothing (Connection::attempt); Asio finds no memory between them, as a rule.
void HttpServer::State::serve_connections() noexcept {
  while (!contain(log, "a connection", [this] { io.run(); })) {
  }
}

void HttpServer::State::start() {
  const auto look = [this] {
    measure_wait();
    shared.sweep();
  };
  listener.start([this](tcp::socket&& socket) { begin(std::move(socket)); }, look);
  for (int i = 0; i < io_threads(options); ++i) threads.emplace_back([this] { serve_connections(); });
}

// Hundreds of connections that all have a request for an io thread make each of them wait for the others: how long is
// seen from what is posted to those threads, again and again.
void HttpServer::State::measure_wait() {
  const auto note = [this](bool behind) {
    if (behind && !shared.behind.exchange(behind)) ++shared.counts.behind;
    shared.behind = behind;
  };
  if (waiting) return note(true);
  asked = Clock::now();
  waiting = true;
  try {
    asio::post(io, [this, note] {
      note(Clock::now() - asked > kLongWait);
      waiting = false;
    });
  } catch (...) {
    waiting = false;
    throw;
  }
}

void HttpServer::State::stop() noexcept {
  listener.stop();
  contain(log, "the connections that are left", [this] { shared.shut_all(); });
  parsing.join();
  control.join();
  io.stop();
  for (std::thread& thread : threads) thread.join();
  threads.clear();
}

void HttpServer::State::write_metrics(MetricsPage& page) const {
  page.family("hardtack_http_requests_total", "counter", "HTTP requests by the status of their reply.");
  for (std::size_t status = 0; status < shared.counts.by_status.size(); ++status) {
    const std::uint64_t count = shared.counts.by_status[status];
    if (count > 0) page.sample("hardtack_http_requests_total", label("status", std::to_string(status)), count);
  }
  page.family("hardtack_http_connections", "gauge", "Open HTTP connections.");
  page.sample("hardtack_http_connections", "", std::uint64_t{shared.open()});
  page.family("hardtack_http_connections_total", "counter", "HTTP connections that were accepted.");
  page.sample("hardtack_http_connections_total", "", shared.counts.connections.load());
  page.family("hardtack_http_connections_refused_total", "counter", "HTTP connections beyond the limit.");
  page.sample("hardtack_http_connections_refused_total", "", shared.counts.refused.load());
  page.family("hardtack_http_behind_total", "counter", "Times that the io threads fell behind: requests left them.");
  page.sample("hardtack_http_behind_total", "", shared.counts.behind.load());
  page.family("hardtack_http_body_bytes_total", "counter", "Bytes of bodies.");
  page.sample("hardtack_http_body_bytes_total", "direction=\"in\"", shared.counts.bytes_in.load());
  page.sample("hardtack_http_body_bytes_total", "direction=\"out\"", shared.counts.bytes_out.load());
}

HttpServer::HttpServer(std::unique_ptr<State> state) : state_(std::move(state)) {}

Outcome<std::unique_ptr<HttpServer>> HttpServer::start(const HttpOptions& options, Repository& repository,
                                                       SharedMemory& shared, Access& access, Log& log,
                                                       std::function<void(MetricsPage&)> more_metrics) {
  auto state = std::make_unique<State>(options, repository, shared, access, log, std::move(more_metrics));
  auto tls = state->tls_context();
  if (!tls.ok()) return tls.error();
  state->tls = std::move(*tls);
  if (Failure failed = state->listener.open(options.host, options.port)) return *failed;
  state->start();
  return std::unique_ptr<HttpServer>(new HttpServer(std::move(state)));
}

HttpServer::~HttpServer() = default;

std::uint16_t HttpServer::port() const { return state_->listener.port(); }

bool HttpServer::reload_tls() noexcept {
  constexpr const char* kNotTaken = "the files of TLS were not taken; those before go on";
  State& state = *state_;
  try {
    auto tls = state.tls_context();
    if (!tls.ok()) {
      const bool later = is_unreadable(state.tls_files);
      if (!later || state.unreadable.is_due()) {
        state.log.write(Level::kError, kNotTaken, {{"reason", tls.error().sentence}});
      }
      return !later;
    }
    if (*tls == nullptr) return true;
    std::atomic_store(&state.tls, std::move(*tls));
    state.log.write(Level::kInfo, "the files of TLS were read", {{"certificate", state.options.tls_certificate}});
    return true;
  } catch (...) {
    state.log.write_seldom(state.unreadable, Level::kError, kNotTaken, {{"reason", from_exception().sentence}});
    return false;
  }
}

FileWatch::Watched HttpServer::watched() {
  return {state_->tls_files, state_->tls_stamp, [this] { return reload_tls(); }};
}

void HttpServer::drain() {
  state_->shared.draining_since = Clock::now().time_since_epoch().count();
  state_->shared.draining = true;
  state_->listener.close();
}

bool HttpServer::drained() const { return state_->shared.open() == 0; }

void HttpServer::stop() { state_->stop(); }

}  // namespace hardtack::serve::http
