// The service's methods and what its calls have in common.
#ifndef HARDTACK_SERVER_GRPC_SERVICE_H
#define HARDTACK_SERVER_GRPC_SERVICE_H

#include <grpcpp/impl/service_type.h>
#include <grpcpp/support/server_callback.h>

#include <array>
#include <atomic>
#include <memory>
#include <mutex>
#include <unordered_set>

#include "server/core/access.h"
#include "server/core/background.h"
#include "server/core/log.h"
#include "server/core/metrics.h"
#include "server/core/slots.h"
#include "server/grpc/answers.h"
#include "server/grpc/infer.h"
#include "server/grpc/server.h"
#include "server/grpc/waiting.h"
#include "server/grpc/wire.h"

namespace hardtack::serve::rpc {

class StreamCall;

/// Lives as long as any call.
class Shared {
 public:
  Shared(const GrpcOptions& options_, Repository& repository_, SharedMemory& memory_, Access& access_,
         Background& parsing_, Log& log_);

  const GrpcOptions& options;
  Repository& repository;
  SharedMemory& memory;
  Access& access;
  Log& log;
  Background& parsing;  // for messages that take long to read
  Waiting waiting;

  struct Counts {
    std::array<std::atomic<std::uint64_t>, 17> by_status{};  // of calls
    std::atomic<std::uint64_t> messages_in{0}, messages_out{0}, bytes_in{0}, bytes_out{0};
    std::atomic<std::int64_t> calls{0}, streams{0};  // open
  };
  Counts counts;

  /// For read_request: models are asked whether they take it.
  ReadRoom read_room();

  Slots slots;  // of gRPC's threads that run a model

  /// New inferences are refused from end_streams() on.
  std::atomic<bool> draining{false};

  /// Streams are told when the server drains: those that came before, and new ones at once.
  void add(const std::shared_ptr<StreamCall>& stream);
  void remove(const std::shared_ptr<StreamCall>& stream);
  void end_streams();

  /// Counts a call and writes its line of the log.
  void ended(const ::grpc::CallbackServerContext& context, const char* method, Clock::time_point arrived,
             const ::grpc::Status& status) noexcept;

 private:
  std::mutex mutex_;
  std::unordered_set<std::shared_ptr<StreamCall>> streams_;
};

/// Who calls, if the caller may, by the token in the metadata `authorization`; `number` is Caller::client.
Outcome<Caller> admit(Access& access, const ::grpc::CallbackServerContext& context, Role role);

/// The end of the client's patience in the core's clock.
Clock::time_point deadline_of(const ::grpc::CallbackServerContext& context);

/// The service to register with a gRPC server.
std::unique_ptr<::grpc::Service> make_service(Shared& shared, Background& control);

}  // namespace hardtack::serve::rpc

#endif  // HARDTACK_SERVER_GRPC_SERVICE_H
