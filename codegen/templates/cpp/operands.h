// Where the operands of a unit of a product lie, whichever instructions multiply them (blocks.h).
#ifndef HARDTACK_TEMPLATES_OPERANDS_H
#define HARDTACK_TEMPLATES_OPERANDS_H

#include "half.h"
#include "workspace.h"

namespace ht {

// Asks for `count` rows of numel elements, ld apart, ahead of their use: the next tile of A while this one is worked
// on. A dozen short streams at once are more than hardware prefetchers follow.
template <class T>
HT_INLINE void prefetch_rows(const T* a, int64_t ld, int count, int64_t numel) {
  for (int r = 0; r < count; r++)
    for (int64_t i = 0; i < numel; i += 64 / static_cast<int64_t>(sizeof(T))) __builtin_prefetch(a + r * ld + i);
}

// Panel p of the range asked for is at base + p * stride; its rows are ldb elements apart.
template <class B>
struct PanelView {
  const B* base;
  int64_t stride;
  int64_t ldb;
};

template <class View>
struct ElementOfView;
template <class B>
struct ElementOfView<const PanelView<B>> {
  using type = B;
};
template <class View>
using ElementOf = typename ElementOfView<const View>::type;

// The source of whose rows a kernel knows that their elements are As: int8.h has such a type.
struct AsTheyAre {};
template <class As, class Source>
struct ReadAs {
  using type = Source;
};

template <class T>
inline void clear(T* p, int64_t numel) {
  for (int64_t i = 0; i < numel; i++) p[i] = T{};
}

// What a worker has beside the sums: rows of A that are staged or spread, panels of 16-bit numbers that were made
// float, and what a source asks for.
struct Scratch {
  void* staged;
  float* widened;
  void* source;
};

namespace detail {

// Lines of a first-level cache that are this far apart share a set, which has room for so many on every CPU met: more
// rows than that, each a multiple of the distance behind the one before, drive each other out before they are used up.
#if defined(HT_NEON)
constexpr uintptr_t kSetDistance = 16384;
constexpr int kSetLines = 4;
#else
constexpr uintptr_t kSetDistance = 4096;
constexpr int kSetLines = 8;
#endif

}  // namespace detail
}  // namespace ht

#endif  // HARDTACK_TEMPLATES_OPERANDS_H
