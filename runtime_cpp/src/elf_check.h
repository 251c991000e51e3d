// The form of a GPU's code, read before it is used: what it is for, and which functions it has.
#pragma once

#include <set>
#include <string>
#include <string_view>

#include "status.h"

namespace hardtack::rt {

/// Names of functions, each of at most 1023 bytes where code has it.
using FunctionNames = std::set<std::string, std::less<>>;

/// HT_BAD_BUNDLE unless `data` is code for a GPU of `arch` that has all the `functions`: a cubin for "sm_90" and the
/// like, a code object for "gfx942". Takes time in proportion to the code, whatever its names are.
Status check_kernel_code(std::string_view data, const char* name, const char* arch, const FunctionNames& functions);

}  // namespace hardtack::rt
