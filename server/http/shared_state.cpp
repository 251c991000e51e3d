#include "server/http/shared_state.h"

#include <sys/socket.h>

namespace hardtack::serve::http {

namespace {

constexpr auto kDrainGrace = std::chrono::milliseconds(250);

}  // namespace

void SharedState::add(const std::shared_ptr<Swept>& connection) {
  const std::lock_guard<std::mutex> lock(mutex_);
  connections_[connection.get()] = connection;
}

void SharedState::remove(const Swept* connection) {
  const std::lock_guard<std::mutex> lock(mutex_);
  connections_.erase(connection);
}

std::size_t SharedState::open() const {
  const std::lock_guard<std::mutex> lock(mutex_);
  return connections_.size();
}

std::vector<std::shared_ptr<Swept>> SharedState::all() const {
  std::vector<std::shared_ptr<Swept>> result;
  const std::lock_guard<std::mutex> lock(mutex_);
  for (const auto& [key, weak] : connections_) {
    if (auto connection = weak.lock()) result.push_back(std::move(connection));
  }
  return result;
}

void SharedState::sweep() {
  const auto now = Clock::now();
  const bool grace_over =
      draining && now.time_since_epoch().count() > draining_since + std::chrono::nanoseconds(kDrainGrace).count();
  for (const auto& connection : all()) {
    const auto phase = connection->phase.load();
    const bool late = phase != Swept::Phase::kRunning && now.time_since_epoch().count() > connection->until;
    const bool leftover = grace_over && phase == Swept::Phase::kIdle;
    if ((!late && !leftover) || connection->overdue.exchange(true)) continue;
    // What is being read ends with "end of file", after which the client can still be told why.
    ::shutdown(connection->file, phase == Swept::Phase::kWriting ? SHUT_RDWR : SHUT_RD);
  }
}

void SharedState::shut_all() {
  for (const auto& connection : all()) ::shutdown(connection->file, SHUT_RDWR);
}

}  // namespace hardtack::serve::http
