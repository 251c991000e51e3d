#include "server/core/error.h"

#include <exception>
#include <new>

namespace hardtack::serve {

const char* code_name(Code code) {
  switch (code) {
    case Code::kInvalid: return "invalid";
    case Code::kNotReady: return "not_ready";
    case Code::kNotFound: return "not_found";
    case Code::kTooLarge: return "too_large";
    case Code::kUnsupported: return "unsupported";
    case Code::kUnauthenticated: return "unauthenticated";
    case Code::kForbidden: return "forbidden";
    case Code::kTooMany: return "rate";
    case Code::kQueueFull: return "queue_full";
    case Code::kStopping: return "stopping";
    case Code::kNoMemory: return "no_memory";
    case Code::kDeadline: return "deadline";
    case Code::kRunLimit: return "run_limit";
    case Code::kCancelled: return "cancelled";
    case Code::kModel: return "model";
    case Code::kDevice: return "device";
    case Code::kInternal: return "internal";
  }
  return "internal";
}

namespace {

Code code_of(ht_code code) {
  switch (code) {
    case HT_INVALID_ARGUMENT:
    case HT_CONTRACT:
    case HT_BAD_BUNDLE:
    case HT_UNTRUSTED:
    case HT_NO_TARGET:
    case HT_IO: return Code::kInvalid;
    case HT_OUT_OF_MEMORY: return Code::kNoMemory;
    case HT_STATES:
    case HT_KERNEL: return Code::kModel;
    case HT_CANCELLED: return Code::kCancelled;
    case HT_DEVICE: return Code::kDevice;
    default: return Code::kInternal;
  }
}

}  // namespace

Error from_status(ht_status* status) {
  Error error{code_of(ht_status_code(status)), ht_status_message(status)};
  ht_status_free(status);
  return error;
}

Error from_exception() noexcept {
  try {
    try {
      throw;
    } catch (const std::bad_alloc&) {
      return {Code::kNoMemory, "out of memory; try again later"};
    } catch (const std::exception& error) {
      return {Code::kInternal, std::string("this is a bug of the server: ") + error.what()};
    }
  } catch (const std::bad_alloc&) {
    return {Code::kNoMemory, "out of memory"};  // short enough to lie in the string itself
  } catch (...) {
    return {Code::kInternal, "a bug"};
  }
}

}  // namespace hardtack::serve
