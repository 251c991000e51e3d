#include "thread_pool.h"

#include <linux/futex.h>
#include <sched.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <climits>
#include <system_error>

#include "cpus.h"

namespace hardtack::rt {
namespace {

// Regions follow each other within microseconds during a run: waiting threads look for about 50 us before they sleep.
constexpr int kSpinRounds = 2000;

void pause() {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#elif defined(__aarch64__)
  __asm__ volatile("yield");
#endif
}

void futex_wait(std::atomic<uint32_t>* word, uint32_t expected) {
  static_assert(sizeof(std::atomic<uint32_t>) == 4, "a futex is 4 bytes");
  ::syscall(SYS_futex, reinterpret_cast<uint32_t*>(word), FUTEX_WAIT_PRIVATE, expected, nullptr, nullptr, 0);
}

void futex_wake(std::atomic<uint32_t>* word, int most_threads) {
  ::syscall(SYS_futex, reinterpret_cast<uint32_t*>(word), FUTEX_WAKE_PRIVATE, most_threads, nullptr, nullptr, 0);
}

}  // namespace

Status ThreadPool::create(int32_t num_threads, std::shared_ptr<ThreadPool>* pool) {
  if (num_threads == 0) num_threads = default_threads();
  if (num_threads < 1 || num_threads > kMaxThreads) {
    return error(HT_INVALID_ARGUMENT, "num_threads is %d, expected 0 to %d", num_threads, kMaxThreads);
  }
  pool->reset(new ThreadPool(num_threads));
  ThreadPool* self = pool->get();
  for (int32_t worker = 1; worker < num_threads; ++worker) {
    try {
      self->threads_.emplace_back([self, worker] { self->work(worker); });
    } catch (const std::system_error&) {
      pool->reset();
      return error(HT_OUT_OF_MEMORY, "cannot start thread %d of %d", worker, num_threads);
    }
  }
  return Status();
}

ThreadPool::ThreadPool(int32_t num_threads)
    : parallel_{this, &ThreadPool::run_entry, num_threads},
      spin_(num_threads > 1 && num_threads <= usable_cpus() ? kSpinRounds : 0),
      shares_(new Share[static_cast<size_t>(num_threads)]) {}

ThreadPool::~ThreadPool() {
  stop_.store(true);
  epoch_.fetch_add(1);
  futex_wake(&epoch_, INT_MAX);
  for (std::thread& thread : threads_) thread.join();
}

void ThreadPool::run_entry(void* pool, int64_t num_tasks, Task task, void* closure) {
  static_cast<ThreadPool*>(pool)->run(num_tasks, task, closure);
}

void ThreadPool::run(int64_t num_tasks, Task task, void* closure) {
  // Alone, with one task, or while another session has the workers: everything on this thread.
  if (num_tasks <= 1 || parallel_.nworkers == 1 || busy_.exchange(true, std::memory_order_acquire)) {
    for (int64_t i = 0; i < num_tasks; ++i) task(closure, i, 0);
    return;
  }
  task_ = task;
  closure_ = closure;
  share_out(num_tasks);
  open_.store(true);
  epoch_.fetch_add(1);
  wake_workers(num_tasks - 1);
  take_tasks(0);
  open_.store(false);
  wait_for_workers();
  busy_.store(false, std::memory_order_release);
}

// Wakes as many as there are tasks for, less those that watch: of sixty-four sleepers three tasks need two, and each costs
// the caller a microsecond.
void ThreadPool::wake_workers(int64_t wanted) {
  const int64_t asleep = sleepers_.load();
  const int64_t missing = std::min(asleep, wanted - (parallel_.nworkers - 1 - asleep));
  if (missing > 0) futex_wake(&epoch_, static_cast<int>(missing));
}

// Returns when no worker is inside the region. Asleep after a while: where threads outnumber the CPUs, or a quota counts,
// the time of a caller that watches is taken from the workers that it waits for.
void ThreadPool::wait_for_workers() {
  for (int round = 0; round < spin_; ++round) {
    if (active_.load() == 0) return;
    pause();
  }
  caller_sleeps_.store(true);
  for (uint32_t active = active_.load(); active != 0; active = active_.load()) futex_wait(&active_, active);
  caller_sleeps_.store(false);
}

// Each worker has the same part of every region of so many tasks. What one kernel wrote lies in the cache of the worker
// that reads it in the next, and lines that it writes again need not be fetched from another's.
void ThreadPool::share_out(int64_t num_tasks) {
  num_shares_ = static_cast<int32_t>(std::min<int64_t>(parallel_.nworkers, num_tasks));
  const int64_t least = num_tasks / num_shares_, longer = num_tasks % num_shares_;
  int64_t begin = 0;
  for (int32_t s = 0; s < num_shares_; ++s) {
    shares_[s].next.store(begin, std::memory_order_relaxed);
    begin += least + (s < longer ? 1 : 0);
    shares_[s].end = begin;
  }
}

// The worker's own share, and then what is left of the others': so none waits while a slow or busy one has tasks.
void ThreadPool::take_tasks(int32_t worker) {
  for (int32_t k = 0; k < num_shares_; ++k) {
    Share& share = shares_[(worker + k) % num_shares_];
    while (share.next.load(std::memory_order_relaxed) < share.end) {
      const int64_t i = share.next.fetch_add(1, std::memory_order_relaxed);
      if (i < share.end) task_(closure_, i, worker);
    }
  }
}

void ThreadPool::work(int32_t worker) {
  uint32_t seen = 0;
  while (wait_for_region(&seen)) {
    active_.fetch_add(1);
    if (open_.load()) take_tasks(worker);
    if (active_.fetch_sub(1) == 1 && caller_sleeps_.load()) futex_wake(&active_, 1);
  }
}

// Returns when a region other than `seen` was opened; false when the pool ends.
bool ThreadPool::wait_for_region(uint32_t* seen) {
  for (int round = 0; round < spin_ && epoch_.load(std::memory_order_acquire) == *seen; ++round) pause();
  while (epoch_.load() == *seen) {
    sleepers_.fetch_add(1);
    futex_wait(&epoch_, *seen);
    sleepers_.fetch_sub(1);
  }
  *seen = epoch_.load();
  return !stop_.load();
}

}  // namespace hardtack::rt
