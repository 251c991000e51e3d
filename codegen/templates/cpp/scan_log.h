// The running logarithm of a sum of exponentials along the middle axis of [outer, n, inner].
#ifndef HARDTACK_TEMPLATES_SCAN_LOG_H
#define HARDTACK_TEMPLATES_SCAN_LOG_H

#include "scan.h"
#include "vmath.h"

namespace ht {

namespace detail {

// log(e^a + e^b); an infinity stays what it is, and NaN wins.
template <class V>
HT_INLINE V log_plus(V a, V b) {
  const V high = vmax(a, b), low = vmin(a, b);
  const V sum = high + vlog1p(vexp(low - high));
  return select(eq(vabs(high), splat<V>(R<V>::infinity)), high, sum);
}

}  // namespace detail

// Both [outer, n, inner]. The running value is a double for floats, as torch's on the CPU.
template <class T>
inline void scan_logsumexp(const HtKernelArgs* args, const T* x, T* y, int64_t outer, int64_t n, int64_t inner) {
  using Acc = typename detail::SumOf<T>::type;
  detail::for_lines(args, outer, n, inner, [&](int64_t first, int64_t lines) {
    for (int64_t l = 0; l < lines; l += W) {
      const int count = static_cast<int>(least(W, lines - l));
      vec<Acc> sum = -detail::splat<vec<Acc>>(detail::R<vec<Acc>>::infinity);
      for (int64_t at = first + l, j = 0; j < n; j++, at += inner) {
        sum = detail::log_plus(sum, cast<Acc>(load_n(x + at, count)));
        store_n(y + at, cast<reg<T>>(sum), count);
      }
    }
  });
}

}  // namespace ht

#endif  // HARDTACK_TEMPLATES_SCAN_LOG_H
