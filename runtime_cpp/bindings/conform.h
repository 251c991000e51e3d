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

// Whether the contract wants dimension 1 innermost in memory. Exports declare this or row-major, nothing else.
bool is_channels_last(const ht_tensor_info& declared);

// Whether the elements lie as the contract wants them; also true for a tensor of another dtype or rank, or without memory,
// which the runtime refuses and says why.
bool conforms(const ht_tensor& tensor, const ht_tensor_info& declared);

// Makes a tensor on the host that does not conform point to a dense copy in `copy`.
void conform(ht_tensor* tensor, const ht_tensor_info& declared, Copy* copy);

}  // namespace hardtack::py_binding
