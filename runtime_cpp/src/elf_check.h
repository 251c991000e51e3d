// The form of native code, read before it is used: what it is for and, of a CPU library, what it asks of the dynamic
// linker.
#pragma once

#include <string_view>

#include "status.h"

namespace hardtack::rt {

/// HT_BAD_BUNDLE unless `data` is a 64-bit little-endian shared object for `machine` (62: x86-64, 183: aarch64; 0:
/// either) that needs at most libm and libc, has no interpreter and runs no code when it is loaded.
Status check_library(std::string_view data, const char* name, int machine);

/// HT_BAD_BUNDLE unless `data` is CUDA code (a cubin) for `arch` (90: sm_90) that has `function`.
Status check_cubin(std::string_view data, const char* name, int arch, const char* function);

}  // namespace hardtack::rt
