// The queue of one model version, and who takes from it.
//
// A request that finds a session idle and nobody waiting starts at once, on the caller's thread if that allows it. Others
// wait in order. A session that becomes free takes the first, and with it, where the entry batches, the waiting ones that
// fit; a batch that is not full waits for more, at most max_delay after its first request came, and not at all when that
// one found a session idle. Requests of one sequence run one after the other, in order.
//
// Clients take turns: the queue is ordered by turns, of which a client's requests take one after the other, and a client
// that comes later begins at the turn that is on now. Where the queue is full, the client with the most requests in it
// gives up its last for one that has fewer.
//
// A run that takes longer than max_run is asked to stop, which ends it at its next launch or turn of a loop.
#ifndef HARDTACK_SERVER_CORE_BATCHER_H
#define HARDTACK_SERVER_CORE_BATCHER_H

#include <condition_variable>
#include <map>
#include <memory>
#include <mutex>
#include <thread>
#include <unordered_map>
#include <vector>

#include "server/core/lane.h"

namespace hardtack::serve {

class Batcher {
 public:
  /// std::system_error: the system gives no thread more.
  Batcher(const ModelVersion& version, const Budget& budget, std::vector<std::unique_ptr<Lane>> lanes,
          std::shared_ptr<Statistics> statistics);
  /// Joins the threads; call it when idle.
  ~Batcher();

  /// Takes one request, which is answered in any case.
  void submit(Requests&& one) noexcept;
  void stop();
  bool idle() const;
  StatisticsSnapshot statistics() const;
  /// Counts a request that never came here.
  void count_refused(const Request& request, const Error& error) const noexcept;
  /// Counts and answers a request that is not run.
  void refuse(Pending& pending, const Error& error) const noexcept;

 private:
  using Lock = std::unique_lock<std::mutex>;
  static constexpr auto kLook = std::chrono::milliseconds(100);  // how often clients that went away are looked for

  // Nothing here throws: what needs memory and gets none is told to the request that it was for. Requests are moved
  // between lists, and every session is given back.
  void end() noexcept;
  void work() noexcept;
  void watch() noexcept;
  Failure admit(Pending& pending, Requests& refused) noexcept;
  Failure enter(Pending& pending, Requests& refused);
  Failure join_sequence(Pending& pending);
  void forget_client(std::uint64_t client);
  const std::uint64_t* largest_beside(std::uint64_t client) const;
  void displace(std::uint64_t client, Requests& refused);
  void enqueue(Requests& one);
  void leave_queue(Requests::iterator one, Requests& to);
  Error why_refused(const Pending& pending) const noexcept;
  static Error why_overdue(const Pending& pending) noexcept;
  Error full() const;
  static Failure check_alive(const Pending& pending) noexcept;
  void leave_sequence(SequenceState& sequence);
  bool can_run(const Pending& pending) const;
  bool in_use(const Lane* lane) const;
  bool may_run_here(const Pending& pending) const;
  Lane& take_lane(const Pending& pending);
  Clock::time_point form(Requests& batch, Requests& refused);
  bool take_batch(Requests::iterator first, Requests& batch, Clock::time_point now, Clock::time_point& later);
  std::int64_t gather(Requests::iterator first, Requests* batch);
  void run(Requests& batch, Lock& lock);
  void settle_states(Lane& lane, const Pending& pending);
  void collect_overdue(Clock::time_point now, Requests& refused, Clock::duration grace = Pending::kGrace);
  void stop_long_runs(Clock::time_point now);
  void expect_end(Clock::time_point began);
  bool answer(Requests& refused, Lock& lock);
  Clock::time_point next_look(Clock::time_point now) const;
  void forget_idle_sequences(Clock::time_point now);
  void trim_idle_lanes(Clock::time_point now, Lock& lock);

  const ModelVersion& version_;
  const Budget& budget_;
  const ModelOptions& options_;
  std::vector<std::unique_ptr<Lane>> lanes_;
  std::shared_ptr<Statistics> statistics_;

  mutable std::mutex mutex_;
  std::condition_variable work_, watch_;
  Requests queue_;  // by turn
  struct Client {
    std::size_t waiting = 0;  // in the queue
    std::uint64_t turn = 0;   // of the last that came
  };
  std::unordered_map<std::uint64_t, Client> clients_;  // those with requests in the queue
  std::uint64_t turn_ = 0;                             // of the last that left it
  std::vector<Lane*> free_;
  std::uint64_t refused_ = 0;  // by the budget, when the watching thread looked last
  std::size_t running_ = 0;    // requests that are being run or answered
  Clock::time_point watch_until_ = Clock::time_point::max();
  bool stopped_ = false;
  bool ending_ = false;
  std::map<std::string, SequenceState> sequences_;
  std::vector<std::thread> threads_;
};

}  // namespace hardtack::serve

#endif  // HARDTACK_SERVER_CORE_BATCHER_H
