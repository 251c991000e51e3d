// The softmax of attention over a block of keys, with a running maximum and sum.
#ifndef HARDTACK_TEMPLATES_ATTENTION_SOFTMAX_H
#define HARDTACK_TEMPLATES_ATTENTION_SOFTMAX_H

#include "attention_task.h"
#include "vmath_exp.h"

namespace ht {
namespace detail {

template <class T>
HT_INLINE vec<float> masked(const Attention<T>& a, const char* mask, int64_t key, vec<float> s, int n) {
  const int64_t stride = a.mask_strides[3];
  if (a.mask_kind == MaskKind::kAdd) {
    const T* m = reinterpret_cast<const T*>(mask) + key * stride;
    return s + (stride == 1 ? load_n(m, n) : load_strided(m, stride, n));
  }
  if (a.mask_kind == MaskKind::kAddFloat) {
    const float* m = reinterpret_cast<const float*>(mask) + key * stride;
    return s + (stride == 1 ? load_n(m, n) : load_strided(m, stride, n));
  }
  if (a.mask_kind == MaskKind::kKeep) {
    const uint8_t* m = reinterpret_cast<const uint8_t*>(mask) + key * stride;
    const vmask keep = mask_of(stride == 1 ? load_n(m, n) : load_strided(m, stride, n));
    return select(keep, s, bcast(-__builtin_inff()));
  }
  return s;
}

// Scales `seen` raw scores and adds the mask; the largest of them. A maximum waits for the one before it, so that four
// run side by side.
template <class T>
HT_INLINE float scale_row(const Attention<T>& a, const char* mask, int64_t first, int64_t seen, float* s) {
  constexpr int kChains = 4;
  const vec<float> scale = bcast(a.scale), none = bcast(-__builtin_inff());
  vec<float> peak[kChains];
  for (vec<float>& p : peak) p = none;
  int64_t j = 0;
  for (; j + kChains * W <= seen; j += kChains * W) {
    HT_UNROLL_ALL
    for (int v = 0; v < kChains; v++) {
      const int64_t at = j + v * W;
      const vec<float> x = masked(a, mask, first + at, load(s + at) * scale, W);
      store(s + at, x);
      peak[v] = vmax(peak[v], x);
    }
  }
  for (; j < seen; j += W) {
    const int n = static_cast<int>(seen - j < W ? seen - j : W);
    vec<float> x = masked(a, mask, first + j, load(s + j) * scale, n);
    if (n < W) x = select(first_n(n), x, none);
    store(s + j, x);
    peak[0] = vmax(peak[0], x);
  }
  return hmax(vmax(vmax(peak[0], peak[1]), vmax(peak[2], peak[3])));
}

// Brings a row's running maximum, sum and output up to date for a block whose weights are relative to `now` and have this
// sum. factor: what the row so far is worth relative to it.
template <class T>
HT_INLINE void follow_peak(const AttentionTask<T>& t, int64_t row, bool moves, vec<float> factor, float now, float sum) {
  if (moves) {
    float* o = t.o + row * t.columns;
    t.sum[row] *= factor[0];
    for (int64_t c = 0; c < t.columns; c += W) store(o + c, load(o + c) * factor);
  }
  t.sum[row] += sum;
  t.peak[row] = now;
}

// Turns a row of raw scores into weights e^(score - maximum), 0 from `seen` to `count`, and brings the row's running
// maximum, sum and output up to date. `seen` keys of the block are visible. The weights take the place of the scores.
template <class T>
inline void soften_row(const AttentionTask<T>& t, int64_t row, int64_t first, int64_t seen, int64_t count, float* s) {
  const float here = scale_row(*t.a, t.row[row].mask, first, seen, s);
  const float before = t.peak[row];
  const float now = (before > here || before != before) ? before : here;
  // Nothing seen yet: any finite reference does, the weights are all e^-infinity.
  const vec<float> reference = bcast(now == -__builtin_inff() ? 0.0f : now);
  vec<float> sum{};
  int64_t j = 0;
  for (; j < seen; j += W) {
    const vec<float> w = vexp_nonpositive(load(s + j) - reference);
    store(s + j, w);
    sum += w;
  }
  for (; j < count; j += W) store(s + j, vec<float>{});
  follow_peak(t, row, first > 0 && before != now, vexp_nonpositive(bcast(before) - reference), now, hsum(sum));
}

#if defined(HT_BF16_PAIRS)

// The larger one; x's NaNs are passed over, since they make weights that are none.
HT_INLINE vec<float> larger_than(vec<float> peak, vec<float> x) {
#if defined(HT_AVX512)
  return bit_copy<vec<float>>(_mm512_max_ps(bit_copy<__m512>(x), bit_copy<__m512>(peak)));
#else
  return (x > peak) ? x : peak;
#endif
}

// The largest of `seen` scores as they are. Those behind them, to the end of two vectors, become -infinity.
HT_INLINE float peak_of_row(float* s, int64_t seen) {
  const vec<float> none = bcast(-__builtin_inff());
  vec<float> peak[4] = {none, none, none, none};
  int64_t j = 0;
  for (; j + 4 * W <= seen; j += 4 * W)
    HT_UNROLL_ALL
    for (int v = 0; v < 4; v++) peak[v] = larger_than(peak[v], load(s + j + v * W));
  for (const int64_t end = ceil_div(seen, 2 * W) * 2 * W; j < end; j += W) {
    const int n = static_cast<int>(most(0, least(W, seen - j)));
    const vec<float> x = n == W ? load(s + j) : select(first_n(n), load(s + j), none);
    if (n < W) store(s + j, x);
    peak[0] = larger_than(peak[0], x);
  }
  return hmax(vmax(vmax(peak[0], peak[1]), vmax(peak[2], peak[3])));
}

// 2 * W weights, rounded to bf16, in pairs of neighbours.
HT_INLINE vec<uint32_t> weight_pairs(vec<float> first, vec<float> second) {
#if defined(HT_AVX512) && defined(__AVX512BF16__)
  return bit_copy<vec<uint32_t>>(_mm512_cvtne2ps_pbh(bit_copy<__m512>(second), bit_copy<__m512>(first)));
#else
  const vec<uint16_t> halves[2] = {narrow_normal_bf16(first), narrow_normal_bf16(second)};
  return bit_copy<vec<uint32_t>>(halves);
#endif
}

// The same for weights of bf16, which must be summed as they are multiplied, after rounding: exponentials to the digits that
// a weight has, of scores * slope, in base 2. Raw scores serve as they are where nothing is added to them and the largest
// makes the largest weight.
template <class T>
inline void soften_pairs(const AttentionTask<T>& t, int64_t row, int64_t first, int64_t seen, int64_t count, float* s) {
  constexpr float kLog2E = 1.44269504f;
  const Attention<T>& a = *t.a;
  const bool raw = a.mask_kind == MaskKind::kNone && a.scale > 0;
  if (!raw) scale_row(a, t.row[row].mask, first, seen, s);
  const float slope = raw ? a.scale * kLog2E : kLog2E, before = t.peak[row];
  const float here = peak_of_row(s, seen) * slope, now = before > here ? before : here;
  const vec<float> k = bcast(slope), reference = bcast(now == -__builtin_inff() ? 0.0f : -now);
  const vec<uint32_t> ones = bcast<uint32_t>(0x3f803f80u);
  vec<float> sum{};
  char* weights = reinterpret_cast<char*>(s);  // a weight is half as long as a score: read before it is overwritten
  int64_t j = 0;
  for (; j < seen; j += 2 * W, weights += sizeof(ones)) {
    const vec<float> x = fma(load(s + j), k, reference), y = fma(load(s + j + W), k, reference);
    const vec<uint32_t> pairs = weight_pairs(vexp2_short(x), vexp2_short(y));
    __builtin_memcpy(weights, &pairs, sizeof(pairs));
    sum = dot_pair(sum, ones, pairs);
  }
  for (; j < count; j += 2 * W, weights += sizeof(ones)) __builtin_memset(weights, 0, sizeof(ones));
  follow_peak(t, row, first > 0 && before != now, vexp2_short(bcast(before) + reference), now, hsum(sum));
}
#endif

}  // namespace detail
}  // namespace ht

#endif  // HARDTACK_TEMPLATES_ATTENTION_SOFTMAX_H
