// Products of 16-bit numbers, bf16 and f16, summed in float.
//
// How a CPU multiplies them is its own affair, and one packed layout serves all: f16 lies in panels as float does
// (micro.h), bf16 in pairs of neighbouring k, as the instructions want it that multiply two at a time:
//
//   packed[panel][k / 2][column][k % 2], zero where k is past the last one
//
// The microkernel reads rows of A as `Staged`. Pairs of bf16, for AVX512-BF16 and BFDOT, are read where they lie, since
// neighbours in a row are of neighbouring k; of an odd row the last is read alone, as what lies behind it may be no number.
// For FMA rows are laid into the worker's workspace as float, and for AMX in tiles (tiles.h). A row is short beside what it
// is multiplied with, so this is little work; it also brings the taps of a convolution side by side.
//
// FMA sums in the order of k, one at a time, as for float. Instructions for pairs add two products at once and flush
// subnormal numbers, which is why results differ in the last places from one class of CPUs to another.
#ifndef HARDTACK_TEMPLATES_HALF_H
#define HARDTACK_TEMPLATES_HALF_H

#include "micro.h"

#if defined(__AVX512BF16__) && defined(HT_AVX512)
#define HT_BF16_PAIRS 1
#elif defined(HT_NEON) && defined(__ARM_FEATURE_BF16_VECTOR_ARITHMETIC)
#define HT_BF16_PAIRS 1
#elif defined(HT_MODEL_PAIRS)  // the instruction as plain C++, for tests on CPUs without it
#define HT_BF16_PAIRS 1
#endif

