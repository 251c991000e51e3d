// Compressed messages, inflated here and not by gRPC, which inflates whatever comes before it looks at the size.
#ifndef HARDTACK_SERVER_GRPC_INFLATE_H
#define HARDTACK_SERVER_GRPC_INFLATE_H

#include <grpcpp/support/byte_buffer.h>

#include "server/core/budget.h"
#include "server/core/error.h"

namespace hardtack::serve::rpc {

/// Replaces a compressed message by what it stands for; leaves others as they are. kTooLarge beyond `limit` bytes,
/// kInvalid for broken data, kNoMemory. `share` counts what it becomes.
Failure inflate(::grpc::ByteBuffer& bytes, std::size_t limit, Share& share);

bool is_compressed(const ::grpc::ByteBuffer& bytes);

}  // namespace hardtack::serve::rpc

#endif  // HARDTACK_SERVER_GRPC_INFLATE_H
