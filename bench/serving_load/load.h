// The load generator of bench/serving.py: prepared requests from one thread, every answer checked.
//
// It knows no model and no server. A file of cases, which bench/serving_cases.py writes, holds the bytes of each request,
// where its id is to be written, and the numbers that must come back.
#ifndef HARDTACK_BENCH_LOAD_H
#define HARDTACK_BENCH_LOAD_H

#include <hardtack/hardtack.h>

#include <chrono>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

namespace load {

using Clock = std::chrono::steady_clock;

constexpr std::size_t kIdNbytes = 16;  // ids are decimal numbers with leading zeros

/// An input of a case, for the direct call: its elements lie in the request.
struct Input {
  ht_dtype dtype{};
  std::vector<std::int64_t> shape;
  std::size_t offset = 0;
};

struct Case {
  std::string request;  // HTTP: head and body; gRPC: the message
  std::size_t id_offset = 0;
  std::vector<Input> inputs;
  std::vector<float> expected;  // the only output
  float tolerance = 0;          // of the difference, and of the difference relative to what is expected
};

/// Ends the program when the file is not one.
std::vector<Case> read_cases(const std::string& path);

/// "" or what is wrong with the bytes of the output.
std::string check(const Case& one, std::string_view output);

struct Answer {
  int client = 0;
  std::string_view id, output;  // until the client sends again
  std::string error;            // set: no answer
};

/// Carries requests of several clients, each at most one at a time.
class Transport {
 public:
  virtual ~Transport() = default;
  virtual void send(int client, const std::string& request) = 0;
  /// Adds the answers that are there, waiting for the first until `until`.
  virtual void wait(Clock::time_point until, std::vector<Answer>& answers) = 0;
};

std::unique_ptr<Transport> http(int port, int clients);
std::unique_ptr<Transport> grpc(int port, int clients);

/// Answers a case's request with its numbers, to whoever asks; prints its port first and ends when it is killed.
[[noreturn]] void serve_canned(const Case& one);

[[noreturn]] void die(const std::string& why);

}  // namespace load

#endif  // HARDTACK_BENCH_LOAD_H
