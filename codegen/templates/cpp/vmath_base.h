// Ground for vmath.h: constants of both precisions, polynomials, powers of two. Include vmath.h.
//
// The code below assumes -ffp-contract=off and no fast-math: error terms are computed on purpose.
#ifndef HARDTACK_TEMPLATES_VMATH_BASE_H
#define HARDTACK_TEMPLATES_VMATH_BASE_H

#include "simd.h"
#include "vmath_poly.h"

namespace ht {
namespace detail {

// Constants as sums of two or three numbers, the first the nearest to the value.
template <class T>
struct Real;
template <>
struct Real<float> {
  static constexpr int mantissa_bits = 23;
  static constexpr int32_t bias = 127;
  static constexpr int32_t mantissa_mask = 0x7fffff;
  static constexpr int32_t sqrt_half_bits = 0x3f3504f3;
  static constexpr float infinity = __builtin_inff();
  static constexpr float nan = __builtin_nanf("");
  static constexpr float smallest_normal = 0x1p-126f;
  static constexpr float round_magic = 0x1.8p23f;  // adding it rounds to an integer, which is then in the low bits
  static constexpr float ln2 = 0x1.62e430p-1f, ln2_lo = -0x1.05c610p-29f;
  static constexpr float log2e = 0x1.715476p+0f, log2e_lo = 0x1.4ae0c0p-26f;
  static constexpr float log10e = 0x1.bcb7b2p-2f, log10e_lo = -0x1.5b235ep-27f;
  static constexpr float log10_2 = 0x1.344136p-2f, log10_2_lo = -0x1.ec10c0p-27f;
  static constexpr float pi_half = 0x1.921fb6p+0f, pi_half_lo = -0x1.777a5cp-25f, pi_half_lo2 = -0x1.ee59dap-50f;
  static constexpr float two_over_pi = 0x1.45f306p-1f;
  static constexpr float exp_lo = -104.0f, exp_hi = 89.0f, exp2_lo = -151.0f, exp2_hi = 129.0f;
  static constexpr float expm1_lo = -20.0f;      // e^x - 1 rounds to -1 below
  static constexpr float big = 0x1p26f;          // 1 + x rounds to x beyond, and x^2 + 1 to x^2
  static constexpr float trig_limit = 0x1p17f;   // beyond it the three parts of pi / 2 are too few
};
template <>
struct Real<double> {
  static constexpr int mantissa_bits = 52;
  static constexpr int64_t bias = 1023;
  static constexpr int64_t mantissa_mask = 0xfffffffffffff;
  static constexpr int64_t sqrt_half_bits = 0x3fe6a09e667f3bcd;
  static constexpr double infinity = __builtin_inf();
  static constexpr double nan = __builtin_nan("");
  static constexpr double smallest_normal = 0x1p-1022;
  static constexpr double round_magic = 0x1.8p52;
  static constexpr double ln2 = 0x1.62e42fefa39efp-1, ln2_lo = 0x1.abc9e3b39803fp-56;
  static constexpr double log2e = 0x1.71547652b82fep+0, log2e_lo = 0x1.777d0ffda0d24p-56;
  static constexpr double log10e = 0x1.bcb7b1526e50ep-2, log10e_lo = 0x1.95355baaafad3p-57;
  static constexpr double log10_2 = 0x1.34413509f79ffp-2, log10_2_lo = -0x1.9dc1da994fd21p-59;
  static constexpr double pi_half = 0x1.921fb54442d18p+0, pi_half_lo = 0x1.1a62633145c07p-54;
  static constexpr double pi_half_lo2 = -0x1.f1976b7ed8fbcp-110;
  static constexpr double two_over_pi = 0x1.45f306dc9c883p-1;
  static constexpr double exp_lo = -746.0, exp_hi = 710.0, exp2_lo = -1076.0, exp2_hi = 1025.0;
  static constexpr double expm1_lo = -40.0;
  static constexpr double big = 0x1p55;
  static constexpr double trig_limit = 0x1p27;
};

template <size_t nbytes>
struct UintOf;
template <>
struct UintOf<4> {
  using type = uint32_t;
};
template <>
struct UintOf<8> {
  using type = uint64_t;
};

// What a function of V needs: R its constants, C its tables.
template <class V>
using R = Real<lane<V>>;
template <class V>
using C = poly::Tables<lane<V>>;
template <class V>
using ints = mask_lanes<V>;
template <class V>
using uints = vec<typename UintOf<sizeof(lane<V>)>::type>;

// c[0] + c[1] x + c[2] x^2 + ...
template <class V, class T, size_t n>
HT_INLINE V horner(V x, const T (&c)[n]) {
  V r = bcast<T>(c[n - 1]);
#pragma GCC unroll 64
  for (int i = static_cast<int>(n) - 2; i >= 0; i--) r = fma(r, x, bcast<T>(c[i]));
  return r;
}

template <class V>
HT_INLINE V splat(lane<V> x) {
  return bcast<lane<V>>(x);
}

template <class V>
HT_INLINE ints<V> bits_of(V v) {
  return bit_copy<ints<V>>(v);
}

template <class V>
HT_INLINE V of_bits(ints<V> b) {
  return bit_copy<V>(b);
}

template <class V>
HT_INLINE ints<V> sign_bit(V v) {
  constexpr lane<ints<V>> sign = static_cast<lane<ints<V>>>(uint64_t{1} << (8 * sizeof(lane<V>) - 1));
  return bits_of(v) & sign;
}

// The magnitude of `magnitude`, which must not be negative, with the sign of `sign`.
template <class V>
HT_INLINE V with_sign(V magnitude, V sign) {
  return of_bits<V>(bits_of(magnitude) | sign_bit(sign));
}

// Flips the sign of v where that of `sign` is set.
template <class V>
HT_INLINE V flip_sign(V v, V sign) {
  return of_bits<V>(bits_of(v) ^ sign_bit(sign));
}

// lo <= result <= hi; a NaN stays.
template <class V>
HT_INLINE V clamp(V x, lane<V> lo, lane<V> hi) {
  x = (x < splat<V>(lo)) ? splat<V>(lo) : x;
  return (x > splat<V>(hi)) ? splat<V>(hi) : x;
}

// 2^n for n in the range of normal numbers.
template <class V>
HT_INLINE V pow2(ints<V> n) {
  return of_bits<V>((n + R<V>::bias) << R<V>::mantissa_bits);
}

// The nearest integer n, as a number, and the bits of the sum that rounded it: they end in n + 2 bias, which saves
// `scale` both additions of the bias. Lanes beyond 2^22 (2^51) and NaN give garbage, but no more.
template <class V>
struct Nearest {
  static constexpr lane<V> magic = R<V>::round_magic + 2 * R<V>::bias;  // even, as round_magic: ties go the same way
  V real;
  ints<V> bits;

