#include "server/core/batcher.h"

#include <algorithm>
#include <utility>

namespace hardtack::serve {

namespace {

constexpr auto kLook = std::chrono::milliseconds(100);      // how often clients that went away are looked for
constexpr Clock::duration kTrim = std::chrono::seconds(1);  // how often sessions that hold memory are looked at
constexpr auto kIdle = std::chrono::seconds(10);            // after so long they give it back
constexpr auto kGrace = std::chrono::seconds(1);            // for a run that was asked to stop
constexpr std::size_t kMostHeads = 8;  // first requests that a free session tries to make a batch of

std::uint64_t ns_since(Clock::time_point start) {
  const auto passed = Clock::now() - start;
  return passed.count() < 0 ? 0 : static_cast<std::uint64_t>(std::chrono::nanoseconds(passed).count());
}

Error why_overdue(const Pending& pending) noexcept try {
  if (pending.gone()) return {Code::kCancelled, "the client went away"};
  return {Code::kDeadline, "the request's timeout passed before it was started"};
} catch (...) {
  return from_exception();
}

// What the request points into goes first.
void deliver(Pending& pending) noexcept {
  pending.request.keep_alive.reset();
  tell(pending.done, std::move(pending.response));
}

}  // namespace

Batcher::Batcher(const ModelVersion& version, const Budget& budget, std::vector<std::unique_ptr<Lane>> lanes,
                 std::shared_ptr<Statistics> statistics)
    : version_(version),
      budget_(budget),
      options_(version.options()),
      lanes_(std::move(lanes)),
      statistics_(std::move(statistics)) {
  for (const auto& lane : lanes_) free_.push_back(lane.get());
  threads_.reserve(lanes_.size() + 1);
  try {
    for (std::size_t i = 0; i < lanes_.size(); ++i) threads_.emplace_back([this] { work(); });
    threads_.emplace_back([this] { watch(); });
  } catch (...) {
    end();
    throw;
  }
}

Batcher::~Batcher() { end(); }

void Batcher::end() noexcept {
  {
    const Lock lock(mutex_);
    ending_ = true;
  }
  work_.notify_all();
  watch_.notify_all();
  for (std::thread& thread : threads_) thread.join();
}

void Batcher::stop() {
  const Lock lock(mutex_);
  stopped_ = true;
}

bool Batcher::idle() const {
  const Lock lock(mutex_);
  return queue_.empty() && running_ == 0;
}

StatisticsSnapshot Batcher::statistics() const {
  StatisticsSnapshot snapshot = statistics_->snapshot();
  const Lock lock(mutex_);
  snapshot.waiting = queue_.size();
  snapshot.running = running_;
  snapshot.sequences = sequences_.size();
  if (options_.max_run.count() > 0) {
    const auto before = Clock::now() - options_.max_run - kGrace;
    for (const auto& lane : lanes_) snapshot.stuck += lane->began() < before ? 1U : 0U;
  }
  return snapshot;
}

void Batcher::refuse(Pending& pending, const Error& error) const noexcept {
  statistics_->failed(error, ns_since(pending.request.arrived));
  pending.fail(error);
  deliver(pending);
}

// --- coming in ---

Failure Batcher::admit(Pending& pending, Requests& refused) noexcept try {
  if (stopped_) return Error{Code::kStopping, "the server is shutting down"};
  if (pending.request.deadline <= Clock::now()) return why_overdue(pending);
  const auto full = [&] { return queue_.size() >= options_.max_queue + free_.size(); };
  if (full()) collect_overdue(Clock::now(), refused);
  if (full()) {
    return Error{Code::kQueueFull, "model \"" + version_.model() + "\" has " + std::to_string(queue_.size()) +
                                       " requests waiting, and no more may; try again later"};
  }
  return join_sequence(pending);
} catch (...) {
  return from_exception();
}

Failure Batcher::join_sequence(Pending& pending) {
  const Sequence& asked = pending.request.sequence;
  if (asked.id.empty()) return std::nullopt;
  auto found = sequences_.find(asked.id);
  if (found == sequences_.end() && !asked.start) {
    return Error{Code::kInvalid, "sequence \"" + asked.id + "\" is not known to model \"" + version_.model() +
                                     "\": it was not started, has ended, was idle for too long, or the model was "
                                     "replaced; start it with sequence_start"};
  }
  if (found == sequences_.end()) {
    if (sequences_.size() >= options_.max_sequences) {
      return Error{Code::kQueueFull, "model \"" + version_.model() + "\" has " + std::to_string(sequences_.size()) +
                                         " sequences open, and no more may; end some, or try again later"};
    }
    SequenceState fresh;
    fresh.id = asked.id;
    found = sequences_.emplace(asked.id, std::move(fresh)).first;
  }
  found->second.last = Clock::now();
  ++found->second.waiting;
  pending.sequence = &found->second;
  return std::nullopt;
}

void Batcher::leave_sequence(SequenceState& sequence) {
  sequence.last = Clock::now();
  if (--sequence.waiting > 0 || sequence.alive) return;
  if (sequence.holder != nullptr) sequence.holder->held = nullptr;
  sequences_.erase(sequences_.find(sequence.id));
}

void Batcher::submit(Requests&& one) noexcept {
  Pending& pending = one.front();
  pending.queued = Clock::now();
  Requests refused;
  Lock lock(mutex_);
  if (const Failure failed = admit(pending, refused)) {
    ++running_;  // until it is answered
    answer(refused, lock);
    lock.unlock();
    refuse(pending, *failed);
    one.clear();
    lock.lock();
    --running_;
    return;
  }
  if (refused.empty() && queue_.empty() && can_run(pending) && may_run_here(pending)) return run(one, lock);
  pending.found_idle = free_.size() > queue_.size();
  const bool wake_watch = std::min(pending.request.deadline, pending.queued + kLook) < watch_until_;
  queue_.splice(queue_.end(), one);
  answer(refused, lock);
  lock.unlock();
  work_.notify_one();
  if (wake_watch) watch_.notify_one();
}

// --- going to a session ---

bool Batcher::can_run(const Pending& pending) const {
  if (free_.empty()) return false;
  if (pending.sequence == nullptr) return true;
  return !pending.sequence->running && !in_use(pending.sequence->holder);
}

bool Batcher::in_use(const Lane* lane) const {
  return lane != nullptr && std::find(free_.begin(), free_.end(), lane) == free_.end();
}

// Requests that could be put together are better off in the queue, where they meet.
bool Batcher::may_run_here(const Pending& pending) const {
  const RunHere asked = pending.request.run_here;
  if (asked != RunHere::kIfShort) return asked == RunHere::kYes;
  return !pending.entry->batches && free_.back()->is_short(pending);
}

// Without states the session used last, whose memory is warm. With states the one that holds the sequence, else one that
// holds none, else the one unused for longest.
Lane& Batcher::take_lane(const Pending& pending) {
  auto chosen = free_.end() - 1;
  if (version_.has_states()) {
    Lane* holder = pending.sequence == nullptr ? nullptr : pending.sequence->holder;
    chosen = std::find_if(free_.begin(), free_.end(),
                          [&](const Lane* lane) { return holder != nullptr ? lane == holder : lane->held == nullptr; });
    if (chosen == free_.end()) chosen = free_.begin();
  }
  Lane* lane = *chosen;
  free_.erase(chosen);
  return *lane;
}

// The rows of `first` and of those behind it that fit it; takes them out of the queue if there is a `batch` for them.
std::int64_t Batcher::gather(Requests::iterator first, Requests* batch) {
  const Pending& head = *first;
  std::int64_t rows = head.rows;
  auto next = std::next(first);
  if (batch != nullptr) batch->splice(batch->end(), queue_, first);
  while (head.entry->batches && next != queue_.end() && rows < head.entry->max_batch) {
    const auto one = next++;
    if (rows + one->rows > head.entry->max_batch || !fits(head, *one)) continue;
    rows += one->rows;
    if (batch != nullptr) batch->splice(batch->end(), queue_, one);
  }
  return rows;
}

// Takes the first of a batch and those that fit it out of the queue, if it is time; else `later` becomes no later than
// when it will be.
bool Batcher::take_batch(Requests::iterator first, Requests& batch, Clock::time_point now, Clock::time_point& later) {
  const Pending& head = *first;
  const auto until = head.queued + options_.max_delay;
  const bool may_wait = head.entry->batches && head.rows > 0 && !head.found_idle && now < until && !stopped_;
  if (may_wait && gather(first, nullptr) < head.entry->max_batch) {
    later = std::min(later, until);
    return false;
  }
  gather(first, &batch);
  return true;
}

// A batch or refusals, never both: the lock is let go for the refusals' answers, and the free session is gone then.
Clock::time_point Batcher::form(Requests& batch, Requests& refused) {
  auto later = Clock::time_point::max();
  if (queue_.empty() || free_.empty()) return later;
  const auto now = Clock::now();
  std::size_t heads = 0;
  for (auto it = queue_.begin(); it != queue_.end() && heads < kMostHeads; ++it) {
    if (it->gone() || it->request.deadline <= now) {
      collect_overdue(now, refused);
      return later;
    }
    if (!can_run(*it)) continue;
    ++heads;
    if (take_batch(it, batch, now, later)) return later;
  }
  return later;
}

Failure Batcher::check_alive(const Pending& pending) noexcept try {
  if (pending.sequence == nullptr || pending.sequence->alive || pending.request.sequence.start) return std::nullopt;
  return Error{Code::kInvalid,
               "sequence \"" + pending.sequence->id + "\" has ended; start it again with sequence_start"};
} catch (...) {
  return from_exception();
}

void Batcher::run(Requests& batch, Lock& lock) {
  const Pending& first = batch.front();
  Lane& lane = take_lane(first);
  const std::size_t requests = batch.size();
  running_ += requests;
  if (first.sequence != nullptr) first.sequence->running = true;
  expect_end(Clock::now());
  const Failure ended = check_alive(first);
  lock.unlock();
  if (ended) {
    statistics_->failed(*ended, ns_since(first.request.arrived));
    batch.front().fail(*ended);
  } else {
    lane.run(batch, *statistics_);
  }
  lock.lock();
  if (!ended && version_.has_states()) settle_states(lane, first);
  if (first.sequence != nullptr) {
    first.sequence->running = false;
    leave_sequence(*first.sequence);
  }
  lane.used = Clock::now();
  lane.trimmed = false;
  free_.push_back(&lane);  // there is room for all
  const bool more = !queue_.empty();
  lock.unlock();
  if (more) work_.notify_one();
  for (Pending& one : batch) deliver(one);
  batch.clear();
  lock.lock();
  running_ -= requests;
}

// After a run: whose states the session holds now, and whether the sequence lives on. An answer that is an error ends the
// sequence if the run moved its states.
void Batcher::settle_states(Lane& lane, const Pending& pending) {
  using States = Pending::States;
  if (pending.states == States::kUntouched) return;
  SequenceState* sequence = pending.sequence;
  if (lane.held != nullptr) lane.held->holder = nullptr;  // if it is another's, they are saved
  lane.held = nullptr;
  if (sequence == nullptr) return;
  if (pending.states == States::kMovedOn) {
    sequence->alive = !pending.response.error && !pending.request.sequence.end;
  } else if (pending.states != States::kFound) {
    sequence->alive = sequence->alive && sequence->saved != nullptr;  // those that a new start has not replaced
    if (sequence->alive) return;
  }
  sequence->saved = nullptr;
  if (!sequence->alive) return;
  sequence->holder = &lane;
  lane.held = sequence;
}

void Batcher::work() noexcept {
  Lock lock(mutex_);
  while (true) {
    Requests batch, refused;
    const auto later = form(batch, refused);
    if (answer(refused, lock)) continue;
    if (!batch.empty()) {
      run(batch, lock);
    } else if (ending_) {
      return;
    } else if (later == Clock::time_point::max()) {
      work_.wait(lock);
    } else {
      work_.wait_until(lock, later);
    }
  }
}

// --- going away ---

void Batcher::collect_overdue(Clock::time_point now, Requests& refused) {
  for (auto it = queue_.begin(); it != queue_.end();) {
    const auto one = it++;
    if (one->gone() || one->request.deadline <= now) refused.splice(refused.end(), queue_, one);
  }
}

// False: there is none. Else the lock was let go meanwhile.
bool Batcher::answer(Requests& refused, Lock& lock) {
  if (refused.empty()) return false;
  for (const Pending& one : refused) {
    if (one.sequence != nullptr) leave_sequence(*one.sequence);
  }
  const std::size_t requests = refused.size();
  running_ += requests;
  lock.unlock();
  for (Pending& one : refused) refuse(one, why_overdue(one));
  refused.clear();
  lock.lock();
  running_ -= requests;
  return true;
}

// The watching thread is woken only if it would look too late, however many runs there are. It looks after memory, too.
void Batcher::expect_end(Clock::time_point began) {
  const auto until =
      began + (options_.max_run.count() == 0 ? kTrim : std::min<Clock::duration>(options_.max_run, kTrim));
  if (until >= watch_until_) return;
  watch_until_ = until;
  watch_.notify_one();
}

void Batcher::stop_long_runs(Clock::time_point now) {
  if (options_.max_run.count() == 0) return;
  for (const auto& lane : lanes_) lane->stop_run(now - options_.max_run);
}

Clock::time_point Batcher::next_look(Clock::time_point now) const {
  auto next = Clock::time_point::max();
  if (!sequences_.empty()) next = now + std::chrono::seconds(1);
  if (!queue_.empty()) next = now + kLook;
  for (const Pending& pending : queue_) next = std::min(next, pending.request.deadline);
  for (const auto& lane : lanes_) {
    if (!lane->trimmed) next = std::min(next, now + kTrim);
    if (!in_use(lane.get()) || options_.max_run.count() == 0) continue;
    const auto end = std::min(lane->began(), now) + options_.max_run;  // it may be about to begin
    next = std::min(next, end > now ? end : now + kLook);
  }
  return next;
}

// A session that runs may be copying the states that it holds: they are looked at again when it is free.
void Batcher::forget_idle_sequences(Clock::time_point now) {
  for (auto it = sequences_.begin(); it != sequences_.end();) {
    SequenceState& sequence = it->second;
    const bool over =
        sequence.waiting == 0 && now - sequence.last >= options_.sequence_idle && !in_use(sequence.holder);
    if (over && sequence.holder != nullptr) sequence.holder->held = nullptr;
    it = over ? sequences_.erase(it) : std::next(it);
  }
}

// Sessions keep what a run took for the next one of its shape: not when they are idle, nor when others want for it.
void Batcher::trim_idle_lanes(Clock::time_point now, Lock& lock) {
  const bool wanted = budget_.refused() != std::exchange(refused_, budget_.refused());
  for (const auto& lane : lanes_) {
    const auto found = std::find(free_.begin(), free_.end(), lane.get());
    if (found == free_.end() || lane->trimmed || (!wanted && now - lane->used < kIdle)) continue;
    free_.erase(found);
    lock.unlock();
    lane->trim();
    lock.lock();
    lane->trimmed = true;
    free_.insert(free_.begin(), lane.get());
    if (!queue_.empty()) work_.notify_one();
  }
}

void Batcher::watch() noexcept {
  Lock lock(mutex_);
  while (!ending_) {
    const auto now = Clock::now();
    Requests refused;
    stop_long_runs(now);
    collect_overdue(now, refused);
    forget_idle_sequences(now);
    trim_idle_lanes(now, lock);
    answer(refused, lock);
    watch_until_ = next_look(Clock::now());
    if (ending_) return;
    if (watch_until_ == Clock::time_point::max()) {
      watch_.wait(lock);
    } else {
      watch_.wait_until(lock, watch_until_);
    }
  }
}

}  // namespace hardtack::serve
