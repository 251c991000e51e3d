// What the C functions share: option structs of other versions, and exceptions that must not leave.
#pragma once

#include <cstring>
#include <new>

#include "model.h"
#include "session.h"
#include "status.h"

struct ht_model {
  std::shared_ptr<const hardtack::rt::Model> model;
};

struct ht_pool {
  std::shared_ptr<hardtack::rt::ThreadPool> pool;
};

namespace hardtack::rt {

/// Copies an options struct of any version into this one's. Null gives all defaults. A newer struct is fine as long as
/// what this version does not know is zero.
template <typename Options>
Status read_options(const Options* given, const char* what, Options* options) {
  *options = {};
  options->struct_size = sizeof(Options);
  if (given == nullptr) return Status();
  const size_t size = given->struct_size;
  if (size < sizeof(size_t) || size > 4096) {
    return error(HT_INVALID_ARGUMENT, "%s.struct_size is %zu, expected %zu", what, size, sizeof(Options));
  }
  const char* bytes = reinterpret_cast<const char*>(given);
  for (size_t i = sizeof(Options); i < size; ++i) {
    if (bytes[i] != 0) {
      return error(HT_INVALID_ARGUMENT, "%s asks for something that Hardtack %s does not know (byte %zu)", what,
                   ht_version(), i);
    }
  }
  std::memcpy(options, given, size < sizeof(Options) ? size : sizeof(Options));
  options->struct_size = sizeof(Options);
  return Status();
}

/// Copies a result struct into the caller's, which may be of another version.
template <typename Info>
Status write_info(const Info& info, const char* what, Info* given) {
  const size_t size = given->struct_size;
  if (size < sizeof(size_t) || size > 4096) {
    return error(HT_INVALID_ARGUMENT, "%s.struct_size is %zu, expected %zu", what, size, sizeof(Info));
  }
  std::memset(static_cast<void*>(given), 0, size);
  std::memcpy(static_cast<void*>(given), &info, size < sizeof(Info) ? size : sizeof(Info));
  given->struct_size = size;
  return Status();
}

/// Runs `body` and turns what it throws into a status: only allocations of our own containers can throw.
template <typename Body>
ht_status* guarded(const Body& body) {
  try {
    return body().release();
  } catch (const std::bad_alloc&) {
    return out_of_memory();
  } catch (...) {
    return error(HT_INTERNAL, "an unexpected exception; please report it").release();
  }
}

}  // namespace hardtack::rt
