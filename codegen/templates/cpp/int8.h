// Products of int8, summed in int32: exact, as long as a sum has less than 2^17 terms; beyond that modulo 2^32.
//
// One packed layout serves all CPUs, four neighbouring k side by side, as the instructions want it that add up four products:
//
//   packed[panel][k / 4][column][k % 4], zero where k is past the last one
//
// Rows of A are staged in the worker's workspace in what the instruction multiplies with a lane of four k:
//   VPDPBUSD     four bytes without a sign, of which each is 128 too much: the sums are 128 times a column's own sum too large,
//                which a further row, of zeros, has, too, and which is subtracted
//   TDPBSSD      by tiles of AMX, read where they lie or copied as tiles want them, as bf16 is (tiles.h)
//   SDOT         four bytes
//   VPMADDWD     two pairs of 16 bits, the even k and the odd ones: a panel's bytes are made 16 bits by shifts
//   none         four int32
//
// Where rows are known to be codes from 0 to 127 (code7), CPUs of VPMADDWD read them where they lie, four bytes at a time, by
// VPMADDUBSW: a pair of products is 2 * 127 * 128 at most, and does not saturate. It takes three operations for 32 products in
// place of four and a half, and nothing is staged. In a copy that a convolution has made of its image any row is read so, also
// what follows one that ends within four: its weights are zero there.
#ifndef HARDTACK_TEMPLATES_INT8_H
#define HARDTACK_TEMPLATES_INT8_H

#include "half.h"
#include "micro.h"
#include "operands.h"
#include "tiles.h"

// HT_MODEL_...: the instruction as plain C++, for tests on CPUs without it.
#if defined(HT_MODEL_UNSIGNED_QUADS) || (defined(__AVX512VNNI__) && defined(HT_AVX512)) || \
    (defined(__AVXVNNI__) && defined(HT_AVX2))
#define HT_UNSIGNED_QUADS 1
#elif defined(HT_MODEL_SIGNED_QUADS) || (defined(HT_NEON) && defined(__ARM_FEATURE_DOTPROD))
#define HT_SIGNED_QUADS 1
#elif defined(HT_AVX512) || defined(HT_AVX2)
#define HT_WORD_PAIRS 1
#endif

#if defined(HT_TILES) && (defined(HT_MODEL_TILES) || defined(__AMX_INT8__))
#define HT_INT8_TILES 1
#endif

