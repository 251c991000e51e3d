// What is wrong, in Triton's terms.
#ifndef HARDTACK_TRITON_FAULT_H
#define HARDTACK_TRITON_FAULT_H

#include <hardtack/hardtack.hpp>
#include <optional>
#include <string>

#include "triton_api.h"

namespace hardtack::triton {

struct Fault {
  TRITONSERVER_Error_Code code;
  std::string message;
};

/// Nothing: success.
using Outcome = std::optional<Fault>;

/// The configuration or the request is wrong.
Outcome refuse(std::string message);
/// Nothing if `status` is good.
Outcome from_status(const Status& status, const std::string& prefix = "");
/// Takes the error over; nothing for null.
Outcome from_triton(TRITONSERVER_Error* error);
/// Null for success; else the caller's to delete.
TRITONSERVER_Error* to_triton(const Outcome& outcome);
/// For calls that can only fail if Triton is broken: logs what they say.
void log_if_failed(TRITONSERVER_Error* error);
void log(TRITONSERVER_LogLevel level, const std::string& message);

}  // namespace hardtack::triton

#endif  // HARDTACK_TRITON_FAULT_H
