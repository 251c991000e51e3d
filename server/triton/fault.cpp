#include "fault.h"

namespace hardtack::triton {
namespace {

TRITONSERVER_Error_Code code_of(ht_code code) {
  switch (code) {
    case HT_OK: return TRITONSERVER_ERROR_UNKNOWN;
    case HT_INVALID_ARGUMENT:
    case HT_CONTRACT:
    case HT_KERNEL:
    case HT_STATES:
    case HT_BAD_BUNDLE:
    case HT_UNTRUSTED: return TRITONSERVER_ERROR_INVALID_ARG;
    case HT_NO_TARGET: return TRITONSERVER_ERROR_UNSUPPORTED;
    case HT_IO: return TRITONSERVER_ERROR_NOT_FOUND;
    case HT_OUT_OF_MEMORY: return TRITONSERVER_ERROR_UNAVAILABLE;
    case HT_CANCELLED: return TRITONSERVER_ERROR_CANCELLED;
    case HT_INTERNAL:
    case HT_DEVICE: return TRITONSERVER_ERROR_INTERNAL;
  }
  return TRITONSERVER_ERROR_UNKNOWN;
}

}  // namespace

Outcome refuse(std::string message) { return Fault{TRITONSERVER_ERROR_INVALID_ARG, std::move(message)}; }

Outcome from_status(const Status& status, const std::string& prefix) {
  if (status.ok()) return {};
  return Fault{code_of(status.code()), prefix + status.message()};
}

Outcome from_triton(TRITONSERVER_Error* error) {
  if (error == nullptr) return {};
  Fault fault{TRITONSERVER_ErrorCode(error), TRITONSERVER_ErrorMessage(error)};
  TRITONSERVER_ErrorDelete(error);
  return fault;
}

TRITONSERVER_Error* to_triton(const Outcome& outcome) {
  return outcome ? TRITONSERVER_ErrorNew(outcome->code, outcome->message.c_str()) : nullptr;
}

void log(TRITONSERVER_LogLevel level, const char* message) {
  if (TRITONSERVER_Error* error = TRITONSERVER_LogMessage(level, "hardtack", 0, message)) {
    TRITONSERVER_ErrorDelete(error);
  }
}

void log(TRITONSERVER_LogLevel level, const std::string& message) { log(level, message.c_str()); }

void log_if_failed(TRITONSERVER_Error* error) {
  if (error == nullptr) return;
  log(TRITONSERVER_LOG_ERROR, TRITONSERVER_ErrorMessage(error));
  TRITONSERVER_ErrorDelete(error);
}

}  // namespace hardtack::triton
