// Running sums, products, maxima and minima along the middle axis of [outer, n, inner].
//
// Every line is one chain in the order of the axis, so the result does not depend on how the work is split. Sums and
// products of floats run in double, as torch's on the CPU do; of 16-bit floats in float.
#ifndef HARDTACK_TEMPLATES_SCAN_H
#define HARDTACK_TEMPLATES_SCAN_H

#include "parallel.h"
#include "simd.h"

namespace ht {

enum class ScanKind { kSum, kProduct };

namespace detail {

// The type that a running sum of T is kept in.
template <class T>
struct SumOf {
  using type = T;
};
template <>
struct SumOf<float> {
  using type = double;
};
template <>
struct SumOf<bf16> {
  using type = float;
};
template <>
struct SumOf<f16> {
  using type = float;
};

// What wraps on overflow is computed unsigned.
template <class T>
HT_INLINE T combine(ScanKind kind, T a, T b) {
  if constexpr (is_float<T>) {
    return kind == ScanKind::kSum ? a + b : a * b;
  } else {
    const uint64_t x = static_cast<uint64_t>(a), y = static_cast<uint64_t>(b);
    return static_cast<T>(kind == ScanKind::kSum ? x + y : x * y);
  }
}

// Lines of a task: one where the axis is last, otherwise neighbours, which are scanned side by side.
constexpr int64_t kScanLines = 64;

// body(first element, lines) for groups of at most kScanLines neighbouring lines.
template <class Body>
HT_INLINE void for_lines(const HtKernelArgs* args, int64_t outer, int64_t n, int64_t inner, const Body& body) {
  if (outer == 0 || n == 0 || inner == 0) return;
  const int64_t groups = ceil_div(inner, kScanLines);
  const int64_t batch = most(1, 4096 / (n * least(inner, kScanLines)));
  const int64_t total = outer * groups;
  parallel_for(args, ceil_div(total, batch), [&](int64_t index, int32_t) {
    for (int64_t g = index * batch; g < least(total, (index + 1) * batch); g++) {
      const int64_t line = g % groups * kScanLines;
      body(g / groups * n * inner + line, least(kScanLines, inner - line));
    }
  });
}

// One dense line, with the running value in a register.
template <ScanKind kind, class Acc, class In, class Out>
HT_INLINE void scan_line(const In* x, Out* y, int64_t n) {
  Acc acc = static_cast<Acc>(kind == ScanKind::kSum ? 0 : 1);
  for (int64_t j = 0; j < n; j++) {
    acc = combine<Acc>(kind, acc, static_cast<Acc>(load1(x + j)));
    store1(y + j, static_cast<reg<Out>>(acc));
  }
}

}  // namespace detail

// y = the running sum or product of x, both [outer, n, inner]. Out is the element type of the result, in which integers
// wrap.
template <class In, class Out>
inline void scan(const HtKernelArgs* args, ScanKind kind, const In* x, Out* y, int64_t outer, int64_t n,
                 int64_t inner) {
  using Acc = typename detail::SumOf<Out>::type;
  detail::for_lines(args, outer, n, inner, [&](int64_t first, int64_t lines) {
    if (inner == 1) return kind == ScanKind::kSum ? detail::scan_line<ScanKind::kSum, Acc>(x + first, y + first, n)
                                                  : detail::scan_line<ScanKind::kProduct, Acc>(x + first, y + first, n);
    Acc acc[detail::kScanLines];
    for (int64_t l = 0; l < lines; l++) acc[l] = static_cast<Acc>(kind == ScanKind::kSum ? 0 : 1);
    for (int64_t j = 0; j < n; j++) {
      const In* const from = x + first + j * inner;
      Out* const to = y + first + j * inner;
      for (int64_t l = 0; l < lines; l++) {
        acc[l] = detail::combine<Acc>(kind, acc[l], static_cast<Acc>(load1(from + l)));
        store1(to + l, static_cast<reg<Out>>(acc[l]));
      }
    }
  });
}

// The running maximum (or minimum) and the index at which it was last reached: a later equal element takes over, and
// the first NaN stays the value while later ones take over the index, as in torch.cummax. values and indices are as
// x; either may be null.
template <class T>
inline void scan_extreme(const HtKernelArgs* args, bool maximum, const T* x, T* values, int64_t* indices, int64_t outer,
                         int64_t n, int64_t inner) {
  detail::for_lines(args, outer, n, inner, [&](int64_t first, int64_t lines) {
    reg<T> best[detail::kScanLines];
    int64_t at[detail::kScanLines];
    for (int64_t j = 0; j < n; j++) {
      const int64_t here = first + j * inner;
      for (int64_t l = 0; l < lines; l++) {
        const reg<T> v = load1(x + here + l);
        const bool better = maximum ? v >= best[l] : v <= best[l];
        if (j == 0 || v != v || (best[l] == best[l] && better)) {
          best[l] = v;
          at[l] = j;
        }
        if (values != nullptr) store1(values + here + l, best[l]);
        if (indices != nullptr) indices[here + l] = at[l];
      }
    }
  });
}

}  // namespace ht

#endif  // HARDTACK_TEMPLATES_SCAN_H
