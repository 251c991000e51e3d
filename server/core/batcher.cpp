#include "server/core/batcher.h"

#include <algorithm>
#include <iterator>
#include <utility>

#include "server/core/access.h"

namespace hardtack::serve {

namespace {

constexpr auto kGrace = std::chrono::seconds(1);  // for a run that was asked to stop
constexpr std::size_t kMostHeads = 8;             // first requests that a free session tries to make a batch of

std::uint64_t ns_since(Clock::time_point start) {
  const auto passed = Clock::now() - start;
  return passed.count() < 0 ? 0 : static_cast<std::uint64_t>(std::chrono::nanoseconds(passed).count());
}

// No two clients, and no number and text, have one.
std::string key_of(const Request& request) {
  return request.owner + '\0' + (request.sequence.number ? '#' : '"') + request.sequence.id;
}

// The sequences of `owner` among all; without counting where there are enough for everybody, or no tokens.
std::size_t num_of(const std::string& owner, const std::map<std::string, SequenceState>& all, std::size_t most) {
  if (owner.empty() || all.size() < most - all.size()) return 0;
  return static_cast<std::size_t>(std::distance(all.lower_bound(owner + '\0'), all.lower_bound(owner + '\1')));
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
  snapshot.clients = clients_.size();
  snapshot.running = running_;
  snapshot.sequences = sequences_.size();
  if (options_.max_run.count() > 0) {
    const auto before = Clock::now() - options_.max_run - kGrace;
    for (const auto& lane : lanes_) snapshot.stuck += lane->began() < before ? 1U : 0U;
  }
  return snapshot;
}

void Batcher::count_refused(const Request& request, const Error& error) const noexcept {
  statistics_->failed(error, ns_since(request.arrived));
}

void Batcher::refuse(Pending& pending, const Error& error) const noexcept {
  count_refused(pending.request, error);
  pending.fail(error);
  deliver(pending);
}

// --- coming in ---

// Who is refused leaves nothing behind.
Failure Batcher::admit(Pending& pending, Requests& refused) noexcept {
  Failure failed;
  try {
    failed = enter(pending, refused);
  } catch (...) {
    failed = from_exception();
  }
  if (!failed) return std::nullopt;
  if (pending.sequence != nullptr) leave_sequence(*std::exchange(pending.sequence, nullptr));
  forget_client(pending.request.client);
  return failed;
}

Failure Batcher::enter(Pending& pending, Requests& refused) {
  if (stopped_) return Error{Code::kStopping, "the server is shutting down"};
  if (pending.request.deadline <= pending.queued) return why_overdue(pending);
  const std::uint64_t client = pending.request.client;
  const auto is_full = [&] { return queue_.size() >= options_.max_queue + free_.size(); };
  if (is_full()) collect_overdue(pending.queued, refused, {});  // who stays comes first
  if (is_full() && largest_beside(client) == nullptr) return full();
  clients_.try_emplace(client);  // what takes memory, while one can be refused
  if (Failure failed = join_sequence(pending)) return failed;
  if (!is_full()) return std::nullopt;
  if (const std::uint64_t* most = largest_beside(client)) displace(*most, refused);
  return std::nullopt;
}

Error Batcher::full() const {
  return {Code::kQueueFull, "model \"" + version_.model() + "\" has " + std::to_string(queue_.size()) +
                                " requests waiting, and no more may; try again later"};
}

void Batcher::forget_client(std::uint64_t client) {
  const auto found = clients_.find(client);
  if (found != clients_.end() && found->second.waiting == 0) clients_.erase(found);
}

// The client that has the most requests waiting, if that is more than this one would then have; null if nobody is.
const std::uint64_t* Batcher::largest_beside(std::uint64_t client) const {
  const auto most = std::max_element(clients_.begin(), clients_.end(),
                                     [](const auto& a, const auto& b) { return a.second.waiting < b.second.waiting; });
  const auto mine = clients_.find(client);
  const std::size_t waiting = mine == clients_.end() ? 0 : mine->second.waiting;
  return most == clients_.end() || most->second.waiting <= waiting + 1 ? nullptr : &most->first;
}

// The last request of a client.
void Batcher::displace(std::uint64_t client, Requests& refused) {
  for (auto it = queue_.end(); it != queue_.begin();) {
    if ((--it)->request.client != client) continue;
    it->displaced = true;
    return leave_queue(it, refused);
  }
}

// Nothing here takes memory. Requests of one sequence keep their order, whichever clients they come from.
void Batcher::enqueue(Requests& one) {
  Pending& pending = one.front();
  Client& client = clients_.find(pending.request.client)->second;
  pending.turn = std::max(turn_, client.turn) + 1;
  if (pending.sequence != nullptr) {
    pending.turn = std::max(pending.turn, pending.sequence->turn);
    pending.sequence->turn = pending.turn;
  }
  client.turn = pending.turn;
  ++client.waiting;
  auto place = queue_.end();
  while (place != queue_.begin() && std::prev(place)->turn > pending.turn) --place;
  queue_.splice(place, one);
}

void Batcher::leave_queue(Requests::iterator one, Requests& to) {
  const auto client = clients_.find(one->request.client);
  if (--client->second.waiting == 0) clients_.erase(client);
  to.splice(to.end(), queue_, one);
}

Failure Batcher::join_sequence(Pending& pending) {
  const Sequence& asked = pending.request.sequence;
  if (asked.id.empty()) return std::nullopt;
  const std::string key = key_of(pending.request);
  auto found = sequences_.find(key);
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
    const std::string& owner = pending.request.owner;
    const std::size_t mine = num_of(owner, sequences_, options_.max_sequences);
    if (!leaves_a_share(owner, mine, sequences_.size(), options_.max_sequences)) {
      return Error{Code::kQueueFull, "token \"" + owner + "\" has " + std::to_string(mine) + " sequences of model \"" +
                                         version_.model() +
                                         "\" open, and the places that are left are for others; end some, or try again "
                                         "later"};
    }
    SequenceState fresh;
    fresh.key = key;
    found = sequences_.emplace(key, std::move(fresh)).first;
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
  sequences_.erase(sequences_.find(sequence.key));
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
  if (refused.empty() && queue_.empty() && can_run(pending) && may_run_here(pending)) {
    forget_client(pending.request.client);
    return run(one, lock);
  }
  pending.found_idle = free_.size() > queue_.size();
  const bool wake_watch = std::min(pending.request.deadline, pending.queued + kLook) < watch_until_;
  enqueue(one);
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
  if (batch != nullptr) {
    turn_ = std::max(turn_, head.turn);
    leave_queue(first, *batch);
  }
  while (head.entry->batches && next != queue_.end() && rows < head.entry->max_batch) {
    const auto one = next++;
    if (rows + one->rows > head.entry->max_batch || !fits(head, *one)) continue;
    rows += one->rows;
    if (batch != nullptr) leave_queue(one, *batch);
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
    if (it->gone(now) || it->request.deadline <= now) {
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
               "sequence \"" + pending.request.sequence.id + "\" has ended; start it again with sequence_start"};
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

}  // namespace hardtack::serve
