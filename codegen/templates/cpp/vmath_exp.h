// Exponentials, logistic and hyperbolic functions. Include vmath.h.
#ifndef HARDTACK_TEMPLATES_VMATH_EXP_H
#define HARDTACK_TEMPLATES_VMATH_EXP_H

#include "vmath_base.h"

namespace ht {
namespace detail {

// x = n log(2) + r with |r| <= log(2) / 2; p = e^r - 1.
template <class V>
struct ExpParts {
  V p;
  Nearest<V> n;
};

// `careful` keeps r's rounding error, for functions in which the error of p is not the last one: 3 operations more.
template <bool careful = false, class V>
HT_INLINE ExpParts<V> exp_parts(V x) {
  using K = R<V>;
  const Nearest<V> n = nearest(x, K::log2e);
  const V top = fma(-n.real, splat<V>(K::ln2), x);  // exact
  const V r = fma(-n.real, splat<V>(K::ln2_lo), top);
  const V q = horner(r, C<V>::exp_q);
  if constexpr (!careful) return {fma(r * r, q, r), n};
  const V error = fma(-n.real, splat<V>(K::ln2_lo), top - r);
  return {r + fma(r * r, q, error), n};
}

template <class V>
HT_INLINE V exp_careful(V x) {
  const ExpParts<V> e = exp_parts<true>(clamp(x, R<V>::exp_lo, R<V>::exp_hi));
  return scale(splat<V>(1) + e.p, e.n);
}

// e^x * 2^k without the overflow of e^x.
template <class V>
HT_INLINE V exp_scaled(V x, int k) {
  const ExpParts<V> e = exp_parts(clamp(x, R<V>::exp_lo, R<V>::exp_hi + 1));
  return scale(splat<V>(1) + e.p, e.n.plus(k));
}

// e^x - 1 for x that is not above exp_hi.
template <class V>
HT_INLINE V expm1_core(V x) {
  const ExpParts<V> e = exp_parts(x);
  // 2^n p + (2^n - 1), by half of it, because 2^n may be one above the largest exponent.
  const V half = pow2<V>(e.n.integer() - 1);
  const V y = fma(half, e.p, half - splat<V>(static_cast<lane<V>>(0.5)));
  return (e.n.integer() == ints<V>{}) ? e.p : y + y;
}

}  // namespace detail

// float: 1.1 ulp. double: 1.0 ulp.
template <class V>
HT_INLINE V vexp(V x) {
  using K = detail::R<V>;
  const detail::ExpParts<V> e = detail::exp_parts(detail::clamp(x, K::exp_lo, K::exp_hi));
  return detail::scale(detail::splat<V>(1) + e.p, e.n);
}

// float: 0.9 ulp. double: 0.9 ulp.
template <class V>
HT_INLINE V vexp2(V x) {
  using K = detail::R<V>;
  const V clamped = detail::clamp(x, K::exp2_lo, K::exp2_hi);
  const detail::Nearest<V> n = detail::nearest(clamped, 1);
  const V r = clamped - n.real;
  return detail::scale(fma(r, detail::horner(r, detail::C<V>::exp2_q), detail::splat<V>(1)), n);
}

// e^x for x <= 0, as a softmax needs it: results below the normal numbers are 0. float: 1.1 ulp above that.
// Besides being shorter than vexp, it never makes a subnormal number, which costs some CPUs a hundred cycles: with a
// mask of -infinity, vexp would make one in every lane on its way to 0.
template <class V>
HT_INLINE V vexp_nonpositive(V x) {
  constexpr lane<V> lowest = sizeof(lane<V>) == 4 ? static_cast<lane<V>>(-87.0) : static_cast<lane<V>>(-708.0);
  const detail::ExpParts<V> e = detail::exp_parts(detail::clamp(x, lowest, 0));
  const V scale = detail::pow2<V>(e.n.integer());
  const V y = fma(e.p, scale, scale);
  return (x < detail::splat<V>(lowest)) ? V{} : y;
}

// 2^x for what is rounded to bfloat16, whose half ulp is 2^-9: to 2^-18. Below 2^-126 it is 0; x is not above 127.
HT_INLINE vec<float> vexp2_short(vec<float> x) {
  constexpr float lowest = -126;
#if defined(HT_AVX512)
  // The comparison's mask is scaling's, too: NaN is not below the lowest.
  const __m512 t = bit_copy<__m512>(x);
  const __m512 n = _mm512_roundscale_ps(t, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
  const vec<float> r = x - bit_copy<vec<float>>(n);
  const vec<float> p = fma(r, detail::horner(r, detail::C<vec<float>>::exp2_short), detail::splat<vec<float>>(1));
  const __mmask16 normal = _mm512_cmp_ps_mask(t, _mm512_set1_ps(lowest), _CMP_NLT_UQ);
  return bit_copy<vec<float>>(_mm512_maskz_scalef_ps(normal, bit_copy<__m512>(p), n));
#else
  const vec<float> clamped = detail::clamp(x, lowest, 127);
  const detail::Nearest<vec<float>> n = detail::nearest(clamped, 1);
  const vec<float> r = clamped - n.real, q = r * detail::horner(r, detail::C<vec<float>>::exp2_short);
  const vec<float> scale = detail::pow2<vec<float>>(n.integer());
  return (x < detail::splat<vec<float>>(lowest)) ? vec<float>{} : fma(q, scale, scale);
#endif
}

// float: 1.6 ulp. double: 1.8 ulp.
template <class V>
HT_INLINE V vexpm1(V x) {
  using K = detail::R<V>;
  const V y = detail::expm1_core(detail::clamp(x, K::expm1_lo, K::exp_hi));
  return (x == V{}) ? x : y;
}

// float: 2.0 ulp. double: 2.0 ulp.
template <class V>
HT_INLINE V vsigmoid(V x) {
  const V e = vexp(-vabs(x));
  const V one = detail::splat<V>(1);
  const auto negative = x < V{};
  const V sum = one + e;
  const V q = (negative ? e : one) / sum;
  // The sum's rounding error, over the sum, whose reciprocal is q or 1 - q.
  const V error = (e - (sum - one)) * (negative ? one - q : q);
  return fma(-q, error, q);
}

// float: 1.5 ulp. double: 1.4 ulp.
template <class V>
HT_INLINE V vtanh(V x) {
  using T = lane<V>;
  const V y = vabs(x), z = y * y;
  const V near = fma(z * y, detail::horner(z, detail::C<V>::tanh_p), y);
  const V e = vexp(detail::clamp(y, 0, 20) * -2);
  const V far = 1 - (e + e) / (1 + e);
  return detail::flip_sign((y < detail::splat<V>(static_cast<T>(0.6))) ? near : far, x);
}

// float: 2.2 ulp. double: 2.3 ulp.
template <class V>
HT_INLINE V vsinh(V x) {
  const V y = vabs(x);
  const V e = detail::expm1_core(detail::clamp(y, 0, 20));
  const V small = (e + e / (e + 1)) / 2;
  const V large = detail::exp_scaled(y, -1);  // e^-y is below half an ulp of it
  return detail::with_sign((y > detail::splat<V>(20)) ? large : small, x);
}

// float: 1.5 ulp. double: 1.4 ulp.
template <class V>
HT_INLINE V vcosh(V x) {
  const V e = detail::exp_scaled(vabs(x), -1);
  const V quarter = detail::splat<V>(static_cast<lane<V>>(0.25));
  return e + quarter / e;
}

}  // namespace ht

#endif  // HARDTACK_TEMPLATES_VMATH_EXP_H
