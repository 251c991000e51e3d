// The logarithm of the gamma function. Include vmath.h.
#ifndef HARDTACK_TEMPLATES_VMATH_GAMMA_H
#define HARDTACK_TEMPLATES_VMATH_GAMMA_H

#include "vmath_base.h"
#include "vmath_log.h"
#include "vmath_trig.h"

namespace ht {
namespace detail {

// log(gamma(x)) for x >= 8: Stirling's series to the term in x^-15.
HT_INLINE vec<double> lgamma_large(vec<double> x) {
  using D = vec<double>;
  constexpr double series[] = {1.0 / 12, -1.0 / 360, 1.0 / 1260,        -1.0 / 1680,
                               1.0 / 1188, -691.0 / 360360, 1.0 / 156, -3617.0 / 122400};
  const D inverse = 1 / x;
  const D correction = inverse * horner(inverse * inverse, series);
  const D log_x = vlog(x);
  constexpr double half_log_two_pi = 0x1.d67f1c864beb5p-1;
  // (x - 1/2) (log x - 1) + (log(2 pi) - 1) / 2: no intermediate overflows before the result does.
  return fma(x - 0.5, log_x - 1, half_log_two_pi - 0.5 + correction);
}

// log(gamma(x)) for 1/2 <= x < 8: by gamma(x) = (x - 1) gamma(x - 1) down to [5/4, 9/4), or up from below 3/4; there
// around 1, 3/2 and 2, so that the zeros at 1 and 2 keep their relative accuracy.
HT_INLINE vec<double> lgamma_small(vec<double> x) {
  using D = vec<double>;
  using T = C<D>;
  D factor = splat<D>(1), base = x;
  for (int k = 0; k < 6; k++) {
    const auto above = base >= splat<D>(2.25);
    base = above ? base - 1 : base;
    factor = above ? factor * base : factor;
  }
  const auto below = base < splat<D>(0.75);
  factor = below ? 1 / base : factor;
  base = below ? base + 1 : base;
  const auto one = base < splat<D>(1.25), two = base >= splat<D>(1.75);
  const D d = base - (one ? splat<D>(1) : splat<D>(2));
  const D end = (one | two) ? d : D{};
  const D at_end = end * horner(end, T::lgamma_one) + (two ? log1p_core(end) : D{});
  const D middle = horner((one | two) ? D{} : base - 1.5, T::lgamma_mid);
  return ((one | two) ? at_end : middle) + vlog(factor);
}

}  // namespace detail

// log|gamma(x)|. float: 0.51 ulp, double: 4.1 ulp for x > 0. For x < 0 the terms of the reflection formula cancel near
// the zeros: the error is then absolute, about 2e-15, and shows in float only within 1e-8 of a zero.
HT_INLINE vec<double> vlgamma(vec<double> x) {
  using D = vec<double>;
  using K = detail::R<D>;
  const auto reflected = x < detail::splat<D>(0.5);
  const D a = reflected ? 1 - x : x;
  const auto large = a >= detail::splat<D>(8);
  const D body = large ? detail::lgamma_large(large ? a : detail::splat<D>(8))
                       : detail::lgamma_small(large ? detail::splat<D>(1) : a);
  // |sin(pi x)| by the distance to the nearest integer, which is exact
  const D distance = vabs(x - vround(x));
  const D s = detail::sin_of(detail::reduce(distance * (2 * K::pi_half)));
  const D mirrored = 0x1.250d048e7a1bdp+0 - vlog(s) - body;
  D r = reflected ? mirrored : body;
  r = reflected & (vabs(x) < detail::splat<D>(0x1p-60)) ? -vlog(vabs(x)) : r;
  r = (vabs(x) == detail::splat<D>(K::infinity)) | (reflected & (distance == D{})) ? detail::splat<D>(K::infinity) : r;
  return (x != x) ? x : r;
}

HT_INLINE vec<float> vlgamma(vec<float> x) {
  return __builtin_convertvector(vlgamma(__builtin_convertvector(x, vec<double>)), vec<float>);
}

}  // namespace ht

#endif  // HARDTACK_TEMPLATES_VMATH_GAMMA_H
