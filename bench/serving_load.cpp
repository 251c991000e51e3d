// The load generator of bench/serving.py: inference over HTTP by native clients, each answer checked against a direct call.
//
//   serving_load overhead PORT MODEL BUNDLE COLS CALLS ROUNDS      one client and direct calls, in turns
//   serving_load load PORT MODEL BUNDLE COLS CLIENTS SECONDS RATE ROWS[,ROWS...]
//                     RATE 0: each client sends the next request when it has the answer to the last; otherwise so many a
//                     second in all, each at its time, and latencies count from then
//
// The model takes x: f32[batch, COLS] and gives one output. Prints one JSON object. Exit status 1: an answer was wrong.

#include <arpa/inet.h>
#include <netinet/tcp.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <hardtack/hardtack.hpp>
#include <string>
#include <thread>
#include <vector>

namespace {

using Clock = std::chrono::steady_clock;

[[noreturn]] void die(const std::string& why) {
  std::fprintf(stderr, "serving_load: %s\n", why.c_str());
  std::exit(1);
}

double us_since(Clock::time_point start) {
  return std::chrono::duration<double, std::micro>(Clock::now() - start).count();
}

double quantile(std::vector<double>& values, double q) {
  if (values.empty()) return 0;
  const auto at = values.begin() + static_cast<std::ptrdiff_t>(q * static_cast<double>(values.size() - 1));
  std::nth_element(values.begin(), at, values.end());
  return *at;
}

// A size of batch with its input and what a direct call makes of it.
struct Case {
  std::int64_t rows = 0;
  std::vector<float> x, y;
};

Case make_case(hardtack::Session& session, std::int64_t rows, std::int64_t cols) {
  Case made;
  made.rows = rows;
  made.x.resize(static_cast<std::size_t>(rows * cols));
  std::uint32_t seed = 12345 + static_cast<std::uint32_t>(rows);
  for (float& value : made.x) {
    seed = seed * 1664525U + 1013904223U;
    value = static_cast<float>(seed >> 8U) / 16777216.0F - 0.5F;
  }
  auto run = session.run({hardtack::Tensor::of(made.x.data(), {rows, cols})});
  if (!run.ok()) die(run.status().message());
  std::int64_t numel = 1;
  for (const std::int64_t size : run->at(0).shape()) numel *= size;
  made.y.assign(run->at(0).data<float>(), run->at(0).data<float>() + numel);
  return made;
}

class Client {
 public:
  Client(int port, std::string model, std::int64_t cols) : port_(port), model_(std::move(model)), cols_(cols) {
    connect();
  }
  ~Client() { ::close(socket_); }
  Client(const Client&) = delete;

  // Sends one request, reads its answer; "" or what is wrong with it.
  std::string ask(const Case& one, const std::string& id) {
    const std::size_t nbytes = one.x.size() * sizeof(float);
    std::string json = "{\"id\":\"" + id + "\",\"inputs\":[{\"name\":\"x\",\"datatype\":\"FP32\",\"shape\":[" +
                       std::to_string(one.rows) + "," + std::to_string(cols_) +
                       "],\"parameters\":{\"binary_data_size\":" + std::to_string(nbytes) +
                       "}}],\"parameters\":{\"binary_data_output\":true}}";
    request_ = "POST /v2/models/" + model_ +
               "/infer HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: " + std::to_string(json.size() + nbytes) +
               "\r\nInference-Header-Content-Length: " + std::to_string(json.size()) + "\r\n\r\n" + json;
    request_.append(reinterpret_cast<const char*>(one.x.data()), nbytes);
    for (std::size_t sent = 0; sent < request_.size();) {
      const ssize_t n = ::send(socket_, request_.data() + sent, request_.size() - sent, MSG_NOSIGNAL);
      if (n <= 0) return "the connection broke while sending";
      sent += static_cast<std::size_t>(n);
    }
    return read_answer(one, id);
  }

