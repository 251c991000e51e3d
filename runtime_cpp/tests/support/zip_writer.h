// Writes the container of a bundle, for tests and fuzz targets.
#pragma once

#include <string>
#include <utility>
#include <vector>

namespace hardtack::testing {

/// Members by name, in the given order.
std::string write_zip(const std::vector<std::pair<std::string, std::string>>& members);

}  // namespace hardtack::testing
