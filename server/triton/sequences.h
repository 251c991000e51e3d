// The sequences of one instance: each has a session, whose states are the sequence's.
#ifndef HARDTACK_TRITON_SEQUENCES_H
#define HARDTACK_TRITON_SEQUENCES_H

#include <unordered_map>

#include "request.h"

namespace hardtack::triton {

/// Triton gives an instance at most `capacity` sequences at once. It does not say when it gives one up that was silent
/// for too long, so the sequence that was silent for longest makes room for a new one.
class Sequences {
 public:
  Sequences(const LoadedModel& model, ht_session_options options, std::size_t capacity)
      : model_(model), options_(options), capacity_(capacity) {}

  /// The session of the request's sequence; at a start with the states' first values.
  Outcome find(const Request& request, Session** session);
  /// After the run: a sequence that ended, or whose states may be half changed, is forgotten.
  void done(const Request& request, bool good);

 private:
  struct Slot {
    Session session;
    std::uint64_t last_use = 0;
  };

  Outcome make(Slot* slot);

  const LoadedModel& model_;
  const ht_session_options options_;
  const std::size_t capacity_;
  std::uint64_t num_uses_ = 0;
  std::unordered_map<std::string, Slot> running_;
  std::vector<Session> idle_;
};

}  // namespace hardtack::triton

#endif  // HARDTACK_TRITON_SEQUENCES_H
