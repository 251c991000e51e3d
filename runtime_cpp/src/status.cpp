#include "status.h"

#include <cstdarg>
#include <cstdio>

namespace hardtack::rt {

Status error(ht_code code, const char* format, ...) {
  va_list args;
  va_start(args, format);
  va_list again;
  va_copy(again, args);
  const int length = std::vsnprintf(nullptr, 0, format, args);
  va_end(args);
  std::string text(length > 0 ? static_cast<size_t>(length) : 0, '\0');
  if (length > 0) std::vsnprintf(text.data(), text.size() + 1, format, again);
  va_end(again);
  for (char& c : text) {
    if (static_cast<unsigned char>(c) < 0x20 || c == 0x7F) c = '?';
  }
  return Status(code, std::move(text));
}

ht_status* out_of_memory() {
  // Short enough for std::string's own buffer.
  static ht_status status = {HT_OUT_OF_MEMORY, "out of memory"};
  return &status;
}

Status in_context(Status status, const char* prefix) {
  if (status.ok()) return status;
  return error(status.code(), "%s: %s", prefix, status.message());
}

Status in_context(Status status, const std::string& prefix) { return in_context(std::move(status), prefix.c_str()); }

}  // namespace hardtack::rt

extern "C" {

ht_code ht_status_code(const ht_status* status) { return status == nullptr ? HT_OK : status->code; }

const char* ht_status_message(const ht_status* status) { return status == nullptr ? "" : status->message.c_str(); }

void ht_status_free(ht_status* status) {
  if (status != hardtack::rt::out_of_memory()) delete status;
}

const char* ht_code_name(ht_code code) {
  switch (code) {
    case HT_OK: return "HT_OK";
    case HT_INVALID_ARGUMENT: return "HT_INVALID_ARGUMENT";
    case HT_CONTRACT: return "HT_CONTRACT";
    case HT_BAD_BUNDLE: return "HT_BAD_BUNDLE";
    case HT_NO_TARGET: return "HT_NO_TARGET";
    case HT_UNTRUSTED: return "HT_UNTRUSTED";
    case HT_IO: return "HT_IO";
    case HT_OUT_OF_MEMORY: return "HT_OUT_OF_MEMORY";
    case HT_KERNEL: return "HT_KERNEL";
    case HT_CANCELLED: return "HT_CANCELLED";
    case HT_INTERNAL: return "HT_INTERNAL";
    case HT_DEVICE: return "HT_DEVICE";
    case HT_STATES: return "HT_STATES";
  }
  return "unknown code";
}

}  // extern "C"
