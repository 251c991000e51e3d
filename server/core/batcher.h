// The queue of one model version, and who takes from it.
//
// A request that finds a session idle and nobody waiting starts at once, on the caller's thread if that allows it. Others
// wait in order. A session that becomes free takes the first, and with it, where the entry batches, the waiting ones that
// fit; a batch that is not full waits for more, at most max_delay after its first request came, and not at all when that
// one found a session idle. Requests of one sequence run one after the other, in order.
#ifndef HARDTACK_SERVER_CORE_BATCHER_H
#define HARDTACK_SERVER_CORE_BATCHER_H

#include <condition_variable>
#include <deque>
#include <map>
#include <memory>
#include <mutex>
#include <thread>
#include <vector>

#include "server/core/lane.h"

namespace hardtack::serve {

class Batcher {
 public:
  Batcher(const ModelVersion& version, std::vector<std::unique_ptr<Lane>> lanes,
          std::shared_ptr<Statistics> statistics);
  /// Joins the threads; call it when idle.
  ~Batcher();

  void submit(std::unique_ptr<Pending> pending);
  void stop();
  bool idle() const;
  StatisticsSnapshot statistics() const;
  /// Counts and answers a request that never got into the queue.
  void refuse(const Request& request, const Done& done, Error error) const;

 private:
  using Batch = std::vector<std::unique_ptr<Pending>>;
  using Lock = std::unique_lock<std::mutex>;
  struct Refusal {
    std::unique_ptr<Pending> pending;
    Error error;
  };

  void work();
  void watch();
  Failure admit(Pending& pending, std::vector<Refusal>& refused);
  Failure join_sequence(Pending& pending);
  void leave_sequence(SequenceState& sequence);
  bool can_run(const Pending& pending) const;
  bool in_use(const Lane* lane) const;
  bool may_run_here(const Pending& pending) const;
  Lane& take_lane(const Pending& pending);
  Clock::time_point form(Batch& batch, std::vector<Refusal>& refused);
  bool take_batch(std::size_t first, Batch& batch, Clock::time_point now, Clock::time_point& later);
  void run(Batch& batch, Lock& lock);
  void settle_states(Lane& lane, SequenceState* sequence, bool start, bool end, const Response& response);
  void collect_overdue(Clock::time_point now, std::vector<Refusal>& refused);
  void answer(std::vector<Refusal>& refused, Lock& lock);
  Clock::time_point next_look(Clock::time_point now) const;
  void forget_idle_sequences(Clock::time_point now);

  const ModelVersion& version_;
  const ModelOptions& options_;
  std::vector<std::unique_ptr<Lane>> lanes_;
  std::shared_ptr<Statistics> statistics_;

  mutable std::mutex mutex_;
  std::condition_variable work_, watch_;
  std::deque<std::unique_ptr<Pending>> queue_;
  std::vector<Lane*> free_;
  std::size_t running_ = 0;  // requests that are being run or answered
  Clock::time_point watch_until_ = Clock::time_point::max();
  bool stopped_ = false;
  bool ending_ = false;
  std::map<std::string, SequenceState> sequences_;
  std::vector<std::thread> threads_;
};

}  // namespace hardtack::serve

#endif  // HARDTACK_SERVER_CORE_BATCHER_H