namespace ht {

// Four int8 of neighbouring k.
struct i8x4 {
  int8_t k[4];
};

template <>
inline constexpr int64_t kElementsAhead<i8x4> = kAhead / 4;

template <>
struct PackedOf<int8_t> {
  using type = i8x4;
  static constexpr int64_t ks = 4;
};
template <>
inline constexpr int64_t kDepthOf<i8x4> = 4;

// What a row of A has for four k: kQuadParts words, each of which is multiplied with a part of a lane of B.
#if defined(HT_UNSIGNED_QUADS) || defined(HT_SIGNED_QUADS)
constexpr int kQuadParts = 1;
#elif defined(HT_WORD_PAIRS)
constexpr int kQuadParts = 2;
#else
constexpr int kQuadParts = 4;
#endif
struct StagedQuad {
  int32_t parts[kQuadParts];
};
template <>
inline constexpr int64_t kGrainOf<int8_t> = 2 * kGrain;
#if defined(HT_INT8_TILES)
template <>
inline constexpr bool kTiled<int8_t> = true;
#endif
template <>
struct StagedOf<int8_t> {
  using type = StagedQuad;
};
template <>
struct SumOf<int8_t> {
  using type = int32_t;
};

// A code from 0 to 127.
#if defined(HT_WORD_PAIRS) && !defined(HT_INT8_TILES)
#define HT_CODES7 1
struct code7 {
  int8_t code;
};
// Four of neighbouring k.
struct Quad7 {
  code7 k[4];
};
template <>
struct PackedOf<code7> : PackedOf<int8_t> {};
template <>
inline constexpr int64_t kGrainOf<code7> = kGrainOf<int8_t>;
template <>
struct StagedOf<code7> {
  using type = Quad7;
};
template <>
struct SumOf<code7> : SumOf<int8_t> {};
template <>
inline constexpr bool kReadsQuads<code7> = true;
#else
using code7 = int8_t;  // other instructions gain nothing
#endif

namespace detail {

constexpr int kQuadsAtOnce = 4;
using Bytes16 = VecOf<int8_t, 4 * kQuadsAtOnce>::type;

// Four quads of a row of A.
HT_INLINE void stage_quads(StagedQuad* to, Bytes16 from) {
#if defined(HT_UNSIGNED_QUADS)
  const auto staged = from ^ static_cast<int8_t>(-128);
#elif defined(HT_SIGNED_QUADS)
  const auto staged = from;
#elif defined(HT_WORD_PAIRS)
  const auto wide = __builtin_convertvector(from, VecOf<int16_t, 16>::type);
  const auto staged = __builtin_shufflevector(wide, wide, 0, 2, 1, 3, 4, 6, 5, 7, 8, 10, 9, 11, 12, 14, 13, 15);
#else
  const auto staged = __builtin_convertvector(from, VecOf<int32_t, 16>::type);
#endif
  static_assert(sizeof(staged) == kQuadsAtOnce * sizeof(StagedQuad), "quads lie side by side");
  __builtin_memcpy(to, &staged, sizeof(staged));
}

// W columns of a quad.
HT_INLINE vec<int32_t> load_quads(const i8x4* p) {
  vec<int32_t> v;
  __builtin_memcpy(&v, p, sizeof(v));
  return v;
}

// What part p of a row's quad is multiplied with.
HT_INLINE vec<int32_t> quad_part(vec<int32_t> quads, int p) {
#if defined(HT_UNSIGNED_QUADS) || defined(HT_SIGNED_QUADS)
  static_cast<void>(p);
  return quads;
#elif defined(HT_WORD_PAIRS)
  using Words = typename VecOf<int16_t, 2 * W>::type;
  const Words words = bit_copy<Words>(quads);
  return bit_copy<vec<int32_t>>(p == 0 ? (words << 8) >> 8 : words >> 8);
#else
  return (quads << (24 - 8 * p)) >> 24;
#endif
}

// acc + the products of a row's part, the same in all lanes, and a part of B.
#if defined(HT_MODEL_UNSIGNED_QUADS) || defined(HT_MODEL_SIGNED_QUADS)
// Intel SDM, VPDPBUSD: bytes of the first operand have no sign, those of the second one have; nothing saturates.
// Arm ARM, SDOT: all bytes have one.
HT_INLINE vec<int32_t> add_products(vec<int32_t> acc, vec<int32_t> a, vec<int32_t> b) {
  for (int p = 0; p < 32; p += 8) {
#if defined(HT_MODEL_UNSIGNED_QUADS)
    const vec<int32_t> x = (a >> p) & 255;
#else
    const vec<int32_t> x = (a << (24 - p)) >> 24;
#endif
    acc += x * ((b << (24 - p)) >> 24);
  }
  return acc;
}
#elif defined(HT_UNSIGNED_QUADS) && defined(HT_AVX512)
HT_INLINE vec<int32_t> add_products(vec<int32_t> acc, vec<int32_t> a, vec<int32_t> b) {
  return bit_copy<vec<int32_t>>(
      _mm512_dpbusd_epi32(bit_copy<__m512i>(acc), bit_copy<__m512i>(a), bit_copy<__m512i>(b)));
}
#elif defined(HT_UNSIGNED_QUADS)
HT_INLINE vec<int32_t> add_products(vec<int32_t> acc, vec<int32_t> a, vec<int32_t> b) {
  return bit_copy<vec<int32_t>>(
      _mm256_dpbusd_avx_epi32(bit_copy<__m256i>(acc), bit_copy<__m256i>(a), bit_copy<__m256i>(b)));
}
#elif defined(HT_SIGNED_QUADS)
HT_INLINE vec<int32_t> add_products(vec<int32_t> acc, vec<int32_t> a, vec<int32_t> b) {
  return bit_copy<vec<int32_t>>(
      vdotq_s32(bit_copy<int32x4_t>(acc), bit_copy<int8x16_t>(a), bit_copy<int8x16_t>(b)));
}
#elif defined(HT_AVX512)
HT_INLINE vec<int32_t> add_products(vec<int32_t> acc, vec<int32_t> a, vec<int32_t> b) {
  return acc + bit_copy<vec<int32_t>>(_mm512_madd_epi16(bit_copy<__m512i>(a), bit_copy<__m512i>(b)));
}
#elif defined(HT_AVX2)
HT_INLINE vec<int32_t> add_products(vec<int32_t> acc, vec<int32_t> a, vec<int32_t> b) {
  return acc + bit_copy<vec<int32_t>>(_mm256_madd_epi16(bit_copy<__m256i>(a), bit_copy<__m256i>(b)));
}
#else
HT_INLINE vec<int32_t> add_products(vec<int32_t> acc, vec<int32_t> a, vec<int32_t> b) { return acc + a * b; }
#endif

// A sum as it is, in the order of the text: compilers add up both parts' products first, and there are no registers for these.
HT_INLINE vec<int32_t> kept(vec<int32_t> sum) {
#if defined(HT_WORD_PAIRS)
  asm volatile("" : "+v"(sum));
#endif
  return sum;
}

}  // namespace detail

#if defined(HT_UNSIGNED_QUADS)
// With the sums of a row of zeros, by which all are too large.
template <int MR, int NV>
struct Sums<MR, NV, int32_t> : SumsOf<MR, NV, int32_t> {
  vec<int32_t> zero[NV] = {};

