// Codes of 8 and 4 bits as panels of quantized.h have them, and the numbers that they stand for.
//
// A panel is lines of kPanel bytes, a byte for each column: one k of codes of 8 bits, two k of nibbles, an even one in the
// low halves and the next one in the high halves.
#ifndef HARDTACK_TEMPLATES_CODES_H
#define HARDTACK_TEMPLATES_CODES_H

#include "float8.h"
#include "micro.h"

namespace ht {

// Codes of 4 bits.
struct SignedNibbles {  // -8 to 7, stored with 8 added
  uint8_t codes;
};
struct UnsignedNibbles {  // 0 to 15
  uint8_t codes;
};
struct E2m1Nibbles {  // float4_e2m1: a sign, two bits of an exponent, one of a fraction
  uint8_t codes;
};

// Codes that are floats of 8 bits.
struct E4m3 {
  uint8_t code;
};
struct E5m2 {
  uint8_t code;
};

// Numbers of tables that are powers of 2, float8_e8m0fnu.
struct E8m0 {
  uint8_t code;
};

namespace detail {

template <class Code>
constexpr bool is_float4 = same<Code, E2m1Nibbles>;
template <class Code>
constexpr bool is_nibbles = same<Code, SignedNibbles> || same<Code, UnsignedNibbles> || is_float4<Code>;
template <class Code>
constexpr bool is_float8 = same<Code, E4m3> || same<Code, E5m2>;

template <class Code>
constexpr int kLineRows = is_nibbles<Code> ? 2 : 1;  // k of a line

// Of integers.
template <class Code>
constexpr int kLeastCode = same<Code, int8_t> ? -128 : (same<Code, SignedNibbles> ? -8 : 0);
template <class Code>
constexpr int kMostCode = kLeastCode<Code> + (is_nibbles<Code> ? 15 : 255);

constexpr int64_t kCodesAhead = 4096;  // bytes of codes that are asked for ahead of their use

template <class Code>
HT_INLINE void prefetch_codes(const Code* codes) {
  __builtin_prefetch(reinterpret_cast<const char*>(codes) + kCodesAhead);
}

// W bytes as integers. The conversion of vectors, which clang makes one instruction of, takes g++ a dozen.
template <class T>
HT_INLINE vec<int32_t> load_bytes(const T* p) {
  static_assert(sizeof(T) == 1, "bytes");
  constexpr bool is_signed = same<T, int8_t>;
#if defined(HT_AVX512)
  const __m128i bytes = bit_copy<__m128i>(load_raw(p));
  return bit_copy<vec<int32_t>>(is_signed ? _mm512_cvtepi8_epi32(bytes) : _mm512_cvtepu8_epi32(bytes));
#elif defined(HT_AVX2)
  const __m128i bytes = _mm_loadl_epi64(reinterpret_cast<const __m128i*>(p));
  return bit_copy<vec<int32_t>>(is_signed ? _mm256_cvtepi8_epi32(bytes) : _mm256_cvtepu8_epi32(bytes));
#elif defined(HT_NEON)
  const uint64_t bytes = bit_copy<uint32_t>(load_raw(p));
  if constexpr (is_signed)
    return bit_copy<vec<int32_t>>(vmovl_s16(vget_low_s16(vmovl_s8(vcreate_s8(bytes)))));
  else
    return bit_copy<vec<int32_t>>(vmovl_u16(vget_low_u16(vmovl_u8(vcreate_u8(bytes)))));
#else
  return __builtin_convertvector(load_raw(p), vec<int32_t>);
#endif
}

// The same in 16 bits.
HT_INLINE vec<uint16_t> load_short_bytes(const uint8_t* p) {
#if defined(HT_AVX512)
  return bit_copy<vec<uint16_t>>(_mm256_cvtepu8_epi16(bit_copy<__m128i>(load_raw(p))));
#elif defined(HT_AVX2)
  return bit_copy<vec<uint16_t>>(_mm_cvtepu8_epi16(_mm_loadl_epi64(reinterpret_cast<const __m128i*>(p))));
#elif defined(HT_NEON)
  return bit_copy<vec<uint16_t>>(vget_low_u16(vmovl_u8(vcreate_u8(bit_copy<uint32_t>(load_raw(p))))));
#else
  return __builtin_convertvector(load_raw(p), vec<uint16_t>);
#endif
}

// What stands in W columns of a line from `column` on, in its row `row`.
template <class Code>
HT_INLINE vec<float> load_codes(const Code* line, int row, int column) {
  if constexpr (is_nibbles<Code>) {
    const vec<int32_t> pairs = load_bytes(&line[column].codes);
    constexpr int zero = same<Code, SignedNibbles> ? 8 : 0;
#if defined(HT_AVX512)
    // The instruction reads the lowest four bits: one look-up for what would be a mask, a subtraction and a conversion.
    const vec<float> whole = __builtin_convertvector(iota<int32_t>() - zero, vec<float>);
    const vec<float> values = is_float4<Code> ? float_of_e2m1(iota<uint16_t>()) : whole;
    return bit_copy<vec<float>>(_mm512_permutexvar_ps(bit_copy<__m512i>(pairs >> (4 * row)), bit_copy<__m512>(values)));
#else
    const vec<int32_t> codes = (pairs >> (4 * row)) & 15;
    if constexpr (is_float4<Code>) return float_of_e2m1(__builtin_convertvector(codes, vec<uint16_t>));
    return __builtin_convertvector(codes - zero, vec<float>);
#endif
  } else if constexpr (same<Code, E4m3>) {
    return float_of_e4m3(load_short_bytes(&line[column].code));
  } else if constexpr (same<Code, E5m2>) {
    return float_of_e5m2(load_short_bytes(&line[column].code));
  } else {
    return __builtin_convertvector(load_bytes(line + column), vec<float>);
  }
}

// The numbers of NV vectors of columns of a line.
template <class Code, int NV>
struct Line {
  vec<float> of[kLineRows<Code>][NV];
};

#if defined(HT_AVX2)

// Whether a line's vectors have columns in an order of their own: the even ones of 0 to 7 and of 16 to 23, the odd ones of
// these, and the same of 8 to 15 and 24 to 31. So instructions leave them that work in halves of a register.
template <class Code, int NV>
constexpr bool kSpread = NV * W == kPanel && (is_nibbles<Code> || same<Code, E4m3>);

// Vectors of columns in their order, in that order.
HT_INLINE void spread(vec<float>* v) {
  const __m256i order = _mm256_setr_epi32(0, 2, 4, 6, 1, 3, 5, 7);
  __m256 x[4];
  HT_UNROLL_ALL
  for (int i = 0; i < 4; i++) x[i] = _mm256_permutevar8x32_ps(bit_copy<__m256>(v[i]), order);
  HT_UNROLL_ALL
  for (int i = 0; i < 2; i++) {
    v[2 * i] = bit_copy<vec<float>>(_mm256_permute2f128_ps(x[i], x[i + 2], 0x20));
    v[2 * i + 1] = bit_copy<vec<float>>(_mm256_permute2f128_ps(x[i], x[i + 2], 0x31));
  }
}
// And back.
HT_INLINE void unspread(vec<float>* v) {
  const __m256i order = _mm256_setr_epi32(0, 4, 1, 5, 2, 6, 3, 7);
  __m256 x[4];
  HT_UNROLL_ALL
  for (int i = 0; i < 4; i++) x[i] = bit_copy<__m256>(v[i]);
  HT_UNROLL_ALL
  for (int i = 0; i < 2; i++) {
    const __m256 low = _mm256_permute2f128_ps(x[2 * i], x[2 * i + 1], 0x20);
    const __m256 high = _mm256_permute2f128_ps(x[2 * i], x[2 * i + 1], 0x31);
    v[i] = bit_copy<vec<float>>(_mm256_permutevar8x32_ps(low, order));
    v[i + 2] = bit_copy<vec<float>>(_mm256_permutevar8x32_ps(high, order));
  }
}

// The bits of a whole number of up to 8 bits as bf16.
constexpr int bf16_bits(int x) {
  const int size = x < 0 ? -x : x;
  int exponent = 0;
  while (size >> (exponent + 1) != 0) exponent++;
  return size == 0 ? 0 : (x < 0 ? 0x8000 : 0) | (127 + exponent) << 7 | ((size << 7 >> exponent) & 0x7f);
}

// Those of a code of float4_e2m1: twice its number is whole.
constexpr int e2m1_bits(int code) {
  const int exponent = code >> 1 & 3, fraction = code & 1;
  const int twice = exponent == 0 ? fraction : (2 + fraction) << (exponent - 1);
  return (twice == 0 ? 0 : bf16_bits(twice) - 0x80) | (code & 8) << 12;
}

// A byte of the bf16 of each nibble, twice.
template <class Code, int kShift>
HT_INLINE __m256i nibble_bytes() {
#define HT_BYTE(i) static_cast<char>((is_float4<Code> ? e2m1_bits(i) : bf16_bits(kLeastCode<Code> + i)) >> kShift)
  return _mm256_broadcastsi128_si256(_mm_setr_epi8(
      HT_BYTE(0), HT_BYTE(1), HT_BYTE(2), HT_BYTE(3), HT_BYTE(4), HT_BYTE(5), HT_BYTE(6), HT_BYTE(7), HT_BYTE(8),
      HT_BYTE(9), HT_BYTE(10), HT_BYTE(11), HT_BYTE(12), HT_BYTE(13), HT_BYTE(14), HT_BYTE(15)));
#undef HT_BYTE
}

// 32 numbers whose bits are zero but for the two upper bytes.
HT_INLINE void join_bytes(__m256i lower, __m256i upper, vec<float>* to) {
  // Opaque, or clang blends with zeros in its place, which fewer units can.
  const vec<uint32_t> mask = opaque(bcast(0xffff0000u));
  const __m256i halves[2] = {_mm256_unpacklo_epi8(lower, upper), _mm256_unpackhi_epi8(lower, upper)};
  HT_UNROLL_ALL
  for (int h = 0; h < 2; h++) {
    const vec<uint32_t> two = bit_copy<vec<uint32_t>>(halves[h]);
    to[2 * h] = bit_copy<vec<float>>(two << 16);
    to[2 * h + 1] = bit_copy<vec<float>>(two & mask);
  }
}

HT_INLINE __m256i load_256(const void* line) { return _mm256_loadu_si256(static_cast<const __m256i*>(line)); }
// The low and the high halves of bytes.
HT_INLINE __m256i low_nibbles(__m256i bytes) { return _mm256_and_si256(bytes, _mm256_set1_epi8(15)); }
HT_INLINE __m256i high_nibbles(__m256i bytes) { return low_nibbles(_mm256_srli_epi16(bytes, 4)); }

// 64 nibbles by looking up both bytes of their bf16: 2.4 instructions for eight.
template <class Code>
HT_INLINE void load_nibbles(const Code* line, vec<float> (*to)[4]) {
  const __m256i pairs = load_256(line), rows[2] = {low_nibbles(pairs), high_nibbles(pairs)};
  HT_UNROLL_ALL
  for (int i = 0; i < 2; i++)
    join_bytes(_mm256_shuffle_epi8(nibble_bytes<Code, 0>(), rows[i]),
               _mm256_shuffle_epi8(nibble_bytes<Code, 8>(), rows[i]), to[i]);
}

// 32 of e4m3. Normal ones are floats of which the upper byte, sign and seven bits of the exponent, is looked up for the upper
// four bits of a code; the lower four follow. Among weights that are scaled to their largest the others are rare.
HT_INLINE void load_e4m3(const E4m3* line, vec<float>* to) {
  const __m256i codes = load_256(line);
  const __m256i sizes = _mm256_and_si256(codes, _mm256_set1_epi8(0x7f));
  const __m256i normal = _mm256_cmpgt_epi8(_mm256_add_epi8(sizes, _mm256_set1_epi8(1)), _mm256_set1_epi8(8));
  if (__builtin_expect(_mm256_movemask_epi8(normal) == -1, 1)) {
    const __m256i upper = _mm256_broadcastsi128_si256(
        _mm_setr_epi8(60, 61, 62, 63, 64, 65, 66, 67, -68, -67, -66, -65, -64, -63, -62, -61));
    const __m256i lower = _mm256_and_si256(_mm256_slli_epi16(codes, 4), _mm256_set1_epi8(static_cast<char>(0xf0)));
    join_bytes(lower, _mm256_shuffle_epi8(upper, high_nibbles(codes)), to);
  } else {
    HT_UNROLL_ALL
    for (int i = 0; i < 4; i++) to[i] = load_codes(line, 0, i * W);
    spread(to);
  }
}

#else

template <class Code, int NV>
constexpr bool kSpread = false;
HT_INLINE void spread(vec<float>*) {}
HT_INLINE void unspread(vec<float>*) {}

#endif

// NV vectors of a line, from column `column` on.
template <int NV, class Code>
HT_INLINE Line<Code, NV> load_line(const Code* line, int column) {
  Line<Code, NV> to;
#if defined(HT_AVX2)
  if constexpr (kSpread<Code, NV>) {
    if constexpr (is_nibbles<Code>) load_nibbles(line, to.of);
    else load_e4m3(line, to.of[0]);
    return to;
  }
#endif
  HT_UNROLL_ALL
  for (int i = 0; i < kLineRows<Code>; i++)
    HT_UNROLL_ALL
    for (int v = 0; v < NV; v++) to.of[i][v] = load_codes(line, i, column + v * W);
  return to;
}

}  // namespace detail

}  // namespace ht

#endif  // HARDTACK_TEMPLATES_CODES_H
