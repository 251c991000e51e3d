#include "server/core/spread.h"

#include <algorithm>

namespace hardtack::serve {

namespace {

constexpr double kLongNs = 100e3;       // waking a worker and letting it look for more work costs tens of microseconds
constexpr double kLongForOneNs = 40e3;  // where one client asks, workers are still awake, and nobody else wants them
constexpr double kCrowded = 0.1, kMemory = 1.0 / 32;
// A thread that loses its processor makes one run long now and then; more than one in kDoubt is the model's doing.
constexpr int kDoubt = 8, kMostDoubt = 3 * kDoubt;

}  // namespace

bool Spread::is_short(const void* kind, std::size_t nbytes) const {
  const auto counted = static_cast<double>(std::max<std::size_t>(nbytes, 1));
  return kind == kind_ && most_ > 0 && most_ * counted <= kLongNs && doubt_ <= kDoubt;
}

// Where it is crowded, a run that may be short stays on its thread, if only to tell how long it takes there.
bool Spread::is_worth_it(bool crowded, const void* kind, std::size_t nbytes) const {
  const auto counted = static_cast<double>(std::max<std::size_t>(nbytes, 1));
  if (kind != kind_ || most_ == 0) return true;
  return crowded ? least_ * counted > kLongNs : most_ * counted > kLongForOneNs || doubt_ > kDoubt;
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
    : spread_(spread), nbytes_(std::max<std::size_t>(nbytes, 1)) {
  const bool crowded = note(spread.workers_, client) > kCrowded;
  spread.long_ = spread.is_worth_it(crowded, kind, nbytes_);
  spread.was_spread_ = false;
  if (spread.kind_ != kind) {
    spread.least_ = spread.most_ = 0;
    spread.doubt_ = 0;
  }
  spread.kind_ = kind;
}

Spread::Run::~Run() { --spread_.workers_.running; }

// What took long because the thread had to wait for a processor would look like long work: a run counts for at most
// twice the last.
void Spread::Run::succeeded(std::chrono::nanoseconds took) {
  const auto ns = static_cast<double>(took.count());
  const double least = ns / static_cast<double>(nbytes_);
  const double most = least * (spread_.was_spread_ && spread_.parallel_.nworkers > 1 ? 2 : 1);
  const bool was_long = ns > kLongNs;
  spread_.doubt_ = was_long ? std::min(spread_.doubt_ + kDoubt, kMostDoubt) : std::max(spread_.doubt_ - 1, 0);
  spread_.most_ = spread_.most_ == 0 ? most : std::min(most, 2 * spread_.most_);
  spread_.least_ = std::min(least, spread_.most_);
}

void Spread::run_entry(void* spread, std::int64_t num_tasks, Task task, void* closure) {
  Spread& self = *static_cast<Spread*>(spread);
  if (self.long_ && self.workers_.running == 1) {
    self.was_spread_ = true;
    const HtParallel& shared = *self.workers_.pool.parallel();
    shared.run(shared.pool, num_tasks, task, closure);
    return;
  }
  for (std::int64_t i = 0; i < num_tasks; ++i) task(closure, i, 0);
}

}  // namespace hardtack::serve
