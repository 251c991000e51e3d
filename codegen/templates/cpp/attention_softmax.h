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

// Stores weights, and gives them as they are stored: what is summed must be what is multiplied.
HT_INLINE vec<float> store_weights(float* to, vec<float> w) {
  store(to, w);
  return w;
}
HT_INLINE vec<float> store_weights(bf16* to, vec<float> w) {
  const vec<uint16_t> bits = narrow_normal_bf16(w);  // vexp_nonpositive makes no subnormal number
  store_raw(&to->bits, bits);
  return widen_bf16(bits);
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

// Turns a row of raw scores into weights e^(score - maximum), 0 from `seen` to `count`, and brings the row's running
// maximum, sum and output up to date. `seen` keys of the block are visible. The weights take the place of the scores.
template <class Weight, class T>
inline void soften_row(const AttentionTask<T>& t, int64_t row, int64_t first, int64_t seen, int64_t count, float* s) {
  const Attention<T>& a = *t.a;
  Weight* const weights = reinterpret_cast<Weight*>(s);  // none is wider than a score: read before it is overwritten
  const float here = scale_row(a, t.row[row].mask, first, seen, s);
  const float before = t.peak[row];
  const float now = (before > here || before != before) ? before : here;
  // Nothing seen yet: any finite reference does, the weights are all e^-infinity.
  const vec<float> reference = bcast(now == -__builtin_inff() ? 0.0f : now);
  vec<float> sum{};
  int64_t j = 0;
  for (; j < seen; j += W) sum += store_weights(weights + j, vexp_nonpositive(load(s + j) - reference));
  for (; j < count; j += W) store_weights(weights + j, vec<float>{});
  float* o = t.o + row * t.columns;
  if (first > 0 && before != now) {
    const vec<float> factor = vexp_nonpositive(bcast(before) - reference);
    t.sum[row] *= factor[0];
    for (int64_t c = 0; c < t.columns; c += W) store(o + c, load(o + c) * factor);
  }
  t.sum[row] += hsum(sum);
  t.peak[row] = now;
}

}  // namespace detail
}  // namespace ht

#endif  // HARDTACK_TEMPLATES_ATTENTION_SOFTMAX_H
