// What one version of a model has done, in the terms of the protocol's statistics extension.
#ifndef HARDTACK_SERVER_CORE_STATISTICS_H
#define HARDTACK_SERVER_CORE_STATISTICS_H

#include <array>
#include <cstdint>
#include <map>
#include <mutex>

#include "server/core/error.h"
#include "server/core/request.h"

namespace hardtack::serve {

struct Duration {
  std::uint64_t count = 0;
  std::uint64_t ns = 0;
  void add(std::uint64_t more_ns) { ++count, ns += more_ns; }
};

/// Bounds of the latency histogram in seconds; the last bucket is +Inf.
inline constexpr std::array<double, 14> kLatencyBounds = {0.0001, 0.00025, 0.0005, 0.001, 0.0025, 0.005, 0.01,
                                                          0.025,  0.05,    0.1,    0.25,  0.5,    1,     5};

struct BatchDurations {
  Duration compute_input, compute_infer, compute_output;
};

/// A copy of the numbers at one moment.
struct StatisticsSnapshot {
  std::uint64_t last_inference_ms = 0;  // since 1970; 0: none yet
  std::uint64_t inference_count = 0;    // rows that were answered well: a batch of 8 counts 8
  std::uint64_t execution_count = 0;    // runs of the model
  Duration success, fail, queue, compute_input, compute_infer, compute_output;
  std::map<std::int64_t, BatchDurations> batches;                  // by rows of a run; see Statistics::ran
  std::array<std::uint64_t, kNumCodes> fails_by_code{};            // requests, by Code
  std::array<std::uint64_t, kLatencyBounds.size() + 1> latency{};  // requests answered well, not cumulative
  std::uint64_t waiting = 0;                                       // requests in the queue now
  std::uint64_t clients = 0;                                       // from whom they are
  std::uint64_t running = 0;                                       // requests in a run now
  std::uint64_t sequences = 0;
  std::uint64_t stuck = 0;   // runs that have not come back though they were asked to end
  std::string device_fault;  // why the device failed, while no request was answered well since
};

/// Sizes of runs that are told apart: clients choose them.
inline constexpr std::size_t kMostBatchSizes = 1024;

/// Counts; safe from any thread. What there is no memory for is left out.
class Statistics {
 public:
  struct Run {
    std::int64_t rows = 1;  // along the batch dimension, 1 where there is none
    std::uint64_t input_ns = 0, infer_ns = 0, output_ns = 0;
  };
  /// After kMostBatchSizes, runs of further sizes are counted in all but `batches`.
  void ran(const Run& run) noexcept;
  /// One request of `rows` was answered well: its whole time and the part it waited; `run` is the one it was in.
  void succeeded(std::int64_t rows, std::uint64_t total_ns, std::uint64_t queue_ns, const Run& run) noexcept;
  void failed(const Error& error, std::uint64_t total_ns) noexcept;
  /// waiting, clients, running, sequences and stuck are left 0: the version knows them.
  StatisticsSnapshot snapshot() const;

 private:
  mutable std::mutex mutex_;
  StatisticsSnapshot numbers_;
};

}  // namespace hardtack::serve

#endif  // HARDTACK_SERVER_CORE_STATISTICS_H
