#include "sequences.h"

#include <algorithm>

namespace hardtack::triton {

Outcome Sequences::find(const Request& request, Session** session) {
  auto found = running_.find(request.sequence());
  if (found == running_.end()) {
    if (!request.starts_sequence()) {
      return refuse("sequence " + request.sequence() +
                    " is not running here: it ended, failed or was silent for too "
                    "long; start it again");
    }
    Slot slot;
    if (Outcome failed = make(&slot)) return failed;
    found = running_.emplace(request.sequence(), std::move(slot)).first;
  }
  found->second.last_use = ++num_uses_;
  *session = &found->second.session;
  return request.starts_sequence() ? from_status((*session)->reset()) : Outcome();
}

Outcome Sequences::make(Slot* slot) {
  if (running_.size() >= capacity_) {
    const auto oldest = std::min_element(running_.begin(), running_.end(), [](const auto& a, const auto& b) {
      return a.second.last_use < b.second.last_use;
    });
    slot->session = std::move(oldest->second.session);
    running_.erase(oldest);
    return {};
  }
  if (idle_.empty()) {
    Result<Session> made = model_.model.new_session(&options_);
    if (!made.ok()) return from_status(made.status());
    slot->session = std::move(*made);
  } else {
    slot->session = std::move(idle_.back());
    idle_.pop_back();
  }
  return {};
}

void Sequences::done(const Request& request, bool good) {
  const auto found = running_.find(request.sequence());
  if (found == running_.end() || (good && !request.ends_sequence())) return;
  Session session = std::move(found->second.session);
  running_.erase(found);
  idle_.push_back(std::move(session));
}

}  // namespace hardtack::triton