 private:
  void connect() {
    socket_ = ::socket(AF_INET, SOCK_STREAM, 0);
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_port = htons(static_cast<std::uint16_t>(port_));
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    if (::connect(socket_, reinterpret_cast<sockaddr*>(&address), sizeof address) != 0) die("cannot connect");
    const int one = 1;
    ::setsockopt(socket_, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
  }

  static std::size_t number_after(const std::string& head, const char* name) {
    const std::size_t at = head.find(name);
    return at == std::string::npos ? 0 : std::strtoull(head.c_str() + at + std::strlen(name), nullptr, 10);
  }

  std::string read_answer(const Case& one, const std::string& id) {
    answer_.clear();
    std::size_t head = std::string::npos, length = 0;
    while (head == std::string::npos || answer_.size() < head + 4 + length) {
      char buffer[65536];
      const ssize_t n = ::recv(socket_, buffer, sizeof buffer, 0);
      if (n <= 0) return "the connection ended before the answer did";
      answer_.append(buffer, static_cast<std::size_t>(n));
      if (head == std::string::npos) head = answer_.find("\r\n\r\n");
      if (head != std::string::npos) length = number_after(answer_, "\r\nContent-Length: ");
    }
    if (answer_.compare(0, 12, "HTTP/1.1 200") != 0) return answer_.substr(0, 400);
    if (answer_.size() != head + 4 + length) return "an answer too much";
    const std::size_t json = number_after(answer_, "\r\nInference-Header-Content-Length: ");
    if (answer_.find("\"id\":\"" + id + "\"", head) >= head + 4 + json)
      return "the answer of another request: " + answer_.substr(head, json);
    if (length - json != one.y.size() * sizeof(float)) return "an answer of another size";
    std::vector<float> y(one.y.size());
    std::memcpy(y.data(), answer_.data() + head + 4 + json, y.size() * sizeof(float));
    for (std::size_t i = 0; i < y.size(); ++i) {
      if (!(std::fabs(y[i] - one.y[i]) <= 1e-4F * (1 + std::fabs(one.y[i])))) return "wrong numbers";
    }
    return "";
  }

  int port_, socket_ = -1;
  std::string model_;
  std::int64_t cols_;
  std::string request_, answer_;
};

int overhead(int port, const std::string& model, hardtack::Session& session, std::int64_t cols, int calls, int rounds) {
  const Case one = make_case(session, 1, cols);
  Client client(port, model, cols);
  std::vector<double> direct, http;
  for (int round = 0; round < rounds; ++round) {
    for (int i = 0; i < calls; ++i) {
      const auto start = Clock::now();
      auto run = session.run({hardtack::Tensor::of(one.x.data(), {1, cols})});
      direct.push_back(us_since(start));
      if (!run.ok()) die(run.status().message());
    }
    for (int i = 0; i < calls; ++i) {
      const auto start = Clock::now();
      const std::string wrong = client.ask(one, std::to_string(i));
      http.push_back(us_since(start));
      if (!wrong.empty()) die(wrong);
    }
  }
  const double d = quantile(direct, 0.5), h = quantile(http, 0.5);
  std::printf("{\"direct_us\": %.1f, \"http_us\": %.1f, \"added_us\": %.1f, \"http_p99_us\": %.1f}\n", d, h, h - d,
              quantile(http, 0.99));
  return 0;
}

struct Totals {
  std::atomic<std::uint64_t> answers{0}, errors{0};
  std::vector<double> latencies;  // microseconds
  std::string first_error;
};

int load(int port, const std::string& model, const std::vector<Case>& cases, std::int64_t cols, int clients,
         double seconds, double rate) {
  Totals totals;
  std::vector<Totals> each(static_cast<std::size_t>(clients));
  std::vector<std::thread> threads;
  const auto start = Clock::now() + std::chrono::milliseconds(50);
  const auto end = start + std::chrono::duration_cast<Clock::duration>(std::chrono::duration<double>(seconds));
  for (int c = 0; c < clients; ++c) {
    threads.emplace_back([&, c] {
      Totals& mine = each[static_cast<std::size_t>(c)];
      mine.latencies.reserve(1 << 16);
      Client client(port, model, cols);
      std::uint32_t pick = static_cast<std::uint32_t>(c) * 7919U;
      const auto step = std::chrono::duration<double>(rate > 0 ? clients / rate : 0);
      for (std::uint64_t i = 0;; ++i) {
        const auto due = start + std::chrono::duration_cast<Clock::duration>(
                                     step * (static_cast<double>(i) + static_cast<double>(c) / clients));
        if (rate > 0) std::this_thread::sleep_until(due);
        const auto begin = rate > 0 ? due : Clock::now();
        if (begin >= end || Clock::now() >= end) return;
        pick = pick * 1664525U + 1013904223U;
        const Case& one = cases[(pick >> 16U) % cases.size()];
        const std::string wrong = client.ask(one, std::to_string(c) + "-" + std::to_string(i));
        ++mine.answers;
        if (mine.latencies.size() < 4000000) mine.latencies.push_back(us_since(begin));
        if (wrong.empty()) continue;
        if (mine.errors++ == 0) mine.first_error = wrong;
        return;
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  const double took = std::chrono::duration<double>(Clock::now() - start).count();
  for (Totals& mine : each) {
    totals.answers += mine.answers;
    totals.errors += mine.errors;
    totals.latencies.insert(totals.latencies.end(), mine.latencies.begin(), mine.latencies.end());
    if (totals.first_error.empty()) totals.first_error = mine.first_error;
  }
  if (totals.errors > 0) std::fprintf(stderr, "serving_load: %s\n", totals.first_error.c_str());
  std::printf("{\"answers\": %llu, \"errors\": %llu, \"per_second\": %.0f, \"p50_us\": %.0f, \"p99_us\": %.0f}\n",
              static_cast<unsigned long long>(totals.answers.load()),
              static_cast<unsigned long long>(totals.errors.load()), static_cast<double>(totals.answers) / took,
              quantile(totals.latencies, 0.5), quantile(totals.latencies, 0.99));
  return totals.errors > 0 ? 1 : 0;
}

}  // namespace

int main(int argc, char** argv) {
  const std::vector<std::string> a(argv + 1, argv + argc);
  const bool is_overhead = a.size() == 7 && a[0] == "overhead", is_load = a.size() == 9 && a[0] == "load";
  if (!is_overhead && !is_load) die("wrong arguments; see the top of serving_load.cpp");
  auto model = hardtack::Model::load(a[3]);
  if (!model.ok()) die(model.status().message());
  auto session = model->new_session();
  if (!session.ok()) die(session.status().message());
  const int port = std::stoi(a[1]);
  const std::int64_t cols = std::stoll(a[4]);
  if (is_overhead) return overhead(port, a[2], *session, cols, std::stoi(a[5]), std::stoi(a[6]));
  std::vector<Case> cases;
  for (const char* at = a[8].c_str(); *at != '\0'; at += *at == ',' ? 1 : 0) {
    cases.push_back(make_case(*session, std::strtoll(at, const_cast<char**>(&at), 10), cols));
  }
  return load(port, a[2], cases, cols, std::stoi(a[5]), std::stod(a[6]), std::stod(a[7]));
}
