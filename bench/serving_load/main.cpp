// serving_load http PORT CASES CLIENTS SECONDS RATE     requests to a server
// serving_load grpc PORT CASES CLIENTS SECONDS RATE
// serving_load direct BUNDLE CASES SECONDS              calls of the library in this process
// serving_load canned CASES                             a server of prepared answers to the first case
//
// RATE 0: each client sends the next request when it has the answer to the last. Otherwise so many requests a second in
// all, evenly spaced; each takes a client that is free, and its latency counts from the moment when it was due.
// Prints one JSON object. Exit status 1: an answer was wrong, came twice or not at all.
#include <sys/resource.h>

#include <algorithm>
#include <cstdio>
#include <cstring>
#include <hardtack/hardtack.hpp>
#include <utility>

#include "load.h"

namespace {

using namespace load;

constexpr auto kPatience = std::chrono::seconds(20);  // for an answer
constexpr std::size_t kMostLatencies = 20000000;

double us_between(Clock::time_point a, Clock::time_point b) {
  return std::chrono::duration<double, std::micro>(b - a).count();
}

double quantile(std::vector<float>& values, double q) {
  if (values.empty()) return 0;
  const auto at = values.begin() + static_cast<std::ptrdiff_t>(q * static_cast<double>(values.size() - 1));
  std::nth_element(values.begin(), at, values.end());
  return static_cast<double>(*at);
}

double cpu_seconds() {
  rusage usage{};
  ::getrusage(RUSAGE_SELF, &usage);
  const auto seconds = [](const timeval& t) {
    return static_cast<double>(t.tv_sec) + 1e-6 * static_cast<double>(t.tv_usec);
  };
  return seconds(usage.ru_utime) + seconds(usage.ru_stime);
}

class Run {
 public:
  Run(std::vector<Case> cases, int clients, double seconds, double rate)
      : cases_(std::move(cases)), clients_(static_cast<std::size_t>(clients)), seconds_(seconds), rate_(rate) {
    for (int client = clients; client-- > 0;) free_.push_back(client);
  }

  int go(Transport& transport) {
    start_ = Clock::now();
    end_ = after(seconds_);
    const double cpu = cpu_seconds();
    std::vector<Answer> answers;
    while (error_.empty()) {
      const auto now = Clock::now();
      send_due(transport, now);
      if (now >= end_ && free_.size() == clients_.size()) break;
      if (now >= end_ + kPatience) error_ = std::to_string(clients_.size() - free_.size()) + " answers did not come";
      answers.clear();
      transport.wait(next_look(now), answers);
      for (const Answer& answer : answers) take(answer);
    }
    report(std::chrono::duration<double>(Clock::now() - start_).count(), cpu_seconds() - cpu);
    return error_.empty() ? 0 : 1;
  }

 private:
  struct Client {
    const Case* asked = nullptr;
    std::string request;
    char id[kIdNbytes + 1] = "";
    Clock::time_point since;
  };

  Clock::time_point after(double seconds) const {
    return start_ + std::chrono::duration_cast<Clock::duration>(std::chrono::duration<double>(seconds));
  }
  Clock::time_point due() const { return rate_ > 0 ? after(static_cast<double>(sent_) / rate_) : start_; }

  Clock::time_point next_look(Clock::time_point now) const {
    if (now >= end_) return end_ + kPatience;
    return rate_ > 0 && !free_.empty() ? std::min(due(), end_) : end_;
  }

  void send_due(Transport& transport, Clock::time_point now) {
    for (auto next = due(); !free_.empty() && next <= now && now < end_ && next < end_; next = due()) {
      Client& client = clients_[static_cast<std::size_t>(free_.back())];
      pick_ = pick_ * 1664525U + 1013904223U;
      const Case& one = cases_[(pick_ >> 8U) % cases_.size()];
      std::snprintf(client.id, sizeof client.id, "%016llu", static_cast<unsigned long long>(sent_++));
      client.request = one.request;
      std::memcpy(client.request.data() + one.id_offset, client.id, kIdNbytes);
      client.asked = &one;
      client.since = rate_ > 0 ? next : now;
      const int number = free_.back();
      free_.pop_back();
      transport.send(number, client.request);
    }
  }

  void take(const Answer& answer) {
    const auto now = Clock::now();
    Client& client = clients_[static_cast<std::size_t>(answer.client)];
    ++answers_;
    if (latencies_.size() < kMostLatencies) latencies_.push_back(static_cast<float>(us_between(client.since, now)));
    if (!answer.error.empty()) {
      error_ = answer.error;
    } else if (answer.id != client.id) {
      error_ = "the answer to request " + std::string(answer.id) + " came for " + client.id;
    } else {
      error_ = check(*client.asked, answer.output);
    }
    free_.push_back(answer.client);
  }

