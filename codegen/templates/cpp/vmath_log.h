// Logarithms, inverse hyperbolic functions and powers. Include vmath.h.
#ifndef HARDTACK_TEMPLATES_VMATH_LOG_H
#define HARDTACK_TEMPLATES_VMATH_LOG_H

#include "vmath_base.h"
#include "vmath_exp.h"

namespace ht {
namespace detail {

// x = 2^n m with m in [sqrt(1/2), sqrt(2)), for positive finite x.
template <class V>
struct Split {
  V n, m;
  ints<V> exponent;
};

template <class V>
HT_INLINE Split<V> split_normal(V x, V bias) {
  using K = R<V>;
  // The bias goes off after the shift: AVX2 has no arithmetic shift of 64-bit lanes.
  const ints<V> moved = bits_of(x) - K::sqrt_half_bits + (lane<ints<V>>{K::bias} << K::mantissa_bits);
  const ints<V> n = bit_copy<ints<V>>(bit_copy<uints<V>>(moved) >> K::mantissa_bits) - K::bias;
  const V m = of_bits<V>((moved & K::mantissa_mask) + K::sqrt_half_bits);
  return {real_of<V>(n) + bias, m, n};
}

template <class V>
HT_INLINE Split<V> split(V x) {
  using K = R<V>;
  const auto tiny = x < splat<V>(K::smallest_normal);
  const V up = pow2<V>(ints<V>{} + (K::mantissa_bits + 2));
  return split_normal(tiny ? x * up : x, tiny ? splat<V>(-(K::mantissa_bits + 2)) : V{});
}

// log(1 + f) - f
template <class V>
HT_INLINE V log_rest(V f) {
  const V z = f * f;
  return fma(z * f, horner(f, C<V>::log_p), z * splat<V>(static_cast<lane<V>>(-0.5)));
}

// The values that every logarithm has outside its domain, and at its ends.
template <class V>
HT_INLINE V log_special(V x, V y) {
  using K = R<V>;
  y = (x == splat<V>(K::infinity)) ? x : y;
  y = (x == V{}) ? splat<V>(-K::infinity) : y;
  y = (x < V{}) ? splat<V>(K::nan) : y;
  return (x != x) ? x : y;
}

// log(m) * scale + n * step, where scale and step are given in two parts each.
template <class V>
HT_INLINE V log_scaled(V x, lane<V> factor, lane<V> factor_lo, lane<V> step, lane<V> step_lo) {
  const Split<V> s = split(x);
  const V f = s.m - 1;
  const V rest = log_rest(f);
  const V hi = f * factor;
  const V lo = fma(f, splat<V>(factor), -hi) + fma(f, splat<V>(factor_lo), rest * factor);
  const V sum = hi + fma(s.n, splat<V>(step_lo), lo);
  return log_special(x, fma(s.n, splat<V>(step), sum));
}

template <class V>
HT_INLINE V log1p_core(V x) {
  using K = R<V>;
  const Sum2<V> u = two_sum(splat<V>(1), x);
  const Split<V> s = split_normal(u.hi, V{});
  const auto large = u.hi > splat<V>(K::big);  // the correction is below half an ulp, and its scale may not exist
  const V down = pow2<V>(large ? ints<V>{} : -s.exponent);
  const V f = (s.m - 1) + (large ? V{} : u.lo * down);
  return fma(s.n, splat<V>(K::ln2), f + fma(s.n, splat<V>(K::ln2_lo), log_rest(f)));
}

}  // namespace detail

// float: 0.8 ulp. double: 0.9 ulp.
template <class V>
HT_INLINE V vlog(V x) {
  using K = detail::R<V>;
  const detail::Split<V> s = detail::split(x);
  const V f = s.m - 1;
  const V sum = f + fma(s.n, detail::splat<V>(K::ln2_lo), detail::log_rest(f));
  return detail::log_special(x, fma(s.n, detail::splat<V>(K::ln2), sum));
}

// float: 1.0 ulp. double: 1.1 ulp.
template <class V>
HT_INLINE V vlog2(V x) {
  using K = detail::R<V>;
  return detail::log_scaled(x, K::log2e, K::log2e_lo, 1, 0);
}

// float: 1.0 ulp. double: 1.0 ulp.
template <class V>
HT_INLINE V vlog10(V x) {
  using K = detail::R<V>;
  return detail::log_scaled(x, K::log10e, K::log10e_lo, K::log10_2, K::log10_2_lo);
}

// float: 1.4 ulp. double: 0.9 ulp.
template <class V>
HT_INLINE V vlog1p(V x) {
  using K = detail::R<V>;
  V y = detail::log1p_core(x);
  y = (x == V{}) | (x == detail::splat<V>(K::infinity)) ? x : y;
  y = (x == detail::splat<V>(-1)) ? detail::splat<V>(-K::infinity) : y;
  y = (x < detail::splat<V>(-1)) ? detail::splat<V>(K::nan) : y;
  return (x != x) ? x : y;
}

// float: 1.8 ulp. double: 1.8 ulp.
template <class V>
HT_INLINE V vasinh(V x) {
  using K = detail::R<V>;
  const V y = vabs(x);
  const auto large = y > detail::splat<V>(K::big);
  const V t = large ? detail::splat<V>(1) : y;
  const V square = t * t;
  const V near = detail::log1p_core(t + square / (1 + vsqrt(1 + square)));
  const V far = vlog(y) + K::ln2;
  const V r = large ? far : near;
  return detail::with_sign((y == V{}) ? y : vabs(r), x);
}

// float: 2.0 ulp. double: 1.9 ulp.
template <class V>
HT_INLINE V vacosh(V x) {
  using K = detail::R<V>;
  const auto large = x > detail::splat<V>(K::big);
  const V t = (large ? detail::splat<V>(1) : x) - 1;
  const V near = detail::log1p_core(t + vsqrt(t * 2 + t * t));
  V y = large ? vlog(x) + K::ln2 : near;
  y = (x == detail::splat<V>(1)) ? V{} : y;
  y = (x < detail::splat<V>(1)) ? detail::splat<V>(K::nan) : y;
  return (x != x) ? x : y;
}

// float: 2.0 ulp. double: 1.9 ulp.
template <class V>
HT_INLINE V vatanh(V x) {
  using K = detail::R<V>;
  const V y = vabs(x);
  const V one = detail::splat<V>(1);
  V r = detail::log1p_core((y + y) / (one - y)) / 2;
  r = (y == one) ? detail::splat<V>(K::infinity) : r;
  r = (y > one) ? detail::splat<V>(K::nan) : r;
  r = (y != y) | (y == V{}) ? y : r;
  return detail::with_sign(r, x);
}

namespace detail {

// x^y as 2^(y log2|x|) in double precision, for float: the result is rounded once more only.
HT_INLINE vec<float> pow_magnitude(vec<float> x, vec<float> y) {
  using D = vec<double>;
  const D wide = __builtin_convertvector(vabs(x), D);  // subnormal floats are normal doubles
  const Split<D> s = split_normal(wide, D{});
  const D ratio = (s.m - 1) / (s.m + 1);
  D log2x = fma(ratio, horner(ratio * ratio, C<D>::pow_log2), s.n);
  log2x = (wide == D{}) ? splat<D>(-R<D>::infinity) : log2x;
  log2x = (wide == splat<D>(R<D>::infinity)) | (wide != wide) ? wide : log2x;
  const D t = clamp(__builtin_convertvector(y, D) * log2x, -200, 200);
  const Nearest<D> n = nearest(t, 1);
  const D p = horner(t - n.real, C<D>::pow_exp2);
  return __builtin_convertvector(p * pow2<D>(n.integer()), vec<float>);
}

// log(x) to about 2^-66 of it, for positive finite x.
HT_INLINE Sum2<vec<double>> log_double(vec<double> x) {
  using D = vec<double>;
  using K = R<D>;
  const Split<D> s = split(x);
  // q = (m - 1) / (m + 1) in two parts; m - 1 is exact.
  const D top = s.m - 1;
  const Sum2<D> bottom = two_sum(s.m, splat<D>(1));
  const D q = top / bottom.hi;
  const D left = fma(-q, bottom.lo, fma(-q, bottom.hi, top));
  const Sum2<D> ratio = {q, left / bottom.hi};
  const Sum2<D> square = times(ratio, ratio);
  const Sum2<D> cube = times(square, ratio);
  const Sum2<D> third = times(cube, Sum2<D>{splat<D>(0x1.5555555555555p-1), splat<D>(0x1.5555555555555p-55)});
  const D fifth = cube.hi * square.hi * horner(square.hi, C<D>::atanh_tail);
  const Sum2<D> twice = {ratio.hi * 2, ratio.lo * 2};
  const Sum2<D> log_m = plus(twice, plus(third, Sum2<D>{fifth, D{}}));
  const Sum2<D> log_n = two_product(s.n, splat<D>(K::ln2));
  return plus(Sum2<D>{log_n.hi, fma(s.n, splat<D>(K::ln2_lo), log_n.lo)}, log_m);
}

HT_INLINE vec<double> pow_magnitude(vec<double> x, vec<double> y) {
  using D = vec<double>;
  using K = R<D>;
  const D size = vabs(x);
  Sum2<D> l = log_double(size);
  const D odd_one = log_special(size, l.hi);
  const auto special = (size == D{}) | (size == splat<D>(K::infinity)) | (size != size);
  l = {special ? odd_one : l.hi, special ? D{} : l.lo};
  const D product = y * l.hi;
  const auto finite = vabs(product) < splat<D>(1000);
  const D error = finite ? fma(y, l.lo, fma(y, l.hi, -product)) : D{};
  const ExpParts<D> e = exp_parts(clamp(product, K::exp_lo, K::exp_hi));
  const D m = 1 + e.p;
  return scale(fma(m, error, m), e.n);
}

}  // namespace detail

// float: 0.51 ulp. double: 1.5 ulp. As C's pow: x^0 and 1^y are 1 even for NaN; a negative x needs an integer y.
template <class V>
HT_INLINE V vpow(V x, V y) {
  using K = detail::R<V>;
  const V one = detail::splat<V>(1);
  V r = detail::pow_magnitude(x, y);
  const V whole = vtrunc(y);
  const V half = y / 2;
  const auto integer = whole == y;
  const auto odd = integer & (vtrunc(half) != half);
  r = odd ? detail::flip_sign(r, x) : r;
  const auto undefined = (x < V{}) & (x != detail::splat<V>(-K::infinity)) & ~integer;
  r = undefined ? detail::splat<V>(K::nan) : r;
  r = (x != x) | (y != y) ? x + y : r;
  const auto unit = (x == one) | (y == V{}) | ((x == -one) & (vabs(y) == detail::splat<V>(K::infinity)));
  return unit ? one : r;
}

// float: 1.5 ulp. double: 1.5 ulp.
template <class V>
HT_INLINE V vrsqrt(V x) {
  return detail::splat<V>(1) / vsqrt(x);
}

}  // namespace ht

#endif  // HARDTACK_TEMPLATES_VMATH_LOG_H
