// The error function, its complement and its inverse. Include vmath.h.
#ifndef HARDTACK_TEMPLATES_VMATH_ERF_H
#define HARDTACK_TEMPLATES_VMATH_ERF_H

#include "vmath_base.h"
#include "vmath_exp.h"
#include "vmath_log.h"

namespace ht {
namespace detail {

// e^(-y^2), with the square's rounding error made good.
template <class V>
HT_INLINE V exp_minus_square(V y) {
  const Sum2<V> s = two_product(y, y);
  const V e = exp_careful(-s.hi);
  return fma(-s.lo, e, e);
}

constexpr double two_over_sqrt_pi = 0x1.20dd750429b6dp+0;

// erf(y) / y for 0 <= y <= 3/4: 2/sqrt(pi) e^(-y^2) times the sum of (2 y^2)^n / (1 3 5 .. (2n + 1)).
HT_INLINE vec<double> erf_series(vec<double> y) {
  using D = vec<double>;
  const D z = y * y * 2;
  D sum = splat<D>(1);
  for (int k = 17; k >= 1; k--) sum = fma(sum, z * (1 / (2 * k + 1.0)), splat<D>(1));
  return sum * exp_minus_square(y) * two_over_sqrt_pi;
}

// erfc(y) for 1/2 <= y <= 28: the trapezoidal rule of step h = 1/2 for
//   erfc(y) = 2 y e^(-y^2) / pi * integral over t >= 0 of e^(-t^2) / (t^2 + y^2),
// whose error is e^(-pi^2 / h^2) = 7e-18 of it once the residue at t = i y is taken off, which counts for y < pi / h.
HT_INLINE vec<double> erfc_quadrature(vec<double> y) {
  using D = vec<double>;
  const D square = y * y;
  D sum{};
  constexpr double weights[] = {  // e^(-(k h)^2), k = 1 .. 13
      0.7788007830714049, 0.36787944117144233, 0.10539922456186433, 0.01831563888873418,
      0.0019304541362277093, 0.00012340980408667956, 4.785117392129009e-06, 1.1253517471925912e-07,
      1.6052280551856116e-09, 1.3887943864964021e-11, 7.287724095819692e-14, 2.3195228302435696e-16,
      4.4777324417183015e-19,
  };
  for (int k = 13; k >= 1; k--) sum = sum + weights[k - 1] / (square + 0.25 * k * k);
  const D integral = fma(sum, splat<D>(2), 1 / square);
  const D residue = 2 / (1 - vexp(y * (4 * 0x1.921fb54442d18p+1)));
  const D sum_part = exp_minus_square(y) * y * (0.5 / 0x1.921fb54442d18p+1) * integral;
  return (y < splat<D>(6)) ? sum_part + residue : sum_part;
}

}  // namespace detail

// 1.0 ulp
HT_INLINE vec<float> verf(vec<float> x) {
  using V = vec<float>;
  using T = detail::C<V>;
  const V y = vabs(x);
  const V small = fma(y, detail::horner(y * y, T::erf_small), y);
  const V t = ((y > detail::splat<V>(4)) ? detail::splat<V>(4) : y) - 2.5f;
  const V large = 1 - detail::horner(t, T::erf_large);
  return detail::flip_sign((y < detail::splat<V>(1)) ? small : large, x);
}

// 4.2 ulp
HT_INLINE vec<float> verfc(vec<float> x) {
  using V = vec<float>;
  using T = detail::C<V>;
  const V y = vabs(x);
  const V small = 1 - fma(x, detail::horner(x * x, T::erf_small), x);
  const V c = (y > detail::splat<V>(10.25f)) ? detail::splat<V>(10.25f) : y;
  const V sum = c + 2;
  const V inverse = 1 / sum;
  const V scaled = detail::exp_minus_square(c) * detail::horner((c - 2) * inverse, T::erfcx) * inverse;
  const V tail = fma(-scaled, ((c - sum) + 2) * inverse, scaled);  // less the sum's rounding error
  const V r = (x < V{}) ? 2 - tail : tail;
  return (y < detail::splat<V>(0.5f)) ? small : r;
}

// 3.0 ulp
HT_INLINE vec<double> verf(vec<double> x) {
  using V = vec<double>;
  const V y = vabs(x);
  const V c = (y > detail::splat<V>(6)) ? detail::splat<V>(6) : y;
  const auto small = c < detail::splat<V>(0.75);
  const V near = detail::erf_series(small ? c : V{}) * c;
  const V far = 1 - detail::erfc_quadrature(small ? detail::splat<V>(1) : c);
  return (x != x) ? x : detail::flip_sign(small ? near : far, x);
}

// 3.6 ulp
HT_INLINE vec<double> verfc(vec<double> x) {
  using V = vec<double>;
  const V y = vabs(x);
  const V c = (y > detail::splat<V>(28)) ? detail::splat<V>(28) : y;
  const auto small = c < detail::splat<V>(0.5);
  const V near = 1 - detail::flip_sign(detail::erf_series(small ? c : V{}) * c, x);
  const V tail = detail::erfc_quadrature(small ? detail::splat<V>(1) : c);
  const V far = (x < V{}) ? 2 - tail : tail;
  return (x != x) ? x : (small ? near : far);
}

namespace detail {

template <class V>
HT_INLINE V erfinv_edges(V x, V y) {
  using K = R<V>;
  y = (vabs(x) == splat<V>(1)) ? with_sign(splat<V>(K::infinity), x) : y;
  return (x != x) | (vabs(x) > splat<V>(1)) ? splat<V>(K::nan) : y;
}

// erfinv(x) / x, given the middle of the tail's interval
template <class V>
HT_INLINE V erfinv_ratio(V y, lane<V> middle) {
  const V w = -vlog((1 - y) * (1 + y));
  const V central = horner(w - static_cast<lane<V>>(2.5), C<V>::erfinv_central);
  const V tail = horner(vsqrt(w) - middle, C<V>::erfinv_tail);
  return (w < splat<V>(5)) ? central : tail;
}

}  // namespace detail

// 2.5 ulp
HT_INLINE vec<float> verfinv(vec<float> x) {
  return detail::erfinv_edges(x, x * detail::erfinv_ratio(vabs(x), 3));
}

// 2.8 ulp. A first guess to 2^-21, then one step of Halley's method, which triples the digits.
HT_INLINE vec<double> verfinv(vec<double> x) {
  using V = vec<double>;
  const V y = vabs(x);
  const V guess = y * detail::erfinv_ratio(y, 4);
  const auto near = y < detail::splat<V>(0.75);
  const V error = near ? verf(guess) - y : (1 - y) - verfc(guess);
  const V step = error / (detail::exp_minus_square(guess) * detail::two_over_sqrt_pi);
  const V r = guess - step / fma(guess, step, detail::splat<V>(1));
  const auto tiny = y < detail::splat<V>(1e-10);  // erfinv(y) = sqrt(pi) / 2 (y + pi / 12 y^3 + ...)
  return detail::erfinv_edges(x, detail::flip_sign(tiny ? y * (1 / detail::two_over_sqrt_pi) : r, x));
}

}  // namespace ht

#endif  // HARDTACK_TEMPLATES_VMATH_ERF_H