namespace ht {

// Two bf16 of neighbouring k.
struct bf16x2 {
  bf16 even, odd;
};

template <>
inline constexpr int64_t kElementsAhead<bf16x2> = kAhead / 2;
template <>
inline constexpr int64_t kDepthOf<bf16x2> = 2;

// An element of a panel: how many k it has, and its type.
template <class T>
struct PackedOf {
  using type = T;
  static constexpr int64_t ks = 1;
};
template <>
struct PackedOf<bf16> {
  using type = bf16x2;
  static constexpr int64_t ks = 2;
};
template <class T>
using Packed = typename PackedOf<T>::type;

// Rows of a panel for k elements.
template <class T>
constexpr int64_t packed_rows(int64_t k) {
  return (k + PackedOf<T>::ks - 1) / PackedOf<T>::ks;
}

// k of T that parts of a k block are multiples of, a row of a tile where tiles multiply T.
template <class T>
constexpr int64_t kGrainOf = kGrain;

// Whether tiles multiply T, where there are tiles (tiles.h).
template <class T>
constexpr bool kTiled = same<T, bf16>;

// What rows of A are staged as.
template <class T>
struct StagedOf {
  using type = float;
};
#if defined(HT_BF16_PAIRS)
template <>
struct StagedOf<bf16> {
  using type = bf16x2;
};
#endif
template <class T>
using Staged = typename StagedOf<T>::type;

// Whether panels of B that more than a few rows of T are multiplied with are made float first: two instructions for each
// vector of B, which a tile of few rows does not outweigh.
template <class T, class B>
constexpr bool widens = !same<B, float> && same<Staged<T>, float>;
constexpr int64_t kWidenRows = 4 * kMaxRows;

// Whether rows of A are read where they lie, a pair of neighbours at a time.
template <class T>
constexpr bool reads_pairs_in_place = same<Staged<T>, bf16x2>;

// The same of four neighbours (int8.h), in rows of whole fours.
template <class T>
constexpr bool kReadsQuads = false;

// numel elements as another type: what a load and a store make of them.
template <class To, class From>
HT_INLINE void copy_row(To* to, const From* from, int64_t numel) {
  if constexpr (same<To, From>) {
    __builtin_memcpy(to, from, static_cast<size_t>(numel) * sizeof(To));
  } else {
    int64_t i = 0;
    for (; i + W <= numel; i += W) store(to + i, load(from + i));
    if (i < numel) store_n(to + i, load_n(from + i, static_cast<int>(numel - i)), static_cast<int>(numel - i));
  }
}

// kc elements of a row of A, staged; a pair past the last element has a zero.
template <class T>
HT_INLINE void stage_row(float* to, const T* from, int64_t kc) {
  copy_row(to, from, kc);
  if (PackedOf<T>::ks == 2 && kc % 2 != 0) to[kc] = 0.0f;
}

namespace detail {

HT_INLINE vec<uint32_t> load_pairs(const bf16x2* p) {
  vec<uint32_t> v;
  __builtin_memcpy(&v, p, sizeof(v));
  return v;
}

// n neighbouring bf16, of which further ones are zero.
HT_INLINE vec<uint32_t> load_pairs_n(const bf16* p, int64_t n) {
  if (n >= 2 * W) return load_pairs(reinterpret_cast<const bf16x2*>(p));
#if defined(HT_AVX512)
  return bit_copy<vec<uint32_t>>(_mm512_maskz_loadu_epi16((uint32_t{1} << n) - 1, p));
#else
  bf16 lanes[2 * W] = {};
  for (int64_t i = 0; i < n; i++) lanes[i] = p[i];
  return load_pairs(reinterpret_cast<const bf16x2*>(lanes));
#endif
}

// W columns of a pair of k, each as float.
struct WidePair {
  vec<float> even, odd;
};
HT_INLINE WidePair load_wide(const bf16x2* p) {
  const vec<uint32_t> u = load_pairs(p);
  return {bit_copy<vec<float>>(u << 16), bit_copy<vec<float>>(u & 0xffff0000u)};
}

}  // namespace detail

// A pair past the last element has a zero, as above. Rows are often a few pairs: calling memcpy would take longer.
HT_INLINE void stage_row(bf16x2* to, const bf16* from, int64_t kc) {
  for (int64_t i = 0; i < kc; i += 2 * W) {
    const int pairs = static_cast<int>(least(W, (kc - i + 1) / 2));
    detail::store_raw_n(reinterpret_cast<uint32_t*>(to + i / 2), detail::load_pairs_n(from + i, kc - i), pairs);
  }
}

// Rows of a panel as float: kc rows of kPanel.
template <class T>
HT_INLINE void widen_panel(float* to, const T* from, int64_t kc) {
  copy_row(to, from, kc * kPanel);
}
HT_INLINE void widen_panel(float* to, const bf16x2* from, int64_t kc) {
  for (int64_t k = 0; k < kc; k += 2) {
    for (int v = 0; v < kPanel; v += W) {
      const detail::WidePair b = detail::load_wide(from + k / 2 * kPanel + v);
      store(to + k * kPanel + v, b.even);
      if (k + 1 < kc) store(to + (k + 1) * kPanel + v, b.odd);
    }
  }
}

// A pair of k by FMA, one k behind the other.
template <int MR, int NV>
HT_INLINE void multiply_step(Sums<MR, NV>& sums, const float* const (&a)[MR], int64_t pair, const bf16x2* b) {
  detail::WidePair bv[NV];
  HT_UNROLL_ALL
  for (int v = 0; v < NV; v++) bv[v] = detail::load_wide(b + v * W);
  HT_UNROLL_ALL
  for (int r = 0; r < MR; r++)
    HT_UNROLL_ALL
    for (int v = 0; v < NV; v++) sums.acc[r][v] = fma(bcast(a[r][2 * pair]), bv[v].even, sums.acc[r][v]);
  HT_UNROLL_ALL
  for (int r = 0; r < MR; r++)
    HT_UNROLL_ALL
    for (int v = 0; v < NV; v++) sums.acc[r][v] = fma(bcast(a[r][2 * pair + 1]), bv[v].odd, sums.acc[r][v]);
}

#if defined(HT_BF16_PAIRS)
namespace detail {

// acc + a.even * b.even + a.odd * b.odd in each lane, the pair `a` the same in all.
#if defined(HT_MODEL_PAIRS)
// Intel SDM, VDPBF16PS: the odd product first, each added by an FMA. Subnormal numbers are zero there.
HT_INLINE vec<float> flushed(vec<float> x) {
  const vec<uint32_t> bits = bit_copy<vec<uint32_t>>(x);
  const vec<uint32_t> zero = bits & 0x80000000u;
  return bit_copy<vec<float>>((bits & 0x7f800000u) == 0u ? zero : bits);
}
HT_INLINE vec<float> dot_pair(vec<float> acc, vec<uint32_t> a, vec<uint32_t> b) {
  const auto number = [](vec<uint32_t> bits) { return flushed(bit_copy<vec<float>>(bits)); };
  acc = flushed(fma(number(a & 0xffff0000u), number(b & 0xffff0000u), acc));
  return flushed(fma(number(a << 16), number(b << 16), acc));
}
#elif defined(HT_AVX512)
HT_INLINE vec<float> dot_pair(vec<float> acc, vec<uint32_t> a, vec<uint32_t> b) {
  return bit_copy<vec<float>>(
      _mm512_dpbf16_ps(bit_copy<__m512>(acc), bit_copy<__m512bh>(a), bit_copy<__m512bh>(b)));
}
#else
HT_INLINE vec<float> dot_pair(vec<float> acc, vec<uint32_t> a, vec<uint32_t> b) {
  return bit_copy<vec<float>>(
      vbfdotq_f32(bit_copy<float32x4_t>(acc), bit_copy<bfloat16x8_t>(a), bit_copy<bfloat16x8_t>(b)));
}
#endif

// A pair in all lanes of which only the even element is read.
HT_INLINE vec<uint32_t> bcast_even(const bf16x2* p) {
#if defined(HT_AVX512)
  return bit_copy<vec<uint32_t>>(_mm512_maskz_broadcastw_epi16(0x55555555u, _mm_loadu_si16(p)));
#else
  return bcast(static_cast<uint32_t>(p->even.bits));
#endif
}

}  // namespace detail

// The same by instructions that multiply pairs.
template <int MR, int NV>
HT_INLINE void multiply_step(Sums<MR, NV>& sums, const bf16x2* const (&a)[MR], int64_t pair, const bf16x2* b) {
  vec<uint32_t> bv[NV];
  HT_UNROLL_ALL
  for (int v = 0; v < NV; v++) bv[v] = detail::load_pairs(b + v * W);
  HT_UNROLL_ALL
  for (int r = 0; r < MR; r++) {
    const vec<uint32_t> x = bcast(bit_copy<uint32_t>(a[r][pair]));
    HT_UNROLL_ALL
    for (int v = 0; v < NV; v++) sums.acc[r][v] = detail::dot_pair(sums.acc[r][v], x, bv[v]);
  }
}

// The same of a pair of which rows have the even element only: what lies behind it is not theirs, and may be no number.
template <int MR, int NV>
HT_INLINE void multiply_half_pair(Sums<MR, NV>& sums, const bf16x2* const (&a)[MR], int64_t pair, const bf16x2* b) {
  vec<uint32_t> bv[NV];
  HT_UNROLL_ALL
  for (int v = 0; v < NV; v++) bv[v] = detail::load_pairs(b + v * W);
  HT_UNROLL_ALL
  for (int r = 0; r < MR; r++) {
    const vec<uint32_t> x = detail::bcast_even(a[r] + pair);
    HT_UNROLL_ALL
    for (int v = 0; v < NV; v++) sums.acc[r][v] = detail::dot_pair(sums.acc[r][v], x, bv[v]);
  }
}
#endif

// As micro_tile, for panels of 16-bit numbers. Defined in half.cpp, once for a library.
void micro_tile(int mr, const MicroTaps& s, const f16* b, float* tile, int64_t ld, int columns, bool resume);
void micro_tile(int mr, const MicroTaps& s, const bf16* b, float* tile, int64_t ld, int columns, bool resume);
void micro_tile(int mr, const TapsOf<Staged<bf16>>& s, const bf16x2* b, float* tile, int64_t ld, int columns,
                bool resume);

}  // namespace ht

#endif  // HARDTACK_TEMPLATES_HALF_H
