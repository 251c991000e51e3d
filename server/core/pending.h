// A request that was checked against its entry point and waits for a session.
#ifndef HARDTACK_SERVER_CORE_PENDING_H
#define HARDTACK_SERVER_CORE_PENDING_H

#include <memory>
#include <vector>

#include "server/core/model_version.h"
#include "server/core/request.h"

namespace hardtack::serve {

struct SequenceState;

struct Pending {
  Request request;
  Done done;
  const Entry* entry = nullptr;
  std::vector<std::size_t> inputs;   // request.inputs in the entry's order
  std::vector<std::size_t> outputs;  // of the entry, in the order asked for
  std::int64_t rows = 1;             // of dimension 0 when the entry batches
  bool found_idle = false;           // a session was free when it came: it waits for no batch
  Clock::time_point queued;
  SequenceState* sequence = nullptr;  // of the batcher; null: the request stands alone

  bool gone() const { return request.cancelled != nullptr && request.cancelled->load(std::memory_order_relaxed); }
};

/// Checks names, types and shapes; fills everything but `done`, `queued` and `sequence`.
Outcome<std::unique_ptr<Pending>> check_request(const ModelVersion& version, Request&& request);

/// True when two requests of the same entry can be rows of one run: all sizes but the first agree.
bool fits(const Pending& a, const Pending& b);

}  // namespace hardtack::serve

#endif  // HARDTACK_SERVER_CORE_PENDING_H
