// What is wrong, in Triton's terms.
#ifndef HARDTACK_TRITON_FAULT_H
#define HARDTACK_TRITON_FAULT_H

#include <exception>
#include <hardtack/hardtack.hpp>
#include <new>
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
void log(TRITONSERVER_LogLevel level, const char* message);
void log(TRITONSERVER_LogLevel level, const std::string& message);

/// What `body` says, or what it throws.
template <typename Body>
Outcome guarded(Body body) {
  try {
    return body();
  } catch (const std::bad_alloc&) {
    return Fault{TRITONSERVER_ERROR_UNAVAILABLE, "out of memory"};  // short enough for a string to need none
  } catch (const std::exception& problem) {
    return Fault{TRITONSERVER_ERROR_INTERNAL, std::string("Hardtack's backend: ") + problem.what()};
  }
}

}  // namespace hardtack::triton

#endif  // HARDTACK_TRITON_FAULT_H
