// Python callers may pass any strides, as they may to eager torch: an input that does not lie as the contract says is
// copied. The C and C++ APIs refuse it instead; there a hidden copy would be a surprise.
#pragma once

#include <hardtack/hardtack.h>

#include <cstdint>
#include <vector>

namespace hardtack::py_binding {

struct Copy {
  std::vector<char> bytes;
  std::vector<int64_t> strides;
};

// Makes `tensor` point to a dense copy in `copy` if its strides are not those of `declared`; false where nothing was done.
bool conform(ht_tensor* tensor, const ht_tensor_info& declared, Copy* copy);

}  // namespace hardtack::py_binding
