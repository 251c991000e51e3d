// Which runs are spread over several threads.
//
// Requests are work for several threads already: a run that takes workers while other runs want the processors, or that
// is over before they are awake, delays others and gains nothing. So a session's parallel regions go to the shared pool
// only while no other session runs, and only where that has been seen to gain something: runs of a kind are timed both
// ways, and where several clients ask at once, only long ones are spread, since what one gains is taken from the next.
#ifndef HARDTACK_SERVER_CORE_SPREAD_H
#define HARDTACK_SERVER_CORE_SPREAD_H

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <hardtack/hardtack.hpp>
#include <vector>

namespace hardtack::serve {

/// The pool that all sessions share, how many of them run now, and how crowded it has been lately.
struct Workers {
  hardtack::Pool pool;  // empty: each session has threads of its own
  std::atomic<int> running{0};
  std::atomic<std::uint64_t> client{0};  // whose the last run was
  // The part of the last runs, some tens, that began while another was under way or behind another client's.
  std::atomic<double> crowd{0};
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

  /// Whether the last runs of this kind let expect that one is over, on one thread, before another would be awake. Where
  /// the time depends on the data, two long runs close to each other are enough for a no, until several short ones follow.
  bool is_short(const void* kind, std::size_t nbytes) const;

  /// Lives as long as a run of the session. Runs of the same `kind` take time in proportion to `nbytes`, about.
  /// `client`: any number that tells apart those who ask; 0 where that is not known.
  class Run {
   public:
    Run(Spread& spread, const void* kind, std::size_t nbytes, std::uint64_t client);
    ~Run();
    Run(const Run&) = delete;
    Run& operator=(const Run&) = delete;

    /// Whether it takes the pool's other threads while no other session runs.
    bool may_spread() const { return spread_.may_spread_; }

    /// At its end, if it did all its work: only such runs tell how long the next may take.
    void succeeded(std::chrono::nanoseconds took);

   private:
    Spread& spread_;
    const void* const kind_;
    const std::size_t nbytes_;
  };

 private:
  static constexpr std::uint64_t kPeriod = 1024;

  // Nanoseconds a byte that runs took lately.
  class Pace {
   public:
    bool known() const { return ns_ > 0; }
    double of(std::size_t nbytes) const;
    void add(double ns, std::size_t nbytes);
    // What comes from now on counts for more than what came before.
    void begin_anew() { count_ = std::min(count_, 1); }

   private:
    double ns_ = 0;
    int count_ = 0;
  };

  // Which runs are done the other way, to see whether it is still the worse one.
  class Trials {
   public:
    bool next(bool gains);
    bool is_first() const { return run_ == 1; }  // of those in a row

   private:
    std::uint64_t run_ = 0, period_ = kPeriod;
    bool gains_ = true;
  };

  // What is known of the runs of one kind.
  struct Kind {
    double alone_ns(std::size_t nbytes) const;   // on one thread; 0: not known
    double gained_ns(std::size_t nbytes) const;  // by other threads
    bool choose(bool crowded, std::size_t nbytes);

    const void* id = nullptr;
    Pace alone, spread;
    Trials trials;
    int doubt = 0;  // more with each run that was long, less with each that was short
  };

  static double note(Workers& workers, std::uint64_t client);
  Kind& kind_of(const void* id);

  using Task = void (*)(void* closure, std::int64_t index, std::int32_t worker);
  static void run_entry(void* spread, std::int64_t num_tasks, Task task, void* closure);

  Workers& workers_;
  HtParallel parallel_;
  std::vector<Kind> kinds_;  // few: a model's entry points
  bool may_spread_ = true;   // the run that is under way
  bool was_spread_ = false;  // some of its regions have been
};

}  // namespace hardtack::serve

#endif  // HARDTACK_SERVER_CORE_SPREAD_H
