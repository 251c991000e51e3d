// Threads for what takes long and must not hold up those that read and write connections.
#ifndef HARDTACK_SERVER_CORE_BACKGROUND_H
#define HARDTACK_SERVER_CORE_BACKGROUND_H

#include <condition_variable>
#include <cstdint>
#include <functional>
#include <list>
#include <mutex>
#include <optional>
#include <thread>
#include <vector>

#include "server/core/log.h"

namespace hardtack::serve {

/// Clients take turns: one that posts much waits for itself. Of several threads one client has all but one at most, however
/// long its tasks take. Safe from any thread.
class Background {
 public:
  /// Who waits for a task. `has_left` is asked when its turn comes, from any thread, and does not throw: a task that nobody
  /// may wait for any more is done only while no other is posted; else `drop` is called in its place.
  struct Waiter {
    std::function<bool()> has_left;
    std::function<void()> drop;
  };

  /// Without threads, tasks are run where they are posted. `log` must outlive this.
  Background(int threads, Log& log);
  /// Does what was posted, then ends.
  ~Background();
  Background(const Background&) = delete;
  Background& operator=(const Background&) = delete;

  /// `client` is any number that tells clients apart. A task that throws is given up (contain()). std::bad_alloc: it will not run.
  void post(std::uint64_t client, std::function<void()> task, Waiter waiter = {});
  /// Does what was posted, and ends the threads; nothing may be posted any more.
  void join();

 private:
  struct Task {
    std::function<void()> run;
    Waiter waiter;
  };
  struct Line {
    std::uint64_t client = 0;
    std::list<Task> tasks;
  };
  using Lines = std::list<Line>;
  static constexpr std::uint64_t kGone = UINT64_MAX;  // all clients that have left are one

  void work(std::size_t thread);
  bool may_run(std::uint64_t client) const;
  bool may_run_any() const;
  Lines::iterator first_to_run();
  std::list<Task> next(std::size_t thread, std::list<Task>* dropped);
  Log& log_;
  std::mutex mutex_;
  std::condition_variable wake_;
  Lines lines_;             // those with tasks, in the order in which they take turns
  std::list<Task> behind_;  // whose clients have left
  bool ending_ = false;
  std::vector<std::optional<std::uint64_t>> running_;  // whose task each thread runs
  std::vector<std::thread> threads_;
};

}  // namespace hardtack::serve

#endif  // HARDTACK_SERVER_CORE_BACKGROUND_H
