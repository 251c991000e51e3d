// Calls that were begun and whose message has not come: HTTP has timeouts for them, gRPC has none.
#ifndef HARDTACK_SERVER_GRPC_WAITING_H
#define HARDTACK_SERVER_GRPC_WAITING_H

#include <condition_variable>
#include <list>
#include <mutex>
#include <thread>

#include "server/core/request.h"

namespace hardtack::serve::rpc {

/// Safe from any thread. Must outlive the calls.
class Waiting {
 public:
  class Call {
   public:
    virtual ~Call() = default;
    /// The message has not come in time. Nobody else ends this call now: leave() is false from now on.
    virtual void give_up() noexcept = 0;

   private:
    friend class Waiting;
    Clock::time_point since_;
    std::list<Call*>::iterator place_;
    bool waits_ = false;
  };

  explicit Waiting(Clock::duration longest);
  ~Waiting();
  Waiting(const Waiting&) = delete;
  Waiting& operator=(const Waiting&) = delete;

  void enter(Call& call);
  /// The message is there, or will not come. False: the call was given up.
  bool leave(Call& call);

 private:
  void watch() noexcept;

  const Clock::duration longest_;
  std::mutex mutex_;
  std::condition_variable wake_;
  std::list<Call*> calls_;  // the oldest first
  bool ending_ = false;
  std::thread thread_;
};

}  // namespace hardtack::serve::rpc

#endif  // HARDTACK_SERVER_GRPC_WAITING_H
