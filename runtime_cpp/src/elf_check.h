// The form of native code, read before it is used: what it is for and, of a CPU library, what it asks of the dynamic
// linker.
#pragma once

#include <string_view>

#include "status.h"

namespace hardtack::rt {

/// HT_BAD_BUNDLE unless `data` is a 64-bit little-endian shared object for `machine` (62: x86-64, 183: aarch64; 0:
/// either) that needs at most libm and libc, has no interpreter and runs no code when it is loaded.
Status check_library(std::string_view data, const char* name, int machine);

/// HT_BAD_BUNDLE unless `data` is code for a GPU of `arch` that has `function`: a cubin for "sm_90" and the like, a code
/// object for "gfx942".
Status check_kernel_code(std::string_view data, const char* name, const char* arch, const char* function);

}  // namespace hardtack::rt
