// Element types as the protocol spells them, and sizes that cannot overflow.
#ifndef HARDTACK_SERVER_CORE_TENSOR_H
#define HARDTACK_SERVER_CORE_TENSOR_H

#include <hardtack/hardtack.h>

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace hardtack::serve {

using Shape = std::vector<std::int64_t>;

/// "FP32", "INT64", "BOOL", ...: the Open Inference Protocol's name of a type that the runtime knows; lives forever.
const char* protocol_name(ht_dtype dtype);

/// The type of such a name; nothing for BYTES and for names that the protocol does not have.
std::optional<ht_dtype> dtype_from_protocol(std::string_view name);

inline std::size_t itemsize(ht_dtype dtype) { return dtype.bits / 8U; }

inline bool same_dtype(ht_dtype a, ht_dtype b) { return a.code == b.code && a.bits == b.bits; }

/// Elements of a shape; nothing when a size is negative or the product passes 2^62.
std::optional<std::int64_t> numel(const Shape& shape);

/// "[2,3]"
std::string to_text(const Shape& shape);

/// True when kernels can read elements of this type at `data` in place.
inline bool aligned(const void* data, ht_dtype dtype) {
  return reinterpret_cast<std::uintptr_t>(data) % itemsize(dtype) == 0;
}

}  // namespace hardtack::serve

#endif  // HARDTACK_SERVER_CORE_TENSOR_H
