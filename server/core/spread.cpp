#include "server/core/spread.h"

#include <algorithm>

namespace hardtack::serve {

namespace {

constexpr double kLongNs = 100e3;  // waking a worker and letting it look for more work costs tens of microseconds
// A thread that loses its processor makes one run long now and then; more than one in kDoubt is the model's doing.
constexpr int kDoubt = 8, kMostDoubt = 3 * kDoubt;

}  // namespace

bool Spread::is_short(const void* kind, std::size_t nbytes) const {
  const auto counted = static_cast<double>(std::max<std::size_t>(nbytes, 1));
  return kind == kind_ && ns_per_nbyte_ > 0 && ns_per_nbyte_ * counted <= kLongNs && doubt_ <= kDoubt;
}

Spread::Run::Run(Spread& spread, const void* kind, std::size_t nbytes)
    : spread_(spread), nbytes_(std::max<std::size_t>(nbytes, 1)) {
  spread.long_ = !spread.is_short(kind, nbytes_);
  if (spread.kind_ != kind) {
    spread.ns_per_nbyte_ = 0;
    spread.doubt_ = 0;
  }
  spread.kind_ = kind;
  ++spread.workers_.running;
}

Spread::Run::~Run() { --spread_.workers_.running; }

// What took long because the thread had to wait for a processor would look like long work: a run counts for at most
// twice the last.
void Spread::Run::succeeded() {
  const std::chrono::duration<double, std::nano> took = std::chrono::steady_clock::now() - start_;
  const double threads = spread_.long_ && spread_.parallel_.nworkers > 1 ? 2 : 1;
  const double found = took.count() * threads / static_cast<double>(nbytes_);
  const bool was_long = took.count() * threads > kLongNs;
  spread_.doubt_ = was_long ? std::min(spread_.doubt_ + kDoubt, kMostDoubt) : std::max(spread_.doubt_ - 1, 0);
  spread_.ns_per_nbyte_ = spread_.ns_per_nbyte_ == 0 ? found : std::min(found, 2 * spread_.ns_per_nbyte_);
}

void Spread::run_entry(void* spread, std::int64_t num_tasks, Task task, void* closure) {
  const Spread& self = *static_cast<Spread*>(spread);
  if (self.long_ && self.workers_.running == 1) {
    const HtParallel& shared = *self.workers_.pool.parallel();
    shared.run(shared.pool, num_tasks, task, closure);
    return;
  }
  for (std::int64_t i = 0; i < num_tasks; ++i) task(closure, i, 0);
}

}  // namespace hardtack::serve
