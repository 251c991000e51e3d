// From ModelInferRequest to the core's Request, and from its Response to the bytes of a reply.
#ifndef HARDTACK_SERVER_GRPC_INFER_H
#define HARDTACK_SERVER_GRPC_INFER_H

#include <functional>
#include <memory>
#include <vector>

#include "server/core/repository.h"
#include "server/core/shared_memory.h"
#include "server/grpc/wire.h"

namespace hardtack::serve::rpc {

/// Where each output that was asked for goes: into shared memory, or with an empty region into the reply. Empty when none
/// was named: all into the reply.
using Deliveries = std::vector<Placement>;

/// What reading a request needs. `check` is asked when names, types and shapes are known, before data is copied.
struct ReadRoom {
  std::size_t limit;  // bytes of a message
  const SharedMemory& shared;
  Budget& budget;
  std::function<Failure(Request&)> check;
};

/// Fills everything but `owner`, which must be set, deadlines of the call, `client`, `cancelled` and `run_here`; of a message
/// that is refused what could be read. Inputs point into the message, which the request keeps, where alignment allows.
Failure read_request(const Bytes& bytes, const ReadRoom& room, Request& request, Deliveries& deliveries);

/// For a request of a sequence: its reply is made in `bytes` before the states move on.
std::unique_ptr<Delivery> delivery_of(const std::shared_ptr<const Deliveries>& deliveries, const SharedMemory& shared,
                                      bool streamed, Bytes& bytes);

/// Writes outputs that go to shared memory, and the reply's bytes. `streamed` as in write_infer.
Failure write_reply(Response&& response, const Deliveries& deliveries, const SharedMemory& shared, bool streamed,
                    Bytes& bytes);

}  // namespace hardtack::serve::rpc

#endif  // HARDTACK_SERVER_GRPC_INFER_H
