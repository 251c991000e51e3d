// Copies that change a matrix's layout: transposition and packing into panels.
#ifndef HARDTACK_TEMPLATES_PACK_H
#define HARDTACK_TEMPLATES_PACK_H

#include "micro.h"

namespace ht {

namespace detail {

// A 4 x 4 transposition in four 16-byte registers, on every target.
HT_INLINE void transpose_4x4(float* to, int64_t ld_to, const float* from, int64_t ld_from) {
  using V = VecOf<float, 4>::type;
  V r[4];
  for (int i = 0; i < 4; i++) __builtin_memcpy(&r[i], from + i * ld_from, sizeof(V));
  const V lo01 = __builtin_shufflevector(r[0], r[1], 0, 4, 1, 5);
  const V hi01 = __builtin_shufflevector(r[0], r[1], 2, 6, 3, 7);
  const V lo23 = __builtin_shufflevector(r[2], r[3], 0, 4, 1, 5);
  const V hi23 = __builtin_shufflevector(r[2], r[3], 2, 6, 3, 7);
  const V c[4] = {__builtin_shufflevector(lo01, lo23, 0, 1, 4, 5), __builtin_shufflevector(lo01, lo23, 2, 3, 6, 7),
                  __builtin_shufflevector(hi01, hi23, 0, 1, 4, 5), __builtin_shufflevector(hi01, hi23, 2, 3, 6, 7)};
  for (int i = 0; i < 4; i++) __builtin_memcpy(to + i * ld_to, &c[i], sizeof(V));
}

// Interleaves three rows of `columns` elements: pixels of three channels. A store of four lanes spills into the next
// pixel, which is written after it; the last pixels go one by one.
inline void interleave_3(float* to, const float* from, int64_t ld_from, int64_t columns) {
  using V = VecOf<float, 4>::type;
  int64_t c = 0;
  for (; c + 5 <= columns; c += 4) {
    V r[3];
    for (int i = 0; i < 3; i++) __builtin_memcpy(&r[i], from + i * ld_from + c, sizeof(V));
    const V lo = __builtin_shufflevector(r[0], r[1], 0, 4, 1, 5), hi = __builtin_shufflevector(r[0], r[1], 2, 6, 3, 7);
    const V p[4] = {__builtin_shufflevector(lo, r[2], 0, 1, 4, 4), __builtin_shufflevector(lo, r[2], 2, 3, 5, 5),
                    __builtin_shufflevector(hi, r[2], 0, 1, 6, 6), __builtin_shufflevector(hi, r[2], 2, 3, 7, 7)};
    for (int i = 0; i < 4; i++) __builtin_memcpy(to + (c + i) * 3, &p[i], sizeof(V));
  }
  for (; c < columns; c++)
    for (int i = 0; i < 3; i++) to[c * 3 + i] = from[i * ld_from + c];
}

}  // namespace detail

// to[c * ld_to + r] = from[r * ld_from + c] for r < rows, c < columns.
inline void transpose(float* to, int64_t ld_to, const float* from, int64_t ld_from, int64_t rows, int64_t columns) {
  if (rows == 3 && ld_to == 3) return detail::interleave_3(to, from, ld_from, columns);
  int64_t r = 0;
  for (; r + 4 <= rows; r += 4) {
    int64_t c = 0;
    for (; c + 4 <= columns; c += 4) detail::transpose_4x4(to + c * ld_to + r, ld_to, from + r * ld_from + c, ld_from);
    for (; c < columns; c++)
      for (int64_t i = r; i < r + 4; i++) to[c * ld_to + i] = from[i * ld_from + c];
  }
  for (; r < rows; r++)
    for (int64_t c = 0; c < columns; c++) to[c * ld_to + r] = from[r * ld_from + c];
}

// to[r * ld_to + c] = from[r * row_stride + c * column_stride].
inline void copy_matrix(float* to, int64_t ld_to, const float* from, int64_t row_stride, int64_t column_stride,
                        int64_t rows, int64_t columns) {
  if (column_stride == 1) {
    for (int64_t r = 0; r < rows; r++) {
      const float* in = from + r * row_stride;
      float* out = to + r * ld_to;
      int64_t c = 0;
      for (; c + W <= columns; c += W) store(out + c, load(in + c));
      if (c < columns) store_n(out + c, load_n(in + c, static_cast<int>(columns - c)), static_cast<int>(columns - c));
    }
  } else if (row_stride == 1) {
    transpose(to, ld_to, from, column_stride, columns, rows);
  } else {
    for (int64_t r = 0; r < rows; r++)
      for (int64_t c = 0; c < columns; c++) to[r * ld_to + c] = from[r * row_stride + c * column_stride];
  }
}

// A panel of k rows and kPanel columns, of which `columns` exist in `from` and the rest are zero.
inline void pack_panel(float* to, const float* from, int64_t row_stride, int64_t column_stride, int64_t k,
                       int64_t columns) {
  copy_matrix(to, kPanel, from, row_stride, column_stride, k, columns);
  for (int64_t i = 0; i < k && columns < kPanel; i++)
    for (int64_t c = columns; c < kPanel; c++) to[i * kPanel + c] = 0.0f;
}

}  // namespace ht

#endif  // HARDTACK_TEMPLATES_PACK_H
