// What the batcher's watching thread does: clients that went away, deadlines, runs that take too long, memory of idle
// sessions, sequences that nobody goes on with.
#include <algorithm>
#include <utility>

#include "server/core/batcher.h"

namespace hardtack::serve {

namespace {

constexpr Clock::duration kTrim = std::chrono::seconds(1);  // how often sessions that hold memory are looked at
constexpr auto kIdle = std::chrono::seconds(10);            // after so long they give it back

}  // namespace

Error Batcher::why_overdue(const Pending& pending) noexcept try {
  if (pending.gone(Clock::now(), {})) return {Code::kCancelled, "the client went away"};
  return {Code::kDeadline, "the request's timeout passed before it was started"};
} catch (...) {
  return from_exception();
}

void Batcher::collect_overdue(Clock::time_point now, Requests& refused, Clock::duration grace) {
  for (auto it = queue_.begin(); it != queue_.end();) {
    const auto one = it++;
    if (one->gone(now, grace) || one->request.deadline <= now) leave_queue(one, refused);
  }
}

Error Batcher::why_refused(const Pending& pending) const noexcept try {
  if (!pending.displaced) return why_overdue(pending);
  return {Code::kQueueFull, "model \"" + version_.model() +
                                "\" has as many requests waiting as may, this client's were the most, and others came; "
                                "try again later"};
} catch (...) {
  return from_exception();
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
  for (Pending& one : refused) refuse(one, why_refused(one));
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
