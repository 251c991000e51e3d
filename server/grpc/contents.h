// Elements that a request carries in lists of their own kind instead of raw bytes.
#ifndef HARDTACK_SERVER_GRPC_CONTENTS_H
#define HARDTACK_SERVER_GRPC_CONTENTS_H

#include <cstddef>

#include "inference.pb.h"
#include "server/core/error.h"
#include "server/core/input_memory.h"
#include "server/core/request.h"

namespace hardtack::serve::rpc {

/// True when any list has an element.
bool has_elements(const ::inference::InferTensorContents& contents);

/// Sets `data` and `nbytes` of an input that has name, dtype and shape: into the message where its elements lie there as
/// the dtype has them, else into a block that `memory` holds. kInvalid: elements in the wrong list, too many or too few,
/// or one that the dtype does not hold; kUnsupported for FP16 and BF16.
Failure take_contents(const ::inference::InferTensorContents& contents, Input& input, InputMemory& memory);

}  // namespace hardtack::serve::rpc

#endif  // HARDTACK_SERVER_GRPC_CONTENTS_H
