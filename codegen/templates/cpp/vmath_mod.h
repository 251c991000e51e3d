// Remainders of division, C's fmod and Python's %, and what they lead to, the greatest common divisor. All are exact.
// Include vmath.h.
#ifndef HARDTACK_TEMPLATES_VMATH_MOD_H
#define HARDTACK_TEMPLATES_VMATH_MOD_H

#include "vmath_base.h"

namespace ht {
namespace detail {

struct Scaled {
  uint64_t mantissa;
  int exponent;
};

template <class T>
HT_INLINE Scaled decompose(T v) {  // v > 0, finite
  using U = typename UintOf<sizeof(T)>::type;
  constexpr int mb = Real<T>::mantissa_bits;
  const U bits = bit_copy<U>(v);
  const uint64_t fraction = bits & static_cast<U>(Real<T>::mantissa_mask);
  const int e = static_cast<int>(bits >> mb);
  return e == 0 ? Scaled{fraction, 1} : Scaled{fraction | (uint64_t{1} << mb), e};
}

template <class T>
HT_INLINE T compose(uint64_t mantissa, int exponent) {
  using U = typename UintOf<sizeof(T)>::type;
  constexpr int mb = Real<T>::mantissa_bits;
  if (mantissa == 0) return 0;
  while ((mantissa >> mb) == 0 && exponent > 1) {
    mantissa <<= 1;
    exponent--;
  }
  const U high = (mantissa >> mb) == 0 ? 0 : static_cast<U>(exponent);
  return bit_copy<T>(static_cast<U>((high << mb) | (static_cast<U>(mantissa) & static_cast<U>(Real<T>::mantissa_mask))));
}

// x mod y for positive finite x >= y: long division, as many bits at a time as fit in a word.
template <class T>
static __attribute__((noinline)) T long_division(T x, T y) {
  const Scaled a = decompose(x), b = decompose(y);
  constexpr int step = 63 - Real<T>::mantissa_bits;
  uint64_t r = a.mantissa % b.mantissa;
  for (int left = a.exponent - b.exponent; left > 0 && r != 0;) {
    const int n = left < step ? left : step;
    r = (r << n) % b.mantissa;
    left -= n;
  }
  return compose<T>(r, b.exponent);
}

// The greatest common divisor of |a| and |b|; the lowest integer, which has no magnitude, goes through the same steps.
template <class T>
static __attribute__((noinline)) T euclid(T a, T b) {
  a = static_cast<T>(a < 0 ? -a : a);
  b = static_cast<T>(b < 0 ? -b : b);
  while (a != 0) {
    const T rest = static_cast<T>(b % a);
    b = a;
    a = rest;
  }
  return b;
}

}  // namespace detail

// The greatest common divisor of integers.
template <class V>
HT_INLINE V vgcd(V x, V y) {
  V out = x;
  for (int i = 0; i < W; i++) {
    const lane<V> a = x[i], b = y[i];
    out[i] = detail::euclid<lane<V>>(a, b);
  }
  return out;
}

// Exact. The sign is that of x.
template <class V>
HT_INLINE V vfmod(V x, V y) {
  using K = detail::R<V>;
  const V a = vabs(x), b = vabs(y);
  const V inf = detail::splat<V>(K::infinity);
  // A quotient of few bits is found by rounding and set right by one addition or subtraction of y.
  const V q = a / b;
  const V whole = vtrunc(q);
  V r = fma(-whole, b, a);
  r = (r < V{}) ? r + b : r;
  r = (r >= b) ? r - b : r;
  r = (a < b) ? a : r;
  const auto defined = (a < inf) & (b > V{});
  const auto hard = defined & (a >= b) & ~(q < detail::splat<V>(0x1p20f));
  if (__builtin_expect(hany(detail::to_vmask(hard)), 0)) {
    for (int i = 0; i < W; i++) {
      const lane<V> ai = a[i], bi = b[i];
      if (hard[i]) r[i] = detail::long_division<lane<V>>(ai, bi);
    }
  }
  r = (b == inf) ? a : r;
  return (defined & (y == y)) ? detail::with_sign(r, x) : detail::splat<V>(K::nan);
}

// Exact but for the one rounded addition where the signs differ. The sign is that of y, as in Python and torch.remainder.
template <class V>
HT_INLINE V vremainder(V x, V y) {
  const V r = vfmod(x, y);
  return (r != V{}) & ((r < V{}) != (y < V{})) ? r + y : r;
}

// The quotient rounded down as Python and torch.floor_divide have it: from the exact remainder, so that a quotient just
// below a whole number is not rounded up to it; x / y where y is 0, NaN where x is infinite.
template <class V>
HT_INLINE V vfloordiv(V x, V y) {
  const V r = vfmod(x, y);
  V q = (x - r) / y;
  q = ((r != V{}) & ((y < V{}) != (r < V{}))) ? q - detail::splat<V>(1) : q;
  const V below = vfloor(q);
  const V whole = (q - below > detail::splat<V>(0.5)) ? below + detail::splat<V>(1) : below;
  const V signed_zero = detail::with_sign(V{}, x / y);
  const V out = (q != V{}) ? whole : signed_zero;
  return (y == V{}) ? x / y : out;
}

}  // namespace ht

#endif  // HARDTACK_TEMPLATES_VMATH_MOD_H
