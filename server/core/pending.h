// A request that was checked against its entry point and waits for a session.
#ifndef HARDTACK_SERVER_CORE_PENDING_H
#define HARDTACK_SERVER_CORE_PENDING_H

#include <list>
#include <vector>

#include "server/core/model_version.h"
#include "server/core/request.h"

namespace hardtack::serve {

struct SequenceState;

struct Pending : Form {
  Request request;
  Done done;
  bool found_idle = false;  // a session was free when it came: it waits for no batch
  bool displaced = false;   // it left the queue to one whose client had fewer there
  std::uint64_t turn = 0;   // its place in the queue
  Clock::time_point queued;
  SequenceState* sequence = nullptr;  // of the batcher; null: the request stands alone
  /// What the session holds after the request, as far as states go.
  enum class States {
    kUntouched,  // what it held before
    kNobodys,    // nothing of use
    kFound,      // the sequence's, as the request found them
    kInitial,    // the initial ones, and nothing was run
    kMovedOn     // what the run made of them
  } states = States::kUntouched;
  Response response;  // model, version and id from the start

  /// What the client is told.
  void fail(const Error& error) noexcept;
  /// Whether it has waited and its client went away. What is started at once is answered: the client may have ended only its
  /// own side.
  bool gone(Clock::time_point now, Clock::duration grace = kGrace) const {
    return request.cancelled != nullptr && request.cancelled->load(std::memory_order_relaxed) && now - queued >= grace;
  }
  static constexpr Clock::duration kGrace = std::chrono::milliseconds(100);
};

/// Requests on their way go from list to list, which takes no memory: none is lost where there is none.
using Requests = std::list<Pending>;

/// Checks names, types and shapes, and not the inputs' bytes, which may not be there yet; fills `request.form`.
Failure check_form(const ModelVersion& version, Request& request);

/// Checks all of `pending.request`, save for what this version has checked before; fills what follows from it.
Failure check_request(const ModelVersion& version, Pending& pending);

/// True when two requests of the same entry can be rows of one run: all sizes but the first agree.
bool fits(const Pending& a, const Pending& b);

}  // namespace hardtack::serve

#endif  // HARDTACK_SERVER_CORE_PENDING_H
