#include "server/core/batcher.h"

#include <algorithm>

namespace hardtack::serve {

namespace {

constexpr auto kLook = std::chrono::milliseconds(100);  // how often clients that went away are looked for
constexpr std::size_t kMostHeads = 8;                   // first requests that a free session tries to make a batch of

std::uint64_t ns_since(Clock::time_point start) {
  const auto passed = Clock::now() - start;
  return passed.count() < 0 ? 0 : static_cast<std::uint64_t>(std::chrono::nanoseconds(passed).count());
}

}  // namespace

Batcher::Batcher(const ModelVersion& version, std::vector<std::unique_ptr<Lane>> lanes,
                 std::shared_ptr<Statistics> statistics)
    : version_(version), options_(version.options()), lanes_(std::move(lanes)), statistics_(std::move(statistics)) {
  for (const auto& lane : lanes_) free_.push_back(lane.get());
  for (std::size_t i = 0; i < lanes_.size(); ++i) threads_.emplace_back([this] { work(); });
  threads_.emplace_back([this] { watch(); });
}

Batcher::~Batcher() {
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
  return snapshot;
}

void Batcher::refuse(const Request& request, const Done& done, Error error) const {
  statistics_->failed(error, ns_since(request.arrived));
  Response response;
  response.model = version_.model();
  response.version = version_.version();
  response.id = request.id;
  response.error = std::move(error);
  done(std::move(response));
}

// --- coming in ---

Failure Batcher::admit(Pending& pending, std::vector<Refusal>& refused) {
  if (stopped_) return Error{Code::kStopping, "the server is shutting down"};
  if (pending.request.deadline <= Clock::now()) {
    return Error{Code::kDeadline, "the request's timeout passed before it was started"};
  }
  const auto full = [&] { return queue_.size() >= options_.max_queue + free_.size(); };
  if (full()) collect_overdue(Clock::now(), refused);
  if (full()) {
    return Error{Code::kQueueFull, "model \"" + version_.model() + "\" has " + std::to_string(queue_.size()) +
                                       " requests waiting, and no more may; try again later"};
  }
  return join_sequence(pending);
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
    found = sequences_.emplace(asked.id, SequenceState{}).first;
    found->second.id = asked.id;
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
  const std::string id = sequence.id;
  sequences_.erase(id);
}

void Batcher::submit(std::unique_ptr<Pending> pending) {
  pending->queued = Clock::now();
  std::vector<Refusal> refused;
  Lock lock(mutex_);
  if (Failure failed = admit(*pending, refused)) {
    refused.push_back({std::move(pending), std::move(*failed)});
    answer(refused, lock);
    return;
  }
  if (refused.empty() && queue_.empty() && can_run(*pending) && may_run_here(*pending)) {
    Batch batch;
    batch.push_back(std::move(pending));
    run(batch, lock);
    return;
  }
  pending->found_idle = free_.size() > queue_.size();
  const bool wake_watch = std::min(pending->request.deadline, pending->queued + kLook) < watch_until_;
  queue_.push_back(std::move(pending));
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

// Takes the first of a batch and those that fit it out of the queue, if it is time; else `later` becomes no later than
// when it will be.
bool Batcher::take_batch(std::size_t first, Batch& batch, Clock::time_point now, Clock::time_point& later) {
  const Pending& head = *queue_[first];
  std::vector<std::size_t> chosen{first};
  std::int64_t rows = head.rows;
  if (head.entry->batches) {
    for (std::size_t i = first + 1; i < queue_.size() && rows < head.entry->max_batch; ++i) {
      if (rows + queue_[i]->rows > head.entry->max_batch || !fits(head, *queue_[i])) continue;
      rows += queue_[i]->rows;
      chosen.push_back(i);
    }
    const auto until = head.queued + options_.max_delay;
    if (rows < head.entry->max_batch && head.rows > 0 && !head.found_idle && now < until && !stopped_) {
      later = std::min(later, until);
      return false;
    }
  }
  for (const std::size_t i : chosen) batch.push_back(std::move(queue_[i]));
  queue_.erase(std::remove(queue_.begin(), queue_.end(), nullptr), queue_.end());
  return true;
}

// A batch or refusals, never both: the lock is let go for the refusals' answers, and the free session is gone then.
Clock::time_point Batcher::form(Batch& batch, std::vector<Refusal>& refused) {
  auto later = Clock::time_point::max();
  if (queue_.empty() || free_.empty()) return later;
  const auto now = Clock::now();
  std::size_t heads = 0;
  for (std::size_t i = 0; i < queue_.size() && heads < kMostHeads; ++i) {
    const Pending& pending = *queue_[i];
    if (pending.gone() || pending.request.deadline <= now) {
      collect_overdue(now, refused);
      return later;
    }
    if (!can_run(pending)) continue;
    ++heads;
    if (take_batch(i, batch, now, later)) return later;
  }
  return later;
}

void Batcher::run(Batch& batch, Lock& lock) {
  Lane& lane = take_lane(*batch.front());
  SequenceState* sequence = batch.front()->sequence;
  const bool start = batch.front()->request.sequence.start, end = batch.front()->request.sequence.end;
  const std::size_t requests = batch.size();
  running_ += requests;
  if (sequence != nullptr) sequence->running = true;
  std::vector<Lane::Answer> answers;
  lock.unlock();
  if (sequence != nullptr && !sequence->alive && !start) {
    refuse(batch.front()->request, batch.front()->done,
           {Code::kInvalid, "sequence \"" + sequence->id + "\" has ended; start it again with sequence_start"});
    batch.clear();
  } else {
    lane.run(batch, *statistics_, answers);
  }
  lock.lock();
  if (version_.has_states()) {
    if (!answers.empty()) settle_states(lane, sequence, start, end, answers.front().response);
    if (sequence != nullptr) {
      sequence->running = false;
      leave_sequence(*sequence);
    }
  }
  free_.push_back(&lane);
  const bool more = !queue_.empty();
  lock.unlock();
  if (more) work_.notify_one();
  for (Lane::Answer& one : answers) one.done(std::move(one.response));
  answers.clear();
  lock.lock();
  running_ -= requests;
}

// After a run: whose states the session holds now, and whether the sequence lives on.
void Batcher::settle_states(Lane& lane, SequenceState* sequence, bool start, bool end, const Response& response) {
  const bool untouched = response.error && response.error->code == Code::kInvalid && !start;
  if (lane.held != nullptr && lane.held != sequence) {
    lane.held->holder = nullptr;
    if (lane.held->saved.size() != version_.info().num_states) lane.held->alive = false;
  }
  lane.held = nullptr;
  if (sequence == nullptr) return;
  sequence->holder = nullptr;
  sequence->alive = untouched ? sequence->alive : !response.error && !end;
  if (!sequence->alive) {
    sequence->saved.clear();
    return;
  }
  sequence->holder = &lane;
  lane.held = sequence;
}

void Batcher::work() {
  Lock lock(mutex_);
  while (true) {
    Batch batch;
    std::vector<Refusal> refused;
    const auto later = form(batch, refused);
    answer(refused, lock);
    if (!batch.empty()) {
      run(batch, lock);
    } else if (!refused.empty()) {
      continue;
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

void Batcher::collect_overdue(Clock::time_point now, std::vector<Refusal>& refused) {
  for (auto& pending : queue_) {
    if (pending->gone()) {
      refused.push_back({std::move(pending), {Code::kCancelled, "the client went away"}});
    } else if (pending->request.deadline <= now) {
      refused.push_back({std::move(pending), {Code::kDeadline, "the request's timeout passed before it was started"}});
    }
  }
  queue_.erase(std::remove(queue_.begin(), queue_.end(), nullptr), queue_.end());
}

void Batcher::answer(std::vector<Refusal>& refused, Lock& lock) {
  if (refused.empty()) return;
  for (const Refusal& one : refused) {
    if (one.pending->sequence != nullptr) leave_sequence(*one.pending->sequence);
  }
  running_ += refused.size();
  lock.unlock();
  for (const Refusal& one : refused) refuse(one.pending->request, one.pending->done, one.error);
  lock.lock();
  running_ -= refused.size();
}

Clock::time_point Batcher::next_look(Clock::time_point now) const {
  auto next = Clock::time_point::max();
  if (!sequences_.empty()) next = now + std::chrono::seconds(1);
  if (!queue_.empty()) next = now + kLook;
  for (const auto& pending : queue_) next = std::min(next, pending->request.deadline);
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

void Batcher::watch() {
  Lock lock(mutex_);
  while (!ending_) {
    const auto now = Clock::now();
    std::vector<Refusal> refused;
    collect_overdue(now, refused);
    forget_idle_sequences(now);
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
