#include "server/core/spread.h"

#include <algorithm>

namespace hardtack::serve {

namespace {

constexpr double kLongNs = 100e3;  // waking a worker and letting it look for more work costs tens of microseconds
constexpr double kGainNs = 25e3;   // and keeping it awake costs as much of its processor, which a client may want
constexpr double kSurelyNs = 1e6;  // worth it without a trial, which would cost more than it tells
constexpr double kCrowded = 0.1, kMemory = 1.0 / 32;
// A thread that loses its processor makes one run long now and then; more than one in kDoubt is the model's doing.
constexpr int kDoubt = 8, kMostDoubt = 3 * kDoubt;
// In a row, since the first of them finds workers asleep; of a thousand runs so many would be seen in the slowest percent.
constexpr std::uint64_t kTrials = 8, kLongestPeriod = 16384;
constexpr int kRecent = 8;  // runs that a pace is a mean of, about

}  // namespace

double Spread::Pace::of(std::size_t nbytes) const {
  return ns_ * static_cast<double>(std::max<std::size_t>(nbytes, 1));
}

// What took long because the thread had to wait for a processor would look like long work: a run counts for at most
// twice those before it.
void Spread::Pace::add(double ns, std::size_t nbytes) {
  const double found = std::max(ns, 1.0) / static_cast<double>(std::max<std::size_t>(nbytes, 1));
  count_ = std::min(count_ + 1, kRecent);
  ns_ += ((count_ == 1 ? found : std::min(found, 2 * ns_)) - ns_) / count_;
}

// Two threads do at most twice as much as one.
double Spread::Kind::alone_ns(std::size_t nbytes) const {
  return alone.known() ? alone.of(nbytes) : 2 * spread.of(nbytes);
}

double Spread::Kind::gained_ns(std::size_t nbytes) const {
  return alone_ns(nbytes) - (spread.known() ? spread.of(nbytes) : alone_ns(nbytes) / 2);
}

bool Spread::is_short(const void* kind, std::size_t nbytes) const {
  const auto found = std::find_if(kinds_.begin(), kinds_.end(), [&](const Kind& one) { return one.id == kind; });
  if (found == kinds_.end()) return false;
  const double expected = found->alone_ns(nbytes);
  return expected > 0 && expected <= kLongNs && found->doubt <= kDoubt;
}

// The longer the same way has been the better one, the rarer; where it changes, as in the beginning.
bool Spread::Trials::next(bool gains) {
  if (gains != gains_) {
    gains_ = gains;
    period_ = kPeriod;
    run_ = kTrials;
  }
  if (run_ == period_) {
    run_ = 0;
    period_ = std::min(2 * period_, kLongestPeriod);
  }
  return run_++ < kTrials;
}

// Where it is crowded, a run that may be short stays on its thread, if only to tell how long it takes there.
bool Spread::Kind::choose(bool crowded, std::size_t nbytes) {
  const double expected = alone_ns(nbytes);
  if (expected == 0 || (!crowded && expected > kSurelyNs)) return true;
  if (crowded) return (alone.known() ? alone : spread).of(nbytes) > kLongNs;
  const bool gains = gained_ns(nbytes) >= kGainNs;
  const bool is_trial = trials.next(gains) && expected > kGainNs;
  if (is_trial && trials.is_first()) (gains ? alone : spread).begin_anew();
  return gains != is_trial;
}

Spread::Kind& Spread::kind_of(const void* id) {
  const auto found = std::find_if(kinds_.begin(), kinds_.end(), [&](const Kind& one) { return one.id == id; });
  if (found != kinds_.end()) return *found;
  kinds_.emplace_back().id = id;
  return kinds_.back();
}

// Two runs may note themselves at once: one of them is forgotten then, of some tens.
double Spread::note(Workers& workers, std::uint64_t client) {
  const bool meets_another = workers.running.fetch_add(1) > 0;
  const bool follows_another = workers.client.exchange(client, std::memory_order_relaxed) != client;
  const double before = workers.crowd.load(std::memory_order_relaxed);
  const double now = before + ((meets_another || follows_another ? 1 : 0) - before) * kMemory;
  workers.crowd.store(now, std::memory_order_relaxed);
  return now;
}

Spread::Run::Run(Spread& spread, const void* kind, std::size_t nbytes, std::uint64_t client)
    : spread_(spread), kind_(kind), nbytes_(nbytes) {
  Kind& known = spread.kind_of(kind);  // may throw, before the run counts
  const bool crowded = note(spread.workers_, client) > kCrowded;
  spread.may_spread_ = known.choose(crowded, nbytes);
  spread.was_spread_ = false;
}

Spread::Run::~Run() { --spread_.workers_.running; }

void Spread::Run::succeeded(std::chrono::nanoseconds took) {
  const auto ns = static_cast<double>(took.count());
  Kind& known = spread_.kind_of(kind_);
  known.doubt = ns > kLongNs ? std::min(known.doubt + kDoubt, kMostDoubt) : std::max(known.doubt - 1, 0);
  (spread_.was_spread_ && spread_.parallel_.nworkers > 1 ? known.spread : known.alone).add(ns, nbytes_);
}

void Spread::run_entry(void* spread, std::int64_t num_tasks, Task task, void* closure) {
  Spread& self = *static_cast<Spread*>(spread);
  if (self.may_spread_ && self.workers_.running == 1) {
    self.was_spread_ = true;
    const HtParallel& shared = *self.workers_.pool.parallel();
    shared.run(shared.pool, num_tasks, task, closure);
    return;
  }
  for (std::int64_t i = 0; i < num_tasks; ++i) task(closure, i, 0);
}

}  // namespace hardtack::serve
