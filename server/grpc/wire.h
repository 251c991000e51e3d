// From the bytes of a call to messages, and back.
#ifndef HARDTACK_SERVER_GRPC_WIRE_H
#define HARDTACK_SERVER_GRPC_WIRE_H

#include <google/protobuf/message_lite.h>
#include <grpcpp/support/byte_buffer.h>
#include <grpcpp/support/status.h>

#include <memory>
#include <vector>

#include "inference.pb.h"
#include "server/core/budget.h"
#include "server/core/error.h"

namespace hardtack::serve::rpc {

namespace pb = ::inference;

using Bytes = ::grpc::ByteBuffer;

/// A request that is no inference: at most 1 MiB, inflated. kInvalid when the bytes are no such message.
Failure parse(const Bytes& bytes, google::protobuf::MessageLite& message, Budget& budget);

/// An inference of at most `limit` bytes, inflated. kTooLarge, too, when so many fields are in it that memory would run
/// out where the bytes did not. `share` counts the message; kNoMemory.
Failure parse_infer(const Bytes& bytes, std::size_t limit, pb::ModelInferRequest& message, Share& share);

/// Whether reading an inference may take so long that a thread of gRPC must not do it.
bool takes_long(const Bytes& bytes);

/// kTooLarge beyond what a message can hold.
Failure write(const google::protobuf::MessageLite& message, Bytes& bytes);

/// Bytes of an output that become one raw_output_contents.
struct Raw {
  const void* data = nullptr;
  std::size_t nbytes = 0;
};

/// `head` with the raw contents appended, large ones without a copy: `owner` lives until they are sent. `streamed`:
/// inside a ModelStreamInferResponse.
Failure write_infer(const pb::ModelInferResponse& head, const std::vector<Raw>& raw,
                    const std::shared_ptr<const void>& owner, bool streamed, Bytes& bytes);

/// An error of ours; without the sentence where there is no memory for it.
Error said(Code code, const char* sentence) noexcept;

/// In the terms of gRPC; without the sentence where there is no memory for it.
::grpc::Status to_status(const Error& error) noexcept;

}  // namespace hardtack::serve::rpc

#endif  // HARDTACK_SERVER_GRPC_WIRE_H