  void report(double seconds, double cpu) {
    if (!error_.empty()) std::fprintf(stderr, "serving_load: %s\n", error_.c_str());
    std::printf(
        "{\"answers\": %llu, \"per_second\": %.1f, \"p50_us\": %.1f, \"p90_us\": %.1f, \"p99_us\": %.1f, "
        "\"max_us\": %.1f, \"client_cpu\": %.3f}\n",
        static_cast<unsigned long long>(answers_), static_cast<double>(answers_) / seconds, quantile(latencies_, 0.5),
        quantile(latencies_, 0.9), quantile(latencies_, 0.99), quantile(latencies_, 1), cpu / seconds);
  }

  std::vector<Case> cases_;
  std::vector<Client> clients_;
  std::vector<int> free_;
  const double seconds_, rate_;
  Clock::time_point start_, end_;
  std::uint64_t sent_ = 0, answers_ = 0;
  std::uint32_t pick_ = 1;
  std::vector<float> latencies_;  // microseconds
  std::string error_;
};

// Calls the default entry point with each case in turn, on tensors that are aligned as a program's own would be.
class Direct {
 public:
  Direct(const std::string& bundle, const std::vector<Case>& cases) {
    auto model = hardtack::Model::load(bundle);
    if (!model.ok()) die(model.status().message());
    auto session = model->new_session();
    if (!session.ok()) die(session.status().message());
    session_ = std::move(*session);
    for (const Case& one : cases) {
      std::vector<ht_tensor>& inputs = inputs_.emplace_back();
      for (const Input& input : one.inputs) inputs.push_back(place(one, input));
    }
  }

  std::string call(std::size_t number, const Case& one) {
    ht_tensor output{};
    const hardtack::Status status = session_.run("forward", inputs_[number].data(), inputs_[number].size(), &output, 1);
    if (!status.ok()) return status.message();
    const char* data = static_cast<const char*>(output.data) + output.byte_offset;
    return check(one, std::string_view(data, one.expected.size() * sizeof(float)));
  }

 private:
  struct alignas(64) Line {
    char bytes[64];
  };

  ht_tensor place(const Case& one, const Input& input) {
    std::size_t nbytes = input.dtype.bits / 8U;
    for (const std::int64_t size : input.shape) nbytes *= static_cast<std::size_t>(size);
    if (input.offset > one.request.size() || nbytes > one.request.size() - input.offset)
      die("an input passes its case");
    auto& memory = memory_.emplace_back(nbytes / sizeof(Line) + 1);
    std::memcpy(memory.data(), one.request.data() + input.offset, nbytes);
    ht_tensor tensor{};
    tensor.data = memory.data();
    tensor.device.device_type = static_cast<decltype(tensor.device.device_type)>(1);
    tensor.ndim = static_cast<std::int32_t>(input.shape.size());
    tensor.dtype = input.dtype;
    tensor.shape = const_cast<std::int64_t*>(input.shape.data());
    return tensor;
  }

  hardtack::Session session_;
  std::vector<std::vector<ht_tensor>> inputs_;
  std::vector<std::vector<Line>> memory_;
};

int direct(const std::string& bundle, const std::vector<Case>& cases, double seconds) {
  Direct calls(bundle, cases);
  std::vector<float> latencies;
  const auto start = Clock::now();
  for (auto now = start; us_between(start, now) < seconds * 1e6;) {
    const std::size_t number = latencies.size() % cases.size();
    const std::string wrong = calls.call(number, cases[number]);
    if (!wrong.empty()) die(wrong);
    const auto before = std::exchange(now, Clock::now());
    latencies.push_back(static_cast<float>(us_between(before, now)));
  }
  std::printf("{\"p50_us\": %.1f, \"p99_us\": %.1f}\n", quantile(latencies, 0.5), quantile(latencies, 0.99));
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  const std::vector<std::string> a(argv + 1, argv + argc);
  if (a.size() == 4 && a[0] == "direct") return direct(a[1], read_cases(a[2]), std::stod(a[3]));
  if (a.size() == 2 && a[0] == "canned") serve_canned(read_cases(a[1]).at(0));
  if (a.size() != 6 || (a[0] != "http" && a[0] != "grpc")) die("wrong arguments; see the top of main.cpp");
  const int port = std::stoi(a[1]), clients = std::stoi(a[3]);
  const auto transport = a[0] == "http" ? http(port, clients) : grpc(port, clients);
  return Run(read_cases(a[2]), clients, std::stod(a[4]), std::stod(a[5])).go(*transport);
}
