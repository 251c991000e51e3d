// Where tensors lie: on lines of the cache, in memory of malloc, which has what was freed last at hand. (The C library's
// aligned_alloc does not: it looks for a place at every call.)
#ifndef HARDTACK_SERVER_CORE_MEMORY_H
#define HARDTACK_SERVER_CORE_MEMORY_H

#include <cstddef>
#include <cstdint>

namespace hardtack::serve {

inline constexpr std::size_t kAlignment = 64;

inline std::size_t aligned_up(std::size_t nbytes) { return (nbytes + kAlignment - 1) / kAlignment * kAlignment; }

/// The first place from `memory` on where a tensor may lie, fewer than kAlignment bytes away.
inline std::byte* aligned_place(std::byte* memory) {
  return memory + (kAlignment - reinterpret_cast<std::uintptr_t>(memory) % kAlignment) % kAlignment;
}

}  // namespace hardtack::serve

#endif  // HARDTACK_SERVER_CORE_MEMORY_H
