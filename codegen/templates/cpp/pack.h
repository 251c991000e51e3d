// Copies that change a matrix's layout: transposition and packing into panels.
#ifndef HARDTACK_TEMPLATES_PACK_H
#define HARDTACK_TEMPLATES_PACK_H

#include "half.h"
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

// The same of bytes, sixteen pixels at a time.
inline void interleave_3(int8_t* to, const int8_t* from, int64_t ld_from, int64_t columns) {
  using V = VecOf<int8_t, 16>::type;
  int64_t c = 0;
  for (; c + 16 <= columns; c += 16) {
    V r[3];
    for (int i = 0; i < 3; i++) __builtin_memcpy(&r[i], from + i * ld_from + c, sizeof(V));
    const V head = __builtin_shufflevector(r[0], r[1], 0, 16, 0, 1, 17, 0, 2, 18, 0, 3, 19, 0, 4, 20, 0, 5);
    const V middle = __builtin_shufflevector(r[0], r[1], 21, 0, 6, 22, 0, 7, 23, 0, 8, 24, 0, 9, 25, 0, 10, 26);
    const V tail = __builtin_shufflevector(r[0], r[1], 0, 11, 27, 0, 12, 28, 0, 13, 29, 0, 14, 30, 0, 15, 31, 0);
    const V p[3] = {__builtin_shufflevector(head, r[2], 0, 1, 16, 3, 4, 17, 6, 7, 18, 9, 10, 19, 12, 13, 20, 15),
                    __builtin_shufflevector(middle, r[2], 0, 21, 2, 3, 22, 5, 6, 23, 8, 9, 24, 11, 12, 25, 14, 15),
                    __builtin_shufflevector(tail, r[2], 26, 1, 2, 27, 4, 5, 28, 7, 8, 29, 10, 11, 30, 13, 14, 31)};
    __builtin_memcpy(to + c * 3, p, sizeof(p));
  }
  for (; c < columns; c++)
    for (int i = 0; i < 3; i++) to[c * 3 + i] = from[i * ld_from + c];
}

