// NumPy's .npy files, versions 1.0 and 2.0, as numpy.lib.format describes them: C order, little-endian.
#pragma once

#include <hardtack/hardtack.h>

#include <string>
#include <vector>

namespace hardtack::tools {

struct Array {
  ht_dtype dtype = {};
  std::vector<int64_t> shape;
  std::vector<char> bytes;  // contiguous
};

/// False with a sentence in `*problem`. bfloat16 and float8 have no name in .npy: files of uint16 and uint8 are
/// given as their bits when `expected` is one of these.
bool read_npy(const std::string& path, ht_dtype expected, Array* array, std::string* problem);
/// Writes a tensor of any strides; bfloat16 as uint16, float8 as uint8.
bool write_npy(const std::string& path, const ht_tensor& tensor, std::string* problem);

}  // namespace hardtack::tools