  HT_MEMBER ints<V> integer() const { return bits - bits_of(splat<V>(magic)); }
  HT_MEMBER Nearest plus(int k) const { return {real + static_cast<lane<V>>(k), bits + k}; }
};

template <class V>
HT_INLINE Nearest<V> nearest(V x, lane<V> factor) {
  const V magic = splat<V>(Nearest<V>::magic);
  const V t = fma(x, splat<V>(factor), magic);
  return {t - magic, bits_of(t)};
}

// v * 2^n, rounded once, for any n whose halves are exponents of normal numbers: by their two powers of two, or in one
// instruction where there is one.
template <class V>
HT_INLINE V scale(V v, Nearest<V> n) {
#if defined(HT_AVX512)
  if constexpr (same<lane<V>, float>) {
    return bit_copy<V>(_mm512_scalef_ps(bit_copy<__m512>(v), bit_copy<__m512>(n.real)));
  }
#endif
  const uints<V> both = bit_copy<uints<V>>(n.bits), half = both >> 1;
  return v * bit_copy<V>(half << R<V>::mantissa_bits) * bit_copy<V>((both - half) << R<V>::mantissa_bits);
}

// An integer of few bits as a real: without a conversion, which AVX2 lacks for 64-bit lanes.
template <class V>
HT_INLINE V real_of(ints<V> n) {
  const V magic = splat<V>(R<V>::round_magic);
  return of_bits<V>(n + bits_of(magic)) - magic;
}

// a + b = sum + error, exactly.
template <class V>
struct Sum2 {
  V hi, lo;
};

template <class V>
HT_INLINE Sum2<V> two_sum(V a, V b) {
  const V s = a + b;
  const V bb = s - a;
  return {s, (a - (s - bb)) + (b - bb)};
}

template <class V>
HT_INLINE Sum2<V> fast_two_sum(V a, V b) {  // needs |a| >= |b|
  const V s = a + b;
  return {s, b - (s - a)};
}

template <class V>
HT_INLINE Sum2<V> two_product(V a, V b) {
  const V p = a * b;
  return {p, fma(a, b, -p)};
}

template <class V>
HT_INLINE Sum2<V> times(Sum2<V> a, Sum2<V> b) {
  const Sum2<V> p = two_product(a.hi, b.hi);
  return fast_two_sum(p.hi, p.lo + fma(a.hi, b.lo, a.lo * b.hi));
}

template <class V>
HT_INLINE Sum2<V> plus(Sum2<V> a, Sum2<V> b) {
  const Sum2<V> s = two_sum(a.hi, b.hi);
  return fast_two_sum(s.hi, s.lo + (a.lo + b.lo));
}

}  // namespace detail
}  // namespace ht

#endif  // HARDTACK_TEMPLATES_VMATH_BASE_H