// The same of 16-bit elements, eight pixels at a time.
template <class T>
inline void interleave_3(T* to, const T* from, int64_t ld_from, int64_t columns) {
  static_assert(sizeof(T) == 2, "lanes of 16 bits");
  using V = VecOf<uint16_t, 8>::type;
  int64_t c = 0;
  for (; c + 8 <= columns; c += 8) {
    V r[3];
    for (int i = 0; i < 3; i++) __builtin_memcpy(&r[i], from + i * ld_from + c, sizeof(V));
    const V head = __builtin_shufflevector(r[0], r[1], 0, 8, 0, 1, 9, 0, 2, 10);
    const V middle = __builtin_shufflevector(r[0], r[1], 0, 3, 11, 0, 4, 12, 0, 5);
    const V tail = __builtin_shufflevector(r[0], r[1], 13, 0, 6, 14, 0, 7, 15, 0);
    const V p[3] = {__builtin_shufflevector(head, r[2], 0, 1, 8, 3, 4, 9, 6, 7),
                    __builtin_shufflevector(middle, r[2], 10, 1, 2, 11, 4, 5, 12, 7),
                    __builtin_shufflevector(tail, r[2], 0, 13, 2, 3, 14, 5, 6, 15)};
    __builtin_memcpy(to + c * 3, p, sizeof(p));
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

// As above, of 16-bit numbers as float: a few rows at a time are made float, then transposed.
template <class T>
inline void transpose(float* to, int64_t ld_to, const T* from, int64_t ld_from, int64_t rows, int64_t columns) {
  constexpr int64_t height = 16, width = 64;
  float wide[height * width];
  for (int64_t r = 0; r < rows; r += height) {
    for (int64_t c = 0; c < columns; c += width) {
      const int64_t h = least(height, rows - r), w = least(width, columns - c);
      for (int64_t i = 0; i < h; i++) copy_row(wide + i * width, from + (r + i) * ld_from + c, w);
      transpose(to + c * ld_to + r, ld_to, static_cast<const float*>(wide), width, h, w);
    }
  }
}

// The same without a change of type.
template <class T>
inline void transpose(T* to, int64_t ld_to, const T* from, int64_t ld_from, int64_t rows, int64_t columns) {
  if constexpr (sizeof(T) == 2 || same<T, int8_t>) {
    if (rows == 3 && ld_to == 3) return detail::interleave_3(to, from, ld_from, columns);
  }
  constexpr int64_t height = 32;  // rows whose lines stay in the cache while they are read across
  for (int64_t r = 0; r < rows; r += height)
    for (int64_t c = 0; c < columns; c++)
      for (int64_t i = r; i < least(rows, r + height); i++) to[c * ld_to + i] = from[i * ld_from + c];
}

// to[r * ld_to + c] = from[r * row_stride + c * column_stride].
template <class To, class From>
inline void copy_matrix(To* to, int64_t ld_to, const From* from, int64_t row_stride, int64_t column_stride,
                        int64_t rows, int64_t columns) {
  if (column_stride == 1) {
    for (int64_t r = 0; r < rows; r++) copy_row(to + r * ld_to, from + r * row_stride, columns);
  } else if (row_stride == 1) {
    transpose(to, ld_to, from, column_stride, columns, rows);
  } else {
    for (int64_t r = 0; r < rows; r++)
      for (int64_t c = 0; c < columns; c++)
        store1(to + r * ld_to + c, load1(from + r * row_stride + c * column_stride));
  }
}

// A panel of k rows and kPanel columns, of which `columns` exist in `from` and the rest are zero.
template <class T>
inline void pack_panel(float* to, const T* from, int64_t row_stride, int64_t column_stride, int64_t k,
                       int64_t columns) {
  copy_matrix(to, kPanel, from, row_stride, column_stride, k, columns);
  for (int64_t i = 0; i < k && columns < kPanel; i++)
    for (int64_t c = columns; c < kPanel; c++) to[i * kPanel + c] = 0.0f;
}

namespace detail {

// Pairs of k of `columns` columns, whose rows lie side by side: from[0..columns) with next[0..columns), or with zeros.
HT_INLINE void pair_rows(bf16x2* to, const bf16* from, const bf16* next, int64_t columns) {
  for (int64_t c = 0; c < columns; c += W) {
    const int n = static_cast<int>(least(W, columns - c));
    const vec<uint16_t> even = load_raw_n(&from[c].bits, n);
    const vec<uint16_t> odd = next == nullptr ? vec<uint16_t>{} : load_raw_n(&next[c].bits, n);
    const vec<uint32_t> pairs = __builtin_convertvector(even, vec<uint32_t>) |
                                __builtin_convertvector(odd, vec<uint32_t>) << 16;
    __builtin_memcpy(to + c, &pairs, sizeof(pairs));
  }
}

}  // namespace detail

// The same in pairs of k, of which the last has a zero where k is odd.
inline void pack_panel(bf16x2* to, const bf16* from, int64_t row_stride, int64_t column_stride, int64_t k,
                       int64_t columns) {
  const int64_t pairs = k / 2, rows = packed_rows<bf16>(k);
  if (columns < kPanel) __builtin_memset(to, 0, static_cast<size_t>(rows * kPanel) * sizeof(bf16x2));
  if (column_stride == 1) {
    for (int64_t i = 0; i < rows; i++) {
      const bf16* at = from + 2 * i * row_stride;
      detail::pair_rows(to + i * kPanel, at, 2 * i + 1 < k ? at + row_stride : nullptr, columns);
    }
    return;
  }
  for (int64_t c = 0; c < columns; c++) {
    const bf16* at = from + c * column_stride;
    for (int64_t i = 0; i < pairs; i++) to[i * kPanel + c] = {at[2 * i * row_stride], at[(2 * i + 1) * row_stride]};
    if (rows > pairs) to[pairs * kPanel + c] = {at[2 * pairs * row_stride], bf16{0}};
  }
}

}  // namespace ht

#endif  // HARDTACK_TEMPLATES_PACK_H
