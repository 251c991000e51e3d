// Threads for a kernel's parallel_for. The caller's thread is worker 0 and always takes part, so a region finishes even
// when no other thread ever wakes (after fork, or on a busy machine).
#pragma once

#include <hardtack/kernel_abi.h>

#include <atomic>
#include <memory>
#include <thread>
#include <vector>

#include "status.h"

namespace hardtack::rt {

class ThreadPool {
 public:
  static constexpr int32_t kMaxThreads = 1024;

  /// num_threads counts the caller's; 0: default_threads() (cpus.h).
  static Status create(int32_t num_threads, std::shared_ptr<ThreadPool>* pool);
  ~ThreadPool();
  ThreadPool(const ThreadPool&) = delete;
  ThreadPool& operator=(const ThreadPool&) = delete;

  /// As kernels see it; lives as long as the pool.
  const HtParallel* parallel() const { return &parallel_; }
  int32_t num_threads() const { return parallel_.nworkers; }

 private:
  using Task = void (*)(void* closure, int64_t index, int32_t worker);

  explicit ThreadPool(int32_t num_threads);
  static void run_entry(void* pool, int64_t num_tasks, Task task, void* closure);
  void run(int64_t num_tasks, Task task, void* closure);
  void work(int32_t worker);
  void share_out(int64_t num_tasks);
  void take_tasks(int32_t worker);
  bool wait_for_region(uint32_t* seen);
  void wake_workers(int64_t wanted);
  void wait_for_workers();

  HtParallel parallel_;
  int spin_ = 0;
  std::vector<std::thread> threads_;

  // Tasks that lie one behind the other, and the next of them that nobody has taken.
  struct alignas(64) Share {
    std::atomic<int64_t> next{0};
    int64_t end = 0;
  };

  // The region. Written by its caller while no worker is inside (active_ is 0 and open_ is false).
  Task task_ = nullptr;
  void* closure_ = nullptr;
  int32_t num_shares_ = 0;
  std::unique_ptr<Share[]> shares_;  // one for each worker
  // A worker enters by raising active_ and then reading open_; the caller closes and then waits for active_ to be 0.
  // Both sides use sequentially consistent operations, so either the worker sees the region closed or the caller sees
  // the worker.
  alignas(64) std::atomic<uint32_t> active_{0};  // its caller may sleep on it
  std::atomic<bool> open_{false};
  // Raised before its caller reads active_, and read by the worker that lowered active_ to 0: one of them sees the other.
  std::atomic<bool> caller_sleeps_{false};
  alignas(64) std::atomic<uint32_t> epoch_{0};  // counts regions; workers sleep on it
  std::atomic<int32_t> sleepers_{0};
  std::atomic<bool> stop_{false};
  alignas(64) std::atomic<bool> busy_{false};  // a session's region runs
};

}  // namespace hardtack::rt
