// The form of a CPU target's shared object, read before it is loaded (docs/package.md, "Libraries"): what the dynamic
// linker is asked to do. codegen/package/library.py is the other reader of the same rules.
#pragma once

#include <string_view>
#include <vector>

#include "status.h"

namespace hardtack::rt {

/// What is mapped of a library: addresses count from where it is loaded.
struct LoadedRange {
  uint64_t address = 0;
  uint64_t nbytes = 0;
  bool executable = false;
};

/// HT_BAD_BUNDLE unless `data` is a 64-bit little-endian shared object for `machine` (62: x86-64, 183: aarch64; 0:
/// either) that needs no other library and runs nothing when it is loaded: the dynamic linker maps it and moves its own
/// addresses, no more. `ranges` may be null.
Status check_library(std::string_view data, const char* name, int machine, std::vector<LoadedRange>* ranges = nullptr);

}  // namespace hardtack::rt
