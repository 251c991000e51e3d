// Arithmetic that cannot wrap. Every offset, size and count that comes from a file or a caller goes through here.
#pragma once

#include <cstdint>

namespace hardtack::rt {

/// Values, workspaces and arenas are smaller than this (docs/plan.md).
constexpr int64_t kMaxNbytes = int64_t{1} << 48;

[[nodiscard]] inline bool checked_add(int64_t a, int64_t b, int64_t* sum) { return !__builtin_add_overflow(a, b, sum); }

[[nodiscard]] inline bool checked_mul(int64_t a, int64_t b, int64_t* product) {
  return !__builtin_mul_overflow(a, b, product);
}

[[nodiscard]] inline bool checked_add(uint64_t a, uint64_t b, uint64_t* sum) {
  return !__builtin_add_overflow(a, b, sum);
}

[[nodiscard]] inline bool checked_mul(uint64_t a, uint64_t b, uint64_t* product) {
  return !__builtin_mul_overflow(a, b, product);
}

/// Whether [offset, offset + nbytes) lies inside [0, total). Subtracts, because a sum could wrap.
inline bool range_inside(uint64_t offset, uint64_t nbytes, uint64_t total) {
  return offset <= total && nbytes <= total - offset;
}

/// Whether two non-empty byte ranges share a byte.
inline bool ranges_overlap(uint64_t a, uint64_t a_nbytes, uint64_t b, uint64_t b_nbytes) {
  if (a_nbytes == 0 || b_nbytes == 0) return false;
  return a <= b ? b - a < a_nbytes : a - b < b_nbytes;
}

/// Python's // and %; the divisor is at least 1.
inline int64_t floor_div(int64_t a, int64_t b) { return a / b - (a % b < 0 ? 1 : 0); }
inline int64_t floor_mod(int64_t a, int64_t b) { return a % b < 0 ? a % b + b : a % b; }

/// The next multiple of `unit`, a power of two; `value` is far from overflow (below 2^62).
constexpr int64_t round_up(int64_t value, int64_t unit) { return (value + unit - 1) & ~(unit - 1); }

}  // namespace hardtack::rt
