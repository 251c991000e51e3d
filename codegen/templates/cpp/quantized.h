// Products of rows of float, bf16 or f16 with a weight that is stored as codes of 8 or 4 bits, which a few steps make such
// numbers:
//
//   w[k, n] = the steps, one after the other, of float(code[k, n])
//
// Each step subtracts, multiplies by or adds a number of a table, which `group` neighbouring k of a column share: in float,
// rounded by itself to its own type. More than a few rows give what gemm_packed gives with the same weights as they become,
// bit by bit; a few are summed in float in the order of k, which for float rows is the same, too.
//
// A few rows are bound by how fast codes arrive: these become numbers in registers. More rows have a unit's panels made in
// the worker's workspace, block by block, as float or, where pairs are multiplied (half.h), as pairs.
#ifndef HARDTACK_TEMPLATES_QUANTIZED_H
#define HARDTACK_TEMPLATES_QUANTIZED_H

#include "few_rows.h"
#include "gemm.h"

namespace ht {

// A weight [k, n]. Code: int8_t, uint8_t, SignedNibbles, UnsignedNibbles, E2m1Nibbles, E4m3 or E5m2.
template <class CodeOf, class... Steps>
struct QuantizedPanels {
  using Code = CodeOf;
  const Code* codes;  // [ceil(n / 32)][k][32]; of nibbles [ceil(n / 32)][ceil(k / 2)][32]: lines as codes.h has them
  const void* tables[sizeof...(Steps) == 0 ? 1 : sizeof...(Steps)];  // each [ceil(n / 32)][ceil(k / group)][32]
  int64_t k, group;
  float factors[sizeof...(Steps) == 0 ? 1 : sizeof...(Steps)];  // of tables that are Factored

  static constexpr int kSteps = static_cast<int>(sizeof...(Steps));
  template <int N>
  using Numbers = detail::StepNumbers<N, Code, Steps...>;

  // The line of a panel that has row `at` of it.
  HT_MEMBER const Code* line(int64_t panel, int64_t at) const {
    constexpr int64_t rows = detail::kLineRows<Code>;
    return codes + (panel * ceil_div(k, rows) + at / rows) * kPanel;
  }
  // How many k share their numbers: with no steps all.
  HT_MEMBER int64_t group_rows() const { return kSteps == 0 ? most(1, k) : group; }
  // Where a panel's numbers begin in the tables.
  HT_MEMBER int64_t numbers_at(int64_t panel) const { return kSteps == 0 ? 0 : panel * ceil_div(k, group) * kPanel; }
  // NV vectors of them, as vectors `first` and following, in the order of lines where that is spread (codes.h); those two
  // groups further are asked for.
  template <int NV, bool kSpread, int N>
  HT_MEMBER void load_numbers(Numbers<N>& to, int first, int64_t at) const {
    int i = 0;
    ((load_numbers_of<Steps, NV, kSpread>(to.of[i] + first, i, at), i++), ...);
  }
  template <class Step, int NV, bool kSpread>
  HT_MEMBER void load_numbers_of(vec<float>* to, int step, int64_t at) const {
    using Table = detail::TableOf<typename Step::Number>;
    const auto from = static_cast<const typename Table::Stored*>(tables[step]) + at;
    prefetch_columns<NV>(from + 2 * kPanel);
    HT_UNROLL_ALL
    for (int v = 0; v < NV; v++) {
      to[v] = detail::load_number(from + v * W);
      if constexpr (Table::kScaled) to[v] = to[v] * factors[step];
    }
    if constexpr (kSpread) detail::spread(to);
  }
};

namespace detail {

// Where the next k of a panel goes: a row of float, or every second one a row of pairs, whose numbers are bf16 already.
struct FloatRows {
  float* to;
  HT_MEMBER void put(vec<float> x, int column) { store(to + column, x); }
  HT_MEMBER void next() { to += kPanel; }
  HT_MEMBER void end() {}
};
struct PairRows {
  bf16x2* to;
  vec<uint32_t> even[kPanel / W] = {};
  bool odd = false;

