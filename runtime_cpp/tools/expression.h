// Evaluates the size texts of a manifest ("2*s0 + 1", "(s0 - 3)//4", "min(s0, 8)") for given sizes.
#pragma once

#include <cstdint>
#include <map>
#include <string>

namespace hardtack::tools {

/// False when a name is not in `sizes`, or the text is not such an expression.
bool evaluate(const std::string& text, const std::map<std::string, int64_t>& sizes, int64_t* value);

}  // namespace hardtack::tools
