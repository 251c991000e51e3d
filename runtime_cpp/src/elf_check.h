// The form of a GPU's code, read before it is used: what it is for, and which functions it has.
#pragma once

#include <string_view>

#include "status.h"

namespace hardtack::rt {

/// HT_BAD_BUNDLE unless `data` is code for a GPU of `arch` that has `function`: a cubin for "sm_90" and the like, a code
/// object for "gfx942".
Status check_kernel_code(std::string_view data, const char* name, const char* arch, const char* function);

}  // namespace hardtack::rt