  HT_MEMBER void put(vec<float> x, int column) {
    const vec<uint32_t> bits = bit_copy<vec<uint32_t>>(x);
    if (!odd) {
      even[column / W] = bits >> 16;
      return;
    }
    const vec<uint32_t> pairs = even[column / W] | (bits & 0xffff0000u);
    __builtin_memcpy(to + column, &pairs, sizeof(pairs));
  }
  HT_MEMBER void next() {
    to += odd ? kPanel : 0;
    odd = !odd;
  }
  HT_MEMBER void end() {
    if (odd) __builtin_memcpy(to, even, sizeof(even));
  }
};
HT_INLINE FloatRows rows_to(float* to) { return {to}; }
HT_INLINE PairRows rows_to(bf16x2* to) { return {to}; }

// k [begin, begin + count) of a panel as numbers.
template <class Panel, class Weights>
HT_INLINE void dequantize_panel(Panel* panel_rows, const Weights& weights, int64_t panel, int64_t begin,
                                int64_t count) {
  auto to = rows_to(panel_rows);
  constexpr int NV = kPanel / W;
  const int64_t end = begin + count, group = weights.group_rows();
  int64_t at = weights.numbers_at(panel) + begin / group * kPanel;
  int64_t before = begin % group;  // k of the first group that are not asked for
  for (int64_t k = begin; k < end; at += kPanel, before = 0) {
    typename Weights::template Numbers<NV> numbers;
    weights.template load_numbers<NV, false>(numbers, 0, at);
    for (const int64_t next = k + least(end - k, group - before); k < next; k++) {
      const auto line = weights.line(panel, k);
      const int row = static_cast<int>(k % kLineRows<typename Weights::Code>);
      HT_UNROLL_ALL
      for (int v = 0; v < NV; v++) to.put(numbers.template apply<false>(load_codes(line, row, v * W), v), v * W);
      prefetch_codes(line);
      to.next();
    }
  }
  to.end();
}

}  // namespace detail

template <class T, class Weights>
struct QuantizedGemm : PackedGemm<T> {
  using Panel = typename PanelOf<T, Staged<T>>::type;
  Weights weights;

  HT_MEMBER PanelView<Panel> panels(int64_t, Range p, const KBlock& kb, void* scratch) const {
    const auto to = static_cast<Panel*>(scratch);
    const int64_t numel = (same<Panel, float> ? kb.kc : packed_rows<T>(kb.kc)) * kPanel;
    for (int64_t i = p.begin; i < p.end; i++)
      detail::dequantize_panel(to + (i - p.begin) * numel, weights, i, kb.c, kb.kc);
    return {to, numel, kPanel};
  }
};

// acc[m, n] = sum over k of a[m * lda + k] * weights[k, n], to the epilogue as batch 0.
// Workspace of a worker: gemm_nbytes of cpu_workspace.py, dequantises.
template <class Cut, class T, class Weights, class Epi>
int32_t gemm_quantized(const HtKernelArgs* args, const T* a, int64_t lda, const Weights& weights, int64_t m, int64_t n,
                       const Epi& epi) {
  const QuantizedGemm<T, Weights> source = {{a, lda, nullptr, weights.k}, weights};
  if (m > kFewRows) return run_blocks<Cut>(args, source, epi, 1, m, n, {1, weights.k});
  if (m == 0 || n == 0) return HT_KERNEL_OK;
  using Blocks = FewRowsBlocks<Cut>;
  const Grid grid = make_grid<Blocks>(1, m, n, weights.k, args->parallel->nworkers, kMaxRows);
  for_units(args, grid, false, [&](const Unit& unit, int32_t worker) {
    float* tile = reinterpret_cast<float*>(worker_workspace(args, worker));
    switch (m) {
      case 1: return detail::run_few_rows<1>(source, epi, unit.p, n, tile);
      case 2: return detail::run_few_rows<2>(source, epi, unit.p, n, tile);
      case 3: return detail::run_few_rows<3>(source, epi, unit.p, n, tile);
      case kFewRows: return detail::run_few_rows<kFewRows>(source, epi, unit.p, n, tile);
    }
  });
  return HT_KERNEL_OK;
}
template <class T, class Weights, class Epi>
int32_t gemm_quantized(const HtKernelArgs* args, const T* a, int64_t lda, const Weights& weights, int64_t m, int64_t n,
                       const Epi& epi) {
  return gemm_quantized<MachineBlocks<T>>(args, a, lda, weights, m, n, epi);
}

}  // namespace ht

#endif  // HARDTACK_TEMPLATES_QUANTIZED_H
