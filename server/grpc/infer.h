// From ModelInferRequest to the core's Request, and from its Response to the bytes of a reply.
#ifndef HARDTACK_SERVER_GRPC_INFER_H
#define HARDTACK_SERVER_GRPC_INFER_H

#include <memory>
#include <vector>

#include "server/core/repository.h"
#include "server/core/shared_memory.h"
#include "server/grpc/wire.h"

namespace hardtack::serve::rpc {

/// Where each output that was asked for goes: into shared memory, or with an empty region into the reply. Empty when none
/// was named: all into the reply.
using Deliveries = std::vector<Placement>;

/// Reads a message of at most `limit` bytes. Fills everything but deadlines of the call, `cancelled` and `run_here`; of a
/// message that is refused what could be read. Inputs point into the message, which the request keeps, where alignment
/// allows.
Failure read_request(const Bytes& bytes, std::size_t limit, const SharedMemory& shared, Request& request,
                     Deliveries& deliveries);

/// Writes outputs that go to shared memory, and the reply's bytes. `streamed` as in write_infer.
Failure write_reply(Response&& response, const Deliveries& deliveries, const SharedMemory& shared, bool streamed,
                    Bytes& bytes);

}  // namespace hardtack::serve::rpc

#endif  // HARDTACK_SERVER_GRPC_INFER_H
