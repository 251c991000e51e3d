// Sine, cosine, tangent and their inverses. Include vmath.h.
#ifndef HARDTACK_TEMPLATES_VMATH_TRIG_H
#define HARDTACK_TEMPLATES_VMATH_TRIG_H

#include "vmath_base.h"

namespace ht {
namespace detail {

// The bits of 2/pi after 128 zeros, highest first: enough for the largest double.
constexpr uint64_t two_over_pi_bits[] = {
    0, 0,
    0xa2f9836e4e441529, 0xfc2757d1f534ddc0, 0xdb6295993c439041, 0xfe5163abdebbc561, 0xb7246e3a424dd2e0,
    0x06492eea09d1921c, 0xfe1deb1cb129a73e, 0xe88235f52ebb4484, 0xe99c7026b45f7e41, 0x3991d639835339f4,
    0x9c845f8bbdf9283b, 0x1ff897ffde05980f, 0xef2f118b5a0a6d1f, 0x6d367ecf27cb09b7, 0x4f463f669e5fea2d,
    0x7527bac7ebe5f17b, 0x3d0739f78a5292ea, 0x6bfb5fb11f8d5d08, 0x56033046fc7b6bab, 0xf0cfbc209af4361d,
    0xa9e391615ee61b08,
};

struct Reduced1 {
  double r;
  int quadrant;
};

// x = quadrant * pi / 2 + r (mod 2 pi), |r| <= pi / 4, for 2^10 < x < infinity.
//
// x is M 2^E with an integer M of 53 bits. Bits of 2/pi of weight 4/2^E and above contribute multiples of four quadrants
// and are left out; the product of M with the next 192 bits, modulo 2^192, then has the quadrant in its two highest bits
// and the fraction of a quadrant below, with an error below 2^-137.
static __attribute__((noinline)) Reduced1 reduce_large(double x) {
  const uint64_t bits = bit_copy<uint64_t>(x);
  const uint64_t m = (bits & 0xfffffffffffff) | 0x10000000000000;
  const int skipped = static_cast<int>(bits >> 52) - 1075 - 2 + 128;
  const int word = skipped / 64, shift = skipped % 64;
  uint64_t b[3];
  for (int i = 0; i < 3; i++) {
    const uint64_t high = two_over_pi_bits[word + i], low = two_over_pi_bits[word + i + 1];
    b[i] = shift == 0 ? high : (high << shift) | (low >> (64 - shift));
  }
  typedef unsigned __int128 u128;
  const u128 p2 = static_cast<u128>(m) * b[2];
  const u128 p1 = static_cast<u128>(m) * b[1] + static_cast<uint64_t>(p2 >> 64);
  const uint64_t p0 = m * b[0] + static_cast<uint64_t>(p1 >> 64);
  int quadrant = static_cast<int>(p0 >> 62);
  u128 fraction = (static_cast<u128>(p0) << 64 | static_cast<uint64_t>(p1)) << 2;
  const bool above = (fraction >> 127) != 0;  // more than half a quadrant: count from the next one
  if (above) {
    fraction = -fraction;
    quadrant++;
  }
  const uint64_t upper = static_cast<uint64_t>(fraction >> 64), lower = static_cast<uint64_t>(fraction);
  const int zeros = upper != 0 ? __builtin_clzll(upper) : 64 + __builtin_clzll(lower | 1);
  const uint64_t leading = static_cast<uint64_t>((fraction << zeros) >> 64);
  const double unit = bit_copy<double>(static_cast<uint64_t>(1023 - 64 - zeros) << 52);
  const double turn = static_cast<double>(leading) * unit * Real<double>::pi_half;
  return {above ? -turn : turn, quadrant & 3};
}

template <class V>
struct Reduced {
  V r;
  ints<V> quadrant;
};

// x = quadrant * pi / 2 + r, |r| a little above pi / 4 at most; the quadrant counts modulo 4.
template <class V>
HT_INLINE Reduced<V> reduce(V x) {
  using K = R<V>;
  using T = lane<V>;
  const auto large = ~(vabs(x) <= splat<V>(K::trig_limit));  // NaN too
  const Nearest<V> n = nearest(large ? V{} : x, K::two_over_pi);
  V r = fma(-n.real, splat<V>(K::pi_half), x);  // exact
  r = fma(-n.real, splat<V>(K::pi_half_lo), r);
  r = fma(-n.real, splat<V>(K::pi_half_lo2), r);
  r = (n.integer() == ints<V>{}) ? x : r;  // keeps -0
  ints<V> quadrant = n.integer();
  if (__builtin_expect(hany(to_vmask(large)), 0)) {
    for (int i = 0; i < W; i++) {
      const T xi = x[i];
      if (!large[i]) continue;
      if (!(xi - xi == 0)) {
        r[i] = K::nan;
        continue;
      }
      const Reduced1 one = reduce_large(static_cast<double>(xi < 0 ? -xi : xi));
      r[i] = static_cast<T>(xi < 0 ? -one.r : one.r);
      quadrant[i] = xi < 0 ? -one.quadrant : one.quadrant;
    }
  }
  return {r, quadrant};
}

template <class V>
HT_INLINE V sin_core(V r) {
  const V z = r * r;
  return fma(z * r, horner(z, C<V>::sin_p), r);
}

template <class V>
HT_INLINE V cos_core(V r) {
  const V z = r * r;
  const V half = z * splat<V>(static_cast<lane<V>>(0.5));
  const V top = 1 - half;
  return top + fma(z * z, horner(z, C<V>::cos_q), (1 - top) - half);
}

template <class V>
HT_INLINE V sin_of(Reduced<V> a) {
  const V y = ((a.quadrant & 1) != ints<V>{}) ? cos_core(a.r) : sin_core(a.r);
  return of_bits<V>(bits_of(y) ^ ((a.quadrant & 2) << (8 * sizeof(lane<V>) - 2)));
}

// asin(s) for 0 <= s <= 1/2, s = sqrt(z)
template <class V>
HT_INLINE V asin_core(V s, V z) {
  return fma(s * z, horner(z, C<V>::asin_p), s);
}

template <class V>
HT_INLINE V atan_core(V a) {  // |a| <= 1
  const V z = a * a;
  return fma(a * z, horner(z, C<V>::atan_p), a);
}

}  // namespace detail

// float: 1.5 ulp. double: 2.3 ulp.
template <class V>
HT_INLINE V vsin(V x) {
  const V y = detail::sin_of(detail::reduce(x));
  return (x == V{}) ? x : y;  // -0
}

// float: 1.6 ulp. double: 2.2 ulp.
template <class V>
HT_INLINE V vcos(V x) {
  detail::Reduced<V> a = detail::reduce(x);
  a.quadrant = a.quadrant + 1;
  return detail::sin_of(a);
}

// float: 2.9 ulp. double: 3.6 ulp.
template <class V>
HT_INLINE V vtan(V x) {
  const detail::Reduced<V> a = detail::reduce(x);
  const V s = detail::sin_core(a.r), c = detail::cos_core(a.r);
  const auto odd = (a.quadrant & 1) != detail::ints<V>{};
  return (x == V{}) ? x : (odd ? -c : s) / (odd ? s : c);
}

// float: 2.3 ulp. double: 2.1 ulp.
template <class V>
HT_INLINE V vasin(V x) {
  using K = detail::R<V>;
  const V y = vabs(x), half = detail::splat<V>(static_cast<lane<V>>(0.5));
  const auto big = y > half;
  const V z = big ? (1 - y) * half : y * y;
  const V p = detail::asin_core(big ? vsqrt(z) : y, z);
  const V far = K::pi_half - ((p + p) - K::pi_half_lo);
  const V r = big ? far : p;
  return (x != x) | (y > detail::splat<V>(1)) ? detail::splat<V>(K::nan) : detail::flip_sign(r, x);
}

// float: 1.1 ulp. double: 1.2 ulp.
template <class V>
HT_INLINE V vacos(V x) {
  using K = detail::R<V>;
  const V y = vabs(x), half = detail::splat<V>(static_cast<lane<V>>(0.5));
  const auto big = y > half;
  const V z = big ? (1 - y) * half : y * y;
  const V p = detail::asin_core(big ? vsqrt(z) : y, z);
  const V near_minus_one = 2 * (K::pi_half - (p - K::pi_half_lo));
  const V middle = K::pi_half - (detail::flip_sign(p, x) - K::pi_half_lo);
  const V r = big ? ((x < V{}) ? near_minus_one : p + p) : middle;
  return (x != x) | (y > detail::splat<V>(1)) ? detail::splat<V>(K::nan) : r;
}

// float: 1.3 ulp. double: 1.5 ulp.
template <class V>
HT_INLINE V vatan(V x) {
  using K = detail::R<V>;
  const V y = vabs(x);
  const auto far = y > detail::splat<V>(1);
  const V p = detail::atan_core(far ? -1 / y : y);
  const V r = far ? K::pi_half + (p + K::pi_half_lo) : p;
  return detail::flip_sign(r, x);
}

// The angle of the point (x, y), as C's atan2(y, x). float: 1.5 ulp. double: 1.4 ulp.
template <class V>
HT_INLINE V vatan2(V y, V x) {
  using K = detail::R<V>;
  const V ax = vabs(x), ay = vabs(y);
  const auto steep = ay > ax;
  const V longer = steep ? ay : ax, shorter = steep ? ax : ay;
  V a = shorter / longer;
  a = (longer == V{}) ? V{} : a;
  a = (shorter == detail::splat<V>(K::infinity)) ? detail::splat<V>(1) : a;
  const V p = detail::atan_core(a);
  V r = steep ? K::pi_half - (p - K::pi_half_lo) : p;
  const auto left = detail::sign_bit(x) != detail::ints<V>{};
  r = left ? 2 * K::pi_half - (r - 2 * K::pi_half_lo) : r;
  r = detail::flip_sign(r, y);
  return (x != x) | (y != y) ? x + y : r;
}

}  // namespace ht

#endif  // HARDTACK_TEMPLATES_VMATH_TRIG_H
