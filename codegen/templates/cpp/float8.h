// Conversions of floats of 8 bits, which are bytes in memory and in registers: e4m3 is torch's float8_e4m3fn, without
// infinities, e5m2 is float8_e5m2, e8m0 float8_e8m0fnu, 2^(code - 127) and one NaN; e2m1 is float4_e2m1, a code in a byte. All in integers, exact sums of floats and f16, so the same numbers on every CPU.
#ifndef HARDTACK_TEMPLATES_FLOAT8_H
#define HARDTACK_TEMPLATES_FLOAT8_H

#include "simd.h"

namespace ht {

namespace detail {

HT_INLINE vec<uint8_t> signed_code(vec<uint32_t> code, vec<uint32_t> bits) {
  return __builtin_convertvector(code | ((bits >> 24) & 0x80u), vec<uint8_t>);
}

// How many steps a float is, where those of the sum with `beside` are as large: the sum is rounded to them.
HT_INLINE vec<uint32_t> count_of_steps(vec<uint32_t> bits, float beside) {
  const vec<float> whole = bcast<float>(beside);
  return bit_copy<vec<uint32_t>>(bit_copy<vec<float>>(bits) + whole) - bit_copy<vec<uint32_t>>(whole);
}

}  // namespace detail

// Both are f16 but for the place of the exponent, whose conversion also knows its subnormals.
HT_INLINE vec<float> float_of_e4m3(vec<uint16_t> code) {
  const vec<uint16_t> sign = code & bcast<uint16_t>(0x80), size = code & bcast<uint16_t>(0x7f);
  const vec<uint16_t> nan = bcast<uint16_t>(0x7e00), number = size << 7;
  const vec<uint16_t> bits = ((size == bcast<uint16_t>(0x7f)) ? nan : number) | (sign << 8);
  return detail::widen_f16(bits) * 0x1p8f;
}
// A code of 4 bits, whose exponents begin 6 higher than those of e4m3.
HT_INLINE vec<float> float_of_e2m1(vec<uint16_t> code) {
  const vec<uint16_t> sign = code & bcast<uint16_t>(8), size = code & bcast<uint16_t>(7);
  return float_of_e4m3((sign << 4) | (size << 2)) * 0x1p6f;
}
HT_INLINE vec<float> float_of_e5m2(vec<uint16_t> code) { return detail::widen_f16(code << 8); }

HT_INLINE vec<float> float_of_e4m3(vec<uint8_t> v) { return float_of_e4m3(__builtin_convertvector(v, vec<uint16_t>)); }
HT_INLINE vec<float> float_of_e5m2(vec<uint8_t> v) { return float_of_e5m2(__builtin_convertvector(v, vec<uint16_t>)); }

// The nearest, ties to even; what lies beyond the largest number gives that, as torch 2.13 has it.
HT_INLINE vec<uint8_t> e4m3_of_float(vec<float> v) {
  const vec<uint32_t> bits = bit_copy<vec<uint32_t>>(v), size = bits & 0x7fffffffu;
  const vec<uint32_t> normal = (size + (0x7ffffu - (120u << 23)) + ((size >> 20) & 1u)) >> 20;
  const vec<uint32_t> largest = bcast<uint32_t>(0x7eu), nan = bcast<uint32_t>(0x7fu);
  const vec<uint32_t> within = (normal < 0x7eu) ? normal : largest;
  const vec<uint32_t> code = (size < (121u << 23)) ? detail::count_of_steps(size, 0x1p14f) : within;
  return detail::signed_code((size > 0x7f800000u) ? nan : code, bits);
}

// The nearest, ties to even.
HT_INLINE vec<uint8_t> e5m2_of_float(vec<float> v) {
  const vec<uint32_t> bits = bit_copy<vec<uint32_t>>(v), size = bits & 0x7fffffffu;
  const vec<uint32_t> normal = (size + (0xfffffu - (112u << 23)) + ((size >> 21) & 1u)) >> 21;
  const vec<uint32_t> infinity = bcast<uint32_t>(0x7cu), nan = bcast<uint32_t>(0x7fu);
  const vec<uint32_t> within = (normal < 0x7cu) ? normal : infinity;
  const vec<uint32_t> code = (size < (113u << 23)) ? detail::count_of_steps(size, 0x1p7f) : within;
  return detail::signed_code((size > 0x7f800000u) ? nan : code, bits);
}

// The least code is a subnormal float.
HT_INLINE vec<float> float_of_e8m0(vec<uint32_t> code) {
  const vec<uint32_t> least = bcast<uint32_t>(0x00400000u), nan = bcast<uint32_t>(0x7fc00000u), number = code << 23;
  const vec<uint32_t> known = (code == bcast<uint32_t>(0u)) ? least : number;
  return bit_copy<vec<float>>((code == bcast<uint32_t>(0xffu)) ? nan : known);
}
HT_INLINE vec<float> float_of_e8m0(vec<uint8_t> v) { return float_of_e8m0(__builtin_convertvector(v, vec<uint32_t>)); }

// The nearest of the size, ties to the larger; that of 0 is the least, of infinity NaN.
HT_INLINE vec<uint8_t> e8m0_of_float(vec<float> v) {
  const vec<uint32_t> size = bit_copy<vec<uint32_t>>(v) & 0x7fffffffu, exponent = size >> 23, fraction = size & 0x7fffffu;
  // 2^-128 itself, half way between 0 and the least, is no number that is rounded up
  const vec<uint32_t> half = bcast<uint32_t>(0x400000u), beyond = half + 1u;
  const vec<uint32_t> from = (exponent == bcast<uint32_t>(0u)) ? beyond : half;
  const vec<uint32_t> nan = bcast<uint32_t>(0xffu), up = exponent + 1u;
  const vec<uint32_t> code = (fraction >= from) ? up : exponent;
  return __builtin_convertvector((exponent == nan) ? nan : code, vec<uint8_t>);
}

}  // namespace ht

#endif  // HARDTACK_TEMPLATES_FLOAT8_H
