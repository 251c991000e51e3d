#include "server/grpc/waiting.h"

namespace hardtack::serve::rpc {

namespace {

constexpr auto kLook = std::chrono::milliseconds(500);

}  // namespace

Waiting::Waiting(Clock::duration longest) : longest_(longest), thread_([this] { watch(); }) {}

Waiting::~Waiting() {
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    ending_ = true;
  }
  wake_.notify_all();
  thread_.join();
}

void Waiting::enter(Call& call) {
  call.since_ = Clock::now();
  const std::lock_guard<std::mutex> lock(mutex_);
  call.place_ = calls_.insert(calls_.end(), &call);
  call.waits_ = true;
}

bool Waiting::leave(Call& call) {
  const std::lock_guard<std::mutex> lock(mutex_);
  if (!call.waits_) return false;
  calls_.erase(call.place_);
  call.waits_ = false;
  return true;
}

void Waiting::watch() noexcept {
  std::unique_lock<std::mutex> lock(mutex_);
  while (!wake_.wait_for(lock, kLook, [this] { return ending_; })) {
    const auto before = Clock::now() - longest_;
    std::list<Call*> late;
    auto end = calls_.begin();
    while (end != calls_.end() && (*end)->since_ < before) (*end++)->waits_ = false;
    late.splice(late.end(), calls_, calls_.begin(), end);
    lock.unlock();
    for (Call* call : late) call->give_up();
    lock.lock();
  }
}

}  // namespace hardtack::serve::rpc
