#include "server/core/tensor.h"

namespace hardtack::serve {

namespace {

struct Name {
  const char* text;
  std::uint8_t code, bits;  // DLDataTypeCode: 0 int, 1 uint, 2 float, 4 bfloat, 6 bool
};

constexpr Name kNames[] = {{"FP32", 2, 32},   {"INT64", 0, 64},  {"INT32", 0, 32}, {"FP16", 2, 16},  {"BF16", 4, 16},
                           {"FP64", 2, 64},   {"UINT8", 1, 8},   {"INT8", 0, 8},   {"INT16", 0, 16}, {"BOOL", 6, 8},
                           {"UINT16", 1, 16}, {"UINT32", 1, 32}, {"UINT64", 1, 64}};
constexpr std::int64_t kMostElements = std::int64_t{1} << 62;

}  // namespace

const char* protocol_name(ht_dtype dtype) {
  for (const Name& name : kNames) {
    if (name.code == dtype.code && name.bits == dtype.bits) return name.text;
  }
  return "UNKNOWN";
}

std::optional<ht_dtype> dtype_from_protocol(std::string_view text) {
  for (const Name& name : kNames) {
    if (text == name.text) return ht_dtype{name.code, name.bits, 1};
  }
  return std::nullopt;
}

std::optional<std::int64_t> numel(const Shape& shape) {
  std::int64_t product = 1;
  bool empty = false;
  for (const std::int64_t size : shape) {
    if (size < 0) return std::nullopt;
    if (size == 0) empty = true;
    if (size > 0 && product > kMostElements / size) return std::nullopt;
    product *= size > 0 ? size : 1;
  }
  return empty ? 0 : product;
}

std::string to_text(const Shape& shape) {
  std::string text = "[";
  for (std::size_t i = 0; i < shape.size(); ++i) {
    if (i > 0) text += ',';
    text += std::to_string(shape[i]);
  }
  return text += ']';
}

}  // namespace hardtack::serve
