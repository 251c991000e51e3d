// What the connections of a server have in common.
#ifndef HARDTACK_SERVER_HTTP_SHARED_STATE_H
#define HARDTACK_SERVER_HTTP_SHARED_STATE_H

#include <array>
#include <atomic>
#include <cstdint>
#include <memory>
#include <mutex>
#include <unordered_map>

#include "server/core/background.h"
#include "server/core/budget.h"
#include "server/core/log.h"
#include "server/core/slots.h"
#include "server/http/routes.h"
#include "server/http/server.h"

namespace hardtack::serve::http {

/// What the sweep needs to know of a connection. It never closes the socket (only its owner does, at its end): it shuts
/// it down, so that what waits for it ends.
class Swept {
 public:
  enum class Phase { kIdle, kReading, kRunning, kWriting };
  virtual ~Swept() = default;

  std::atomic<Phase> phase{Phase::kIdle};
  std::atomic<Clock::rep> until{0};  // of Clock, for the phase
  std::atomic<bool> overdue{false};  // set by the sweep
  int file = -1;
};

struct Counts {
  std::array<std::atomic<std::uint64_t>, 600> by_status{};
  std::atomic<std::uint64_t> connections{0}, refused{0}, bytes_in{0}, bytes_out{0}, behind{0};
};

class SharedState {
 public:
  SharedState(const HttpOptions& options_, Routes& routes_, Background& parsing_, Budget& budget_, Log& log_,
              int run_here_slots)
      : options(options_), routes(routes_), parsing(parsing_), budget(budget_), log(log_), slots(run_here_slots) {}

  const HttpOptions& options;
  Routes& routes;
  Background& parsing;
  Budget& budget;
  Log& log;
  Counts counts;
  Slots slots;                      // of io threads that run a model
  std::atomic<bool> behind{false};  // the io threads: what is not about health is done elsewhere
  std::atomic<bool> draining{false};
  std::atomic<Clock::rep> draining_since{0};

  void add(const std::shared_ptr<Swept>& connection);
  void remove(const Swept* connection);
  std::size_t open() const;
  /// Ends what is overdue, and idle connections while draining.
  void sweep();
  /// Ends all.
  void shut_all();

 private:
  std::vector<std::shared_ptr<Swept>> all() const;
  mutable std::mutex mutex_;
  std::unordered_map<const Swept*, std::weak_ptr<Swept>> connections_;
};

}  // namespace hardtack::serve::http

#endif  // HARDTACK_SERVER_HTTP_SHARED_STATE_H