  HT_MEMBER void complete() {
    HT_UNROLL_ALL
    for (int r = 0; r < MR; r++)
      HT_UNROLL_ALL
      for (int v = 0; v < NV; v++) this->acc[r][v] -= zero[v];
  }
};
#endif

namespace detail {

// 1 to 8 bytes as the low ones of a word, the others 0: two parts that overlap, for a loop would take longer than the products.
HT_INLINE uint64_t load_bytes(const int8_t* p, int64_t n) {
  if (n >= 4) {
    uint32_t low, high;
    __builtin_memcpy(&low, p, 4);
    __builtin_memcpy(&high, p + n - 4, 4);
    return low | static_cast<uint64_t>(high) << (8 * (n - 4));
  }
  const auto at = [&](int64_t i) { return static_cast<uint64_t>(static_cast<uint8_t>(p[i])) << (8 * i); };
  return at(0) | at(n / 2) | at(n - 1);
}

}  // namespace detail

// kc elements of a row of A; behind the last one there are zeros.
HT_INLINE void stage_row(StagedQuad* to, const int8_t* from, int64_t kc) {
  constexpr int64_t step = 4 * detail::kQuadsAtOnce;
  detail::Bytes16 bytes;
  int64_t k = 0;
  for (; k + step <= kc; k += step, to += detail::kQuadsAtOnce) {
    __builtin_memcpy(&bytes, from + k, sizeof(bytes));
    detail::stage_quads(to, bytes);
  }
  const int64_t rest = kc - k;
  if (rest == 0) return;
  if (k > 0 && rest % 4 == 0) {  // whole quads: some are staged once more
    __builtin_memcpy(&bytes, from + kc - step, sizeof(bytes));
    return detail::stage_quads(to + rest / 4 - detail::kQuadsAtOnce, bytes);
  }
  using Halves = VecOf<uint64_t, 2>::type;  // put together in registers: bytes in memory that were stored apart are slow to load
  const Halves last = {detail::load_bytes(from + k, least(rest, 8)),
                       rest > 8 ? detail::load_bytes(from + k + 8, rest - 8) : 0};
  StagedQuad quads[detail::kQuadsAtOnce];
  bytes = bit_copy<detail::Bytes16>(last);
  detail::stage_quads(quads, bytes);
  for (int64_t i = 0; 4 * i < rest; i++) to[i] = quads[i];
}

#if defined(HT_CODES7)
HT_INLINE void stage_row(Quad7* to, const code7* from, int64_t kc) {
  const auto bytes = reinterpret_cast<const int8_t*>(from);
  int64_t k = 0;
  for (; k + 8 <= kc; k += 8) __builtin_memcpy(to + k / 4, bytes + k, 8);
  if (k == kc) return;
  const uint64_t last = detail::load_bytes(bytes + k, kc - k);
  for (int64_t i = 0; k + 4 * i < kc; i++) to[k / 4 + i] = bit_copy<Quad7>(static_cast<uint32_t>(last >> (32 * i)));
}

namespace detail {

// The sums of four products: a has no sign, those of W columns at b have one.
HT_INLINE vec<int32_t> sum_quads(vec<int32_t> a, const i8x4* b) {
#if defined(HT_AVX512)
  const __m512i pairs = _mm512_maddubs_epi16(bit_copy<__m512i>(a), bit_copy<__m512i>(load_quads(b)));
  return bit_copy<vec<int32_t>>(_mm512_madd_epi16(pairs, _mm512_set1_epi16(1)));
#else
  __m256i pairs;  // B is read from memory for each row: there are no registers to keep it in
  asm("vpmaddubsw %2, %1, %0" : "=x"(pairs) : "x"(a), "m"(*reinterpret_cast<const char(*)[sizeof(a)]>(b)));
  return bit_copy<vec<int32_t>>(_mm256_madd_epi16(pairs, _mm256_set1_epi16(1)));
#endif
}

}  // namespace detail

template <int MR, int NV>
HT_INLINE void multiply_step(Sums<MR, NV, int32_t>& sums, const Quad7* const (&a)[MR], int64_t quad, const i8x4* b) {
  HT_UNROLL_ALL
  for (int r = 0; r < MR; r++) {
    const vec<int32_t> x = bcast(bit_copy<int32_t>(a[r][quad]));
    HT_UNROLL_ALL
    for (int v = 0; v < NV; v++) sums.acc[r][v] = detail::kept(sums.acc[r][v] + detail::sum_quads(x, b + v * W));
  }
}

// As micro_tile of float. Defined in int8.cpp, once for a library.
void micro_tile(int mr, const TapsOf<Quad7>& s, const i8x4* b, int32_t* tile, int64_t ld, int columns, bool resume);

// A source of int8 whose rows are such codes.
template <class Source>
struct Codes7 : Source {
  using Element = code7;
  explicit Codes7(const Source& source) : Source(source) {}
  HT_MEMBER void rows(typename Source::Cursor& cursor, int count, const code7** out) const {
    Source::rows(cursor, count, reinterpret_cast<const int8_t**>(out));
  }
};
template <class Source>
struct ReadAs<code7, Source> {
  using type = Codes7<Source>;
};
#endif

// A quad of k.
template <int MR, int NV>
HT_INLINE void multiply_step(Sums<MR, NV, int32_t>& sums, const StagedQuad* const (&a)[MR], int64_t quad,
                             const i8x4* b) {
  HT_UNROLL_ALL
  for (int p = 0; p < kQuadParts; p++) {
    vec<int32_t> bv[NV];
    HT_UNROLL_ALL
    for (int v = 0; v < NV; v++) bv[v] = detail::quad_part(detail::load_quads(b + v * W), p);
#if defined(HT_WORD_PAIRS)
    asm("" : "+r"(b));  // loaded again for the other part: there are no registers to keep it in
#endif
    HT_UNROLL_ALL
    for (int r = 0; r < MR; r++) {
      const vec<int32_t> x = bcast(a[r][quad].parts[p]);
      HT_UNROLL_ALL
      for (int v = 0; v < NV; v++) sums.acc[r][v] = detail::kept(detail::add_products(sums.acc[r][v], x, bv[v]));
    }
#if defined(HT_UNSIGNED_QUADS)
    const vec<int32_t> none = bcast(static_cast<int32_t>(0x80808080u));
    HT_UNROLL_ALL
    for (int v = 0; v < NV; v++) sums.zero[v] = detail::add_products(sums.zero[v], none, bv[v]);
#endif
  }
}

// As pack_panel of float: k rows of `columns` columns in quads, zero where there is no k or no column.
inline void pack_panel(i8x4* to, const int8_t* from, int64_t row_stride, int64_t column_stride, int64_t k,
                       int64_t columns) {
  const int64_t rows = packed_rows<int8_t>(k);
  __builtin_memset(to, 0, static_cast<size_t>(rows * kPanel) * sizeof(i8x4));
  if (row_stride == 1) {
    for (int64_t c = 0; c < columns; c++)
      for (int64_t i = 0; i < k; i++) to[i / 4 * kPanel + c].k[i % 4] = from[c * column_stride + i];
    return;
  }
  for (int64_t i = 0; i < k; i++)
    for (int64_t c = 0; c < columns; c++)
      to[i / 4 * kPanel + c].k[i % 4] = from[i * row_stride + c * column_stride];
}

#if defined(HT_INT8_TILES)
// A row of a tile from the n elements that are left of a row of A.
HT_INLINE void stage_grain(i8x4* to, const int8_t* from, int64_t n) {
  __builtin_memset(to, 0, 64);
  __builtin_memcpy(to, from, static_cast<size_t>(least(n, 64)));
}

// As tile_block of bf16. Defined in int8.cpp.
void tile_block(Tiles& tiles, int count, const TapRows* rows, const TileTaps& s, const i8x4* panel, int32_t* sums,
                int64_t ld, int columns, bool resume, Ahead& ahead);
#endif

// As micro_tile of float. Defined in int8.cpp, once for a library.
void micro_tile(int mr, const TapsOf<StagedQuad>& s, const i8x4* b, int32_t* tile, int64_t ld, int columns,
                bool resume);

}  // namespace ht

#endif  // HARDTACK_TEMPLATES_INT8_H
