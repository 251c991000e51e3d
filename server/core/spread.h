// Which runs are spread over several threads.
//
// Requests are work for several threads already: a run that takes workers while other runs want the processors, or that
// is over before they are awake, delays others and gains nothing. So a session's parallel regions go to the shared pool
// only while no other session runs, and only if a run of that kind takes long enough to be worth it.
#ifndef HARDTACK_SERVER_CORE_SPREAD_H
#define HARDTACK_SERVER_CORE_SPREAD_H

#include <atomic>
#include <chrono>
#include <cstddef>
#include <hardtack/hardtack.hpp>

namespace hardtack::serve {

/// The pool that all sessions share, and how many of them run now.
struct Workers {
  hardtack::Pool pool;  // empty: each session has threads of its own
  std::atomic<int> running{0};
};

/// The threads of one session; used by one thread at a time. Must outlive the session.
class Spread {
 public:
  explicit Spread(Workers& workers) : workers_(workers), parallel_{this, &Spread::run_entry, 1} {
    parallel_.nworkers = workers.pool.parallel()->nworkers;
  }
  Spread(const Spread&) = delete;
  Spread& operator=(const Spread&) = delete;

  /// For ht_session_options.parallel.
  const HtParallel& parallel() const { return parallel_; }

  /// Whether the last runs of this kind let expect that one is over before it is worth waking another thread. Where the
  /// time depends on the data, two long runs close to each other are enough for a no, until several short ones follow.
  bool is_short(const void* kind, std::size_t nbytes) const;

  /// Lives as long as a run of the session. Runs of the same `kind` take time in proportion to `nbytes`, about.
  class Run {
   public:
    Run(Spread& spread, const void* kind, std::size_t nbytes);
    ~Run();
    Run(const Run&) = delete;
    Run& operator=(const Run&) = delete;

    /// At its end, if it did all its work: only such runs tell how long the next may take.
    void succeeded();

   private:
    Spread& spread_;
    const std::size_t nbytes_;
    const std::chrono::steady_clock::time_point start_ = std::chrono::steady_clock::now();
  };

 private:
  using Task = void (*)(void* closure, std::int64_t index, std::int32_t worker);
  static void run_entry(void* spread, std::int64_t num_tasks, Task task, void* closure);

  Workers& workers_;
  HtParallel parallel_;
  const void* kind_ = nullptr;  // of the last run
  double ns_per_nbyte_ = 0;     // of the last runs, on one thread; 0: not known
  int doubt_ = 0;               // more with each run that was long, less with each that was short
  bool long_ = true;            // the run that is under way
};

}  // namespace hardtack::serve

#endif  // HARDTACK_SERVER_CORE_SPREAD_H
