// A session with the memory that batches are put together in, and whose states it holds at the moment.
#ifndef HARDTACK_SERVER_CORE_LANE_H
#define HARDTACK_SERVER_CORE_LANE_H

#include <hardtack/hardtack.hpp>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "server/core/budget.h"
#include "server/core/pending.h"
#include "server/core/spread.h"
#include "server/core/statistics.h"

namespace hardtack::serve {

class Lane;

/// States of one sequence. Guarded by the batcher's lock; `saved` belongs to whoever runs the sequence.
struct SequenceState {
  std::string key;                   // among all sequences of all clients
  std::uint64_t turn = 0;            // of the last request that came
  bool alive = false;                // started, not ended, not failed
  bool running = false;              // in a run now
  int waiting = 0;                   // queued or running requests
  Lane* holder = nullptr;            // the lane whose session holds the states; null: they are in `saved`
  std::shared_ptr<std::byte> saved;  // all of them, one after the other; null: none
  Clock::time_point last;
};

/// Used by one thread at a time, but for began() and stop_run().
class Lane {
 public:
  /// Without a pool in `workers` the session has threads of its own, as `options` say.
  static Outcome<std::unique_ptr<Lane>> create(const ModelVersion& version, const ht_session_options& options,
                                               Workers& workers, Budget& budget);

  /// Runs the requests together (several: all fit each other), counts them, and gives each its response. Where a batch is
  /// refused, each of its requests is run alone.
  void run(Requests& batch, Statistics& statistics) noexcept;

  /// Whether the last runs let expect that this one takes some 100 us at most.
  bool is_short(const Pending& pending) const;

  /// Gives back what the session holds for further runs, if it is much.
  void trim() noexcept;

  /// When the run that is under way began; max: none is.
  Clock::time_point began() const;
  /// Asks the run that is under way to end with kRunLimit, if it began before `before`.
  void stop_run(Clock::time_point before);

  SequenceState* held = nullptr;  // guarded like SequenceState, and so are these
  Clock::time_point used;         // when its last run ended
  bool trimmed = true;            // nothing was run since it gave its memory back

 private:
  Lane(const ModelVersion& version, Budget& budget) : version_(version), budget_(budget) {}
  Failure prepare(Pending& pending);
  Failure prepare_answer(Pending& pending);
  Failure spill();
  Outcome<std::shared_ptr<std::byte>> read_states();
  Failure write_states(const std::byte* states);
  void put_back(Pending& pending);
  Failure in_words(Failure failed) const;
  Failure answer(Requests& batch, std::int64_t rows);
  struct Times {
    Clock::time_point start, began, ran;  // of the whole, and of the session's run
  };
  Failure execute(Requests& batch, Times& times);
  Failure run_session(const Entry& entry, std::size_t nbytes, std::uint64_t client, Times& times);
  Error why_stopped(const Entry& entry) const;
  Failure fill_inputs(const Requests& batch, std::int64_t rows);
  Failure make_room(Pending& pending, std::int64_t all_rows) const;
  void take_outputs(Pending& pending, std::int64_t first_row, std::int64_t all_rows) const;
  std::size_t states_nbytes() const;
  const ht_array_info* state(std::size_t i) const { return version_.bundle().state(i); }

  const ModelVersion& version_;
  Budget& budget_;
  std::optional<Spread> spread_;  // over the shared pool; outlives the session
  hardtack::Session session_;
  mutable std::mutex run_mutex_;
  Clock::time_point began_ = Clock::time_point::max();  // under run_mutex_
  std::vector<ht_tensor> inputs_, outputs_;
  std::vector<Shape> shapes_;  // of the inputs of a batch
  struct Staging {
    std::shared_ptr<std::byte> memory;
    std::size_t nbytes = 0;
  };
  std::vector<Staging> staging_;       // one an input
  std::shared_ptr<std::byte> before_;  // the states that the request found; null: nobody may want them back
};

}  // namespace hardtack::serve

#endif  // HARDTACK_SERVER_CORE_LANE_H
