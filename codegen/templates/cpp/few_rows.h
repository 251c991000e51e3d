// A few rows times a weight of codes (quantized.h): bound by how fast codes arrive, these become numbers in registers, and
// sums run in float in the order of k.
#ifndef HARDTACK_TEMPLATES_FEW_ROWS_H
#define HARDTACK_TEMPLATES_FEW_ROWS_H

#include "blocks.h"
#include "code_steps.h"

namespace ht {

// Panels are read through once, so that a unit may have as many as there are sums for.
template <class Cut>
struct FewRowsBlocks : Cut {
  static constexpr int64_t unit_depth = Cut::panels * Cut::depth;
};

namespace detail {

// Panels that are multiplied at once. AVX-512 has a panel's sums of a row in two registers, which wait for each other.
#if defined(HT_AVX512)
constexpr int panels_at_once(int mr) { return mr <= 2 ? 2 : 1; }
#else
constexpr int panels_at_once(int) { return 1; }
#endif

// MR rows, P panels and NV vectors of columns from `Column` on.
template <int MR, int NV, int P, int Column, class T, class Weights>
struct FewRows {
  static_assert(P == 1 || NV * W == kPanel, "sums of whole panels lie side by side");
  using Code = typename Weights::Code;
  using Numbers = typename Weights::template Numbers<P * NV>;
  static constexpr int kRows = kLineRows<Code>;
  static constexpr int kRun = 64 / kPanel * kRows;  // k of a line of the cache

  const T* a;
  int64_t lda;
  Weights weights;
  const Code* lines[P];
  int64_t numbers_at[P];
  Sums<MR, P * NV> sums;

  HT_MEMBER void start(int64_t panel, int64_t apart) {
    sums.clear();
    HT_UNROLL_ALL
    for (int p = 0; p < P; p++) {
      lines[p] = weights.line(panel + p * apart, 0);
      numbers_at[p] = weights.numbers_at(panel + p * apart) + Column;
    }
  }

  HT_MEMBER void load_numbers(Numbers& to) {
    HT_UNROLL_ALL
    for (int p = 0; p < P; p++) {
      weights.template load_numbers<NV, kSpread<Code, NV>>(to, p * NV, numbers_at[p]);
      numbers_at[p] += kPanel;
    }
  }

  // All of k, group by group.
  HT_MEMBER void run() {
    for (int64_t k = 0; k < weights.k;) {
      Numbers numbers;
      load_numbers(numbers);
      const int64_t end = k + least(weights.k - k, weights.group_rows());
      if (numbers.quicken())
        group<true>(numbers, k, end);
      else
        group<false>(numbers, k, end);
      k = end;
    }
  }

  template <bool kQuick>
  HT_MEMBER void group(const Numbers& numbers, int64_t k, int64_t end) {
    while (k < end) {
      HT_UNROLL_ALL
      for (int p = 0; p < P; p++) prefetch_codes(lines[p]);
      if (k % kRows == 0 && k + kRun <= end) {
        HT_UNROLL_ALL
        for (int i = 0; i < kRun; i += kRows) {
          line<kQuick>(numbers, k, 0, kRows);
          k += kRows;
        }
      } else {
        const int row = static_cast<int>(k % kRows);
        if (row == 0)
          line<kQuick>(numbers, k, 0, 1);
        else
          line<kQuick>(numbers, k - row, kRows - 1, kRows);
        k++;
      }
    }
  }

  // Rows [first, last) of the lines at k; behind the last row the next lines are there.
  template <bool kQuick>
  HT_MEMBER void line(const Numbers& numbers, int64_t k, int first, int last) {
    Line<Code, NV> codes[P];
    HT_UNROLL_ALL
    for (int p = 0; p < P; p++) {
      codes[p] = load_line<NV>(lines[p], Column);
      if (last == kRows) lines[p] += kPanel;
    }
    HT_UNROLL_ALL
    for (int i = 0; i < kRows; i++) {
      if (i < first || i >= last) continue;
      vec<float> b[P * NV];
      HT_UNROLL_ALL
      for (int v = 0; v < P * NV; v++) b[v] = numbers.template apply<kQuick>(codes[v / NV].of[i][v % NV], v);
      multiply(b, k + i);
    }
  }

  HT_MEMBER void multiply(const vec<float>* b, int64_t k) {
    HT_UNROLL_ALL
    for (int r = 0; r < MR; r++) {
      const vec<float> x = bcast(load1(a + r * lda + k));
      HT_UNROLL_ALL
      for (int v = 0; v < P * NV; v++) sums.acc[r][v] = fma(x, b[v], sums.acc[r][v]);
    }
  }

  HT_MEMBER void finish(float* tile) {
    if constexpr (kSpread<Code, NV>) {
      HT_UNROLL_ALL
      for (int r = 0; r < MR; r++)
        for (int p = 0; p < P; p++) unspread(sums.acc[r] + p * NV);
    }
    sums.finish(tile, P * kPanel);
  }
};

// tile[r * P * kPanel + p * kPanel + c] = all of k of row r times column c of panel `panel + p * apart`.
template <int MR, int NV, int P, int Column, class T, class Weights>
__attribute__((noinline)) void few_rows_micro(const T* a, int64_t lda, const Weights& weights, int64_t panel,
                                              int64_t apart, float* tile) {
  FewRows<MR, NV, P, Column, T, Weights> rows;
  rows.a = a;
  rows.lda = lda;
  rows.weights = weights;
  rows.start(panel, apart);
  rows.run();
  rows.finish(tile);
}

// The same of all columns, NV vectors after the other.
template <int MR, int NV, int P, int Column = 0, class T, class Weights>
HT_INLINE void few_rows_columns(const T* a, int64_t lda, const Weights& weights, int64_t panel, int64_t apart,
                                float* tile) {
  few_rows_micro<MR, NV, P, Column>(a, lda, weights, panel, apart, tile + Column);
  if constexpr (Column + NV * W < kPanel)
    few_rows_columns<MR, NV, P, Column + NV * W>(a, lda, weights, panel, apart, tile);
}

// The rows times P panels, to the epilogue.
template <int MR, int P, class Source, class Epi>
HT_INLINE void few_rows_panels(const Source& source, const Epi& epi, int64_t n, int64_t panel, int64_t apart,
                               float* tile) {
  constexpr int NV = P == 1 ? micro_vectors(MR) : kPanel / W;
  few_rows_columns<MR, NV, P>(source.a, source.lda, source.weights, panel, apart, tile);
  for (int64_t p = 0; p < P; p++) {
    const int64_t begin = (panel + p * apart) * kPanel;
    finish_rows(source, epi, 0, 0, MR, {begin, least(n, begin + kPanel)}, tile + p * kPanel, P * kPanel);
  }
}

// Panels that are multiplied at once lie half of a unit apart, so that each worker reads two streams from end to end.
template <int MR, class Source, class Epi>
void run_few_rows(const Source& shared_source, const Epi& shared_epi, Range p, int64_t n, float* tile) {
  const Source source = shared_source;  // as in run_unit
  const Epi epi = shared_epi;
  constexpr int P = panels_at_once(MR);
  const int64_t apart = (p.end - p.begin) / P;
  for (int64_t i = 0; i < apart; i++) few_rows_panels<MR, P>(source, epi, n, p.begin + i, apart, tile);
  if (p.begin + P * apart < p.end) few_rows_panels<MR, 1>(source, epi, n, p.end - 1, 0, tile);
}

}  // namespace detail

}  // namespace ht

#endif  // HARDTACK_TEMPLATES_FEW_ROWS_H
