// The header of a weights member (docs/package.md, "Weights"): which tensor lies where.
#pragma once

#include <memory>
#include <string_view>
#include <vector>

#include "dtype.h"
#include "json_reader.h"
#include "status.h"

namespace hardtack::rt {

struct WeightTensor {
  const char* name = "";
  DType dtype = DType::u8;
  int64_t numel = 0;
  uint64_t offset = 0;  // from the member's start
  uint64_t nbytes = 0;
};

struct WeightsHeader {
  std::shared_ptr<TextPool> texts;
  std::vector<WeightTensor> tensors;  // ascending by name; padding left out

  /// Null when there is none of that name.
  const WeightTensor* find(std::string_view name) const;
};

/// The first 8 bytes give the length of the JSON that follows; this checks it and returns the length of both.
Status weights_header_nbytes(const uint8_t first[8], uint64_t member_nbytes, const char* member, uint64_t* nbytes);

/// `header` is everything before the tensors' data, `member_nbytes` the whole member.
Status parse_weights_header(std::string_view header, uint64_t member_nbytes, const char* member, WeightsHeader* out);

}  // namespace hardtack::rt
