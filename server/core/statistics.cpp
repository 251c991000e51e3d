#include "server/core/statistics.h"

#include <algorithm>
#include <new>

namespace hardtack::serve {

void Statistics::ran(const Run& run) noexcept {
  const std::lock_guard<std::mutex> lock(mutex_);
  ++numbers_.execution_count;
  if (numbers_.batches.size() >= kMostBatchSizes && numbers_.batches.count(run.rows) == 0) return;
  try {
    BatchDurations& batch = numbers_.batches[run.rows];
    batch.compute_input.add(run.input_ns);
    batch.compute_infer.add(run.infer_ns);
    batch.compute_output.add(run.output_ns);
  } catch (const std::bad_alloc&) {
  }
}

void Statistics::succeeded(std::int64_t rows, std::uint64_t total_ns, std::uint64_t queue_ns, const Run& run) noexcept {
  const auto now = std::chrono::system_clock::now().time_since_epoch();
  const double seconds = static_cast<double>(total_ns) * 1e-9;
  const auto bucket = std::lower_bound(kLatencyBounds.begin(), kLatencyBounds.end(), seconds) - kLatencyBounds.begin();
  const std::lock_guard<std::mutex> lock(mutex_);
  numbers_.last_inference_ms =
      static_cast<std::uint64_t>(std::chrono::duration_cast<std::chrono::milliseconds>(now).count());
  numbers_.inference_count += static_cast<std::uint64_t>(rows);
  numbers_.success.add(total_ns);
  numbers_.queue.add(queue_ns);
  numbers_.compute_input.add(run.input_ns);
  numbers_.compute_infer.add(run.infer_ns);
  numbers_.compute_output.add(run.output_ns);
  ++numbers_.latency[static_cast<std::size_t>(bucket)];
  numbers_.device_fault.clear();
}

void Statistics::failed(const Error& error, std::uint64_t total_ns) noexcept {
  const std::lock_guard<std::mutex> lock(mutex_);
  numbers_.fail.add(total_ns);
  ++numbers_.fails_by_code[static_cast<std::size_t>(error.code)];
  if (error.code != Code::kDevice) return;
  try {
    numbers_.device_fault = error.sentence;
  } catch (const std::bad_alloc&) {
    numbers_.device_fault = "a device failed";
  }
}

StatisticsSnapshot Statistics::snapshot() const {
  const std::lock_guard<std::mutex> lock(mutex_);
  return numbers_;
}

}  // namespace hardtack::serve
