// Transposes tiles of 4-byte elements in registers.
#ifndef HARDTACK_TEMPLATES_TRANSPOSE_H
#define HARDTACK_TEMPLATES_TRANSPOSE_H

#include "simd.h"

namespace ht {
namespace detail {

// The lower (high = 0) or upper halves of a and b, lane by lane in turn.
template <int high>
HT_INLINE vec<float> interleave(vec<float> a, vec<float> b) {
#if defined(HT_AVX512)
  constexpr int s = high * 8;
  return __builtin_shufflevector(a, b, s, s + 16, s + 1, s + 17, s + 2, s + 18, s + 3, s + 19, s + 4, s + 20, s + 5,
                                 s + 21, s + 6, s + 22, s + 7, s + 23);
#elif defined(HT_AVX2)
  constexpr int s = high * 4;
  return __builtin_shufflevector(a, b, s, s + 8, s + 1, s + 9, s + 2, s + 10, s + 3, s + 11);
#else
  constexpr int s = high * 2;
  return __builtin_shufflevector(a, b, s, s + 4, s + 1, s + 5);
#endif
}

}  // namespace detail

// Replaces W row vectors by the W column vectors: log2(W) rounds, each of which interleaves rows i and i + W / 2.
HT_INLINE void transpose(vec<float> (&rows)[W]) {
#pragma GCC unroll 4
  for (int span = 1; span < W; span *= 2) {
    vec<float> next[W];
#pragma GCC unroll 8
    for (int i = 0; i < W / 2; i++) {
      next[2 * i] = detail::interleave<0>(rows[i], rows[i + W / 2]);
      next[2 * i + 1] = detail::interleave<1>(rows[i], rows[i + W / 2]);
    }
#pragma GCC unroll 16
    for (int i = 0; i < W; i++) rows[i] = next[i];
  }
}

}  // namespace ht

#endif  // HARDTACK_TEMPLATES_TRANSPOSE_H
