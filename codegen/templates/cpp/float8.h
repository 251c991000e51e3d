// Conversions of floats of 8 bits, which are bytes in memory and in registers: e4m3 is torch's float8_e4m3fn, without
// infinities, e5m2 is float8_e5m2. All in integers and exact sums of floats, so the same bits on every CPU.
#ifndef HARDTACK_TEMPLATES_FLOAT8_H
#define HARDTACK_TEMPLATES_FLOAT8_H

#include "simd.h"

namespace ht {

namespace detail {

HT_INLINE vec<float> signed_by(vec<uint32_t> bits, vec<uint32_t> code) {
  return bit_copy<vec<float>>(bits | ((code & 0x80u) << 24));
}

HT_INLINE vec<uint8_t> signed_code(vec<uint32_t> code, vec<uint32_t> bits) {
  return __builtin_convertvector(code | ((bits >> 24) & 0x80u), vec<uint8_t>);
}

// A whole number of steps of the smallest numbers, as the bits of a float.
HT_INLINE vec<uint32_t> steps(vec<uint32_t> count, float step) {
  return bit_copy<vec<uint32_t>>(__builtin_convertvector(bit_copy<vec<int32_t>>(count), vec<float>) * step);
}

// How many steps a float is, where those of the sum with `beside` are as large: the sum is rounded to them.
HT_INLINE vec<uint32_t> count_of_steps(vec<uint32_t> bits, float beside) {
  const vec<float> whole = bcast<float>(beside);
  return bit_copy<vec<uint32_t>>(bit_copy<vec<float>>(bits) + whole) - bit_copy<vec<uint32_t>>(whole);
}

}  // namespace detail

HT_INLINE vec<float> float_of_e4m3(vec<uint8_t> v) {
  const vec<uint32_t> code = __builtin_convertvector(v, vec<uint32_t>), size = code & 0x7fu;
  const vec<uint32_t> normal = (size << 20) + (120u << 23);
  const vec<uint32_t> nan = bcast<uint32_t>(0x7ff00000u);
  const vec<uint32_t> large = (size == 0x7fu) ? nan : normal;
  return detail::signed_by((size < 8u) ? detail::steps(size, 0x1p-9f) : large, code);
}

HT_INLINE vec<float> float_of_e5m2(vec<uint8_t> v) {
  const vec<uint32_t> code = __builtin_convertvector(v, vec<uint32_t>), size = code & 0x7fu;
  const vec<uint32_t> normal = (size << 21) + (112u << 23);
  const vec<uint32_t> infinity = bcast<uint32_t>(0x7f800000u), nan = bcast<uint32_t>(0x7fc00000u);
  const vec<uint32_t> special = (size == 0x7cu) ? infinity : nan;
  const vec<uint32_t> large = (size < 0x7cu) ? normal : special;
  return detail::signed_by((size < 4u) ? detail::steps(size, 0x1p-16f) : large, code);
}

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

}  // namespace ht

#endif  // HARDTACK_TEMPLATES_FLOAT8_H
