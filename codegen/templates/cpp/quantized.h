// Products of float rows with a weight that is stored as codes of 8 or 4 bits, which a few steps make float:
//
//   w[k, n] = the steps, one after the other, of float(code[k, n])
//
// Each step subtracts, multiplies by or adds a number of a table, which `group` neighbouring k of a column share. All is
// in float, each step rounded by itself, and sums run in the order of k: results are those of gemm_packed with the same
// weights as float, bit by bit.
//
// A few rows are bound by how fast codes arrive: these become float in registers. More rows have a unit's panels made float
// in the worker's workspace, block by block, and are multiplied as float rows with float panels are.
#ifndef HARDTACK_TEMPLATES_QUANTIZED_H
#define HARDTACK_TEMPLATES_QUANTIZED_H

#include "gemm.h"

namespace ht {

enum class Step { kSubtract, kMultiply, kAdd };

// Two codes of 4 bits: the low half is of column j of a panel, the high half of column j + kPanel / 2.
struct SignedNibbles {  // -8 to 7, stored with 8 added
  uint8_t codes;
};
struct UnsignedNibbles {  // 0 to 15
  uint8_t codes;
};

namespace detail {

template <class Code>
constexpr bool is_nibbles = same<Code, SignedNibbles> || same<Code, UnsignedNibbles>;

// W bytes as integers. The conversion of vectors, which clang makes one instruction of, takes g++ a dozen.
template <class T>
HT_INLINE vec<int32_t> load_bytes(const T* p) {
  static_assert(sizeof(T) == 1, "bytes");
  constexpr bool is_signed = same<T, int8_t>;
#if defined(HT_AVX512)
  const __m128i bytes = bit_copy<__m128i>(load_raw(p));
  return bit_copy<vec<int32_t>>(is_signed ? _mm512_cvtepi8_epi32(bytes) : _mm512_cvtepu8_epi32(bytes));
#elif defined(HT_AVX2)
  const __m128i bytes = _mm_loadl_epi64(reinterpret_cast<const __m128i*>(p));
  return bit_copy<vec<int32_t>>(is_signed ? _mm256_cvtepi8_epi32(bytes) : _mm256_cvtepu8_epi32(bytes));
#elif defined(HT_NEON)
  const uint64_t bytes = bit_copy<uint32_t>(load_raw(p));
  if constexpr (is_signed)
    return bit_copy<vec<int32_t>>(vmovl_s16(vget_low_s16(vmovl_s8(vcreate_s8(bytes)))));
  else
    return bit_copy<vec<int32_t>>(vmovl_u16(vget_low_u16(vmovl_u8(vcreate_u8(bytes)))));
#else
  return __builtin_convertvector(load_raw(p), vec<int32_t>);
#endif
}

// W columns of a panel's row, from `column` on, which is known when this is compiled.
template <class Code>
HT_INLINE vec<float> load_codes(const Code* row, int column) {
  if constexpr (is_nibbles<Code>) {
    constexpr int half = kPanel / 2;
    constexpr int zero = same<Code, SignedNibbles> ? 8 : 0;
    const vec<int32_t> pairs = load_bytes(&row[column % half].codes);
#if defined(HT_AVX512)
    // The instruction reads the lowest four bits: one look-up for what would be a mask, a subtraction and a conversion.
    const vec<float> values = __builtin_convertvector(iota<int32_t>() - zero, vec<float>);
    const vec<int32_t> codes = column < half ? pairs : pairs >> 4;
    return bit_copy<vec<float>>(_mm512_permutexvar_ps(bit_copy<__m512i>(codes), bit_copy<__m512>(values)));
#else
    const vec<int32_t> codes = column < half ? pairs & 15 : pairs >> 4;
    return __builtin_convertvector(codes - zero, vec<float>);
#endif
  } else {
    return __builtin_convertvector(load_bytes(row + column), vec<float>);
  }
}

template <Step S>
HT_INLINE vec<float> take_step(vec<float> x, vec<float> number) {
  if constexpr (S == Step::kSubtract) return x - number;
  if constexpr (S == Step::kMultiply) return x * number;
  if constexpr (S == Step::kAdd) return x + number;
}

// The numbers of a group for NV vectors of columns, in registers where there is room.
template <int NV, Step... Steps>
struct StepNumbers {
  vec<float> of[sizeof...(Steps) + 1][NV];  // one more: there are no arrays of nothing

  HT_MEMBER vec<float> apply(vec<float> x, int v) const {
    int i = 0;
    ((x = take_step<Steps>(x, of[i++][v])), ...);
    return x;
  }
};

}  // namespace detail

// A weight [k, n]. Code: int8_t, uint8_t, SignedNibbles or UnsignedNibbles.
template <class Code, Step... Steps>
struct QuantizedPanels {
  const Code* codes;  // [ceil(n / 32)][k][32]; of nibbles [ceil(n / 32)][k][16]
  const float* tables[sizeof...(Steps) == 0 ? 1 : sizeof...(Steps)];  // each [ceil(n / 32)][ceil(k / group)][32]
  int64_t k, group;

  static constexpr int kSteps = static_cast<int>(sizeof...(Steps));
  static constexpr int64_t kRow = detail::is_nibbles<Code> ? kPanel / 2 : kPanel;  // codes of a panel's row, and bytes
  template <int NV>
  using Numbers = detail::StepNumbers<NV, Steps...>;

  HT_MEMBER const Code* row(int64_t panel, int64_t at) const { return codes + (panel * k + at) * kRow; }
  // How many k share their numbers: with no steps all.
  HT_MEMBER int64_t group_rows() const { return kSteps == 0 ? most(1, k) : group; }
  // Where a panel's numbers begin in the tables.
  HT_MEMBER int64_t numbers_at(int64_t panel) const { return kSteps == 0 ? 0 : panel * ceil_div(k, group) * kPanel; }
  // NV vectors of them, as vectors `first` and following; those two groups further are asked for.
  template <int NV, int All>
  HT_MEMBER void load_numbers(Numbers<All>& to, int first, int64_t at) const {
    HT_UNROLL_ALL
    for (int i = 0; i < kSteps; i++) {
      prefetch_columns<NV>(tables[i] + at + 2 * kPanel);
      HT_UNROLL_ALL
      for (int v = 0; v < NV; v++) to.of[i][first + v] = load(tables[i] + at + v * W);
    }
  }
};

namespace detail {

constexpr int64_t kCodesAhead = 4096;  // bytes of codes that are asked for ahead of their use

template <class Code>
HT_INLINE void prefetch_codes(const Code* codes) {
  __builtin_prefetch(reinterpret_cast<const char*>(codes) + kCodesAhead);
}

// k [begin, begin + count) of a panel as float.
template <class Weights>
HT_INLINE void dequantize_panel(float* to, const Weights& weights, int64_t panel, int64_t begin, int64_t count) {
  constexpr int NV = kPanel / W;
  const int64_t end = begin + count, group = weights.group_rows();
  int64_t at = weights.numbers_at(panel) + begin / group * kPanel;
  int64_t before = begin % group;  // k of the first group that are not asked for
  auto codes = weights.row(panel, begin);
  for (int64_t k = begin; k < end; at += kPanel, before = 0) {
    typename Weights::template Numbers<NV> numbers;
    weights.template load_numbers<NV>(numbers, 0, at);
    for (const int64_t next = k + least(end - k, group - before); k < next; k++) {
      HT_UNROLL_ALL
      for (int v = 0; v < NV; v++) store(to + v * W, numbers.apply(load_codes(codes, v * W), v));
      prefetch_codes(codes);
      codes += Weights::kRow;
      to += kPanel;
    }
  }
}

}  // namespace detail

template <class Weights>
struct QuantizedGemm : PackedGemm<float> {
  Weights weights;

  HT_MEMBER PanelView<float> panels(int64_t, Range p, const KBlock& kb, void* scratch) const {
    const auto to = static_cast<float*>(scratch);
    const int64_t numel = kb.kc * kPanel;
    for (int64_t i = p.begin; i < p.end; i++)
      detail::dequantize_panel(to + (i - p.begin) * numel, weights, i, kb.c, kb.kc);
    return {to, numel, kPanel};
  }
};

// A few rows: panels are read through once, so that a unit may have as many as there are sums for.
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

// tile[r * P * kPanel + p * kPanel + c] = all of k of row r times column c of panel `panel + p * apart`, for MR rows, P
// panels and NV vectors of columns from `Column` on.
template <int MR, int NV, int P, int Column, class Weights>
__attribute__((noinline)) void few_rows_micro(const float* a, int64_t lda, const Weights& shared_weights, int64_t panel,
                                              int64_t apart, float* tile) {
  static_assert(P == 1 || NV * W == kPanel, "sums of whole panels lie side by side");
  constexpr int64_t row = Weights::kRow, line = 64 / row;  // k of a line
  const Weights weights = shared_weights;
  Sums<MR, P * NV> sums;
  sums.clear();
  decltype(weights.row(0, 0)) codes[P];
  int64_t at[P];
  HT_UNROLL_ALL
  for (int p = 0; p < P; p++) {
    codes[p] = weights.row(panel + p * apart, 0);
    at[p] = weights.numbers_at(panel + p * apart) + Column;
  }
  const auto ahead = [&] {
    HT_UNROLL_ALL
    for (int p = 0; p < P; p++) prefetch_codes(codes[p]);
  };
  for (int64_t k = 0; k < weights.k;) {
    typename Weights::template Numbers<P * NV> numbers;
    HT_UNROLL_ALL
    for (int p = 0; p < P; p++) {
      weights.template load_numbers<NV>(numbers, p * NV, at[p]);
      at[p] += kPanel;
    }
    const auto step = [&] {
      vec<float> bv[P * NV];
      HT_UNROLL_ALL
      for (int p = 0; p < P; p++) {
        HT_UNROLL_ALL
        for (int v = 0; v < NV; v++) bv[p * NV + v] = numbers.apply(load_codes(codes[p], Column + v * W), p * NV + v);
        codes[p] += row;
      }
      HT_UNROLL_ALL
      for (int r = 0; r < MR; r++) {
        const vec<float> x = bcast(a[r * lda + k]);
        HT_UNROLL_ALL
        for (int v = 0; v < P * NV; v++) sums.acc[r][v] = fma(x, bv[v], sums.acc[r][v]);
      }
      k++;
    };
    const int64_t next = k + least(weights.k - k, weights.group_rows());
    while (k + line <= next) {
      ahead();
      HT_UNROLL_ALL
      for (int i = 0; i < line; i++) step();
    }
    while (k < next) {
      ahead();
      step();
    }
  }
  sums.finish(tile, P * kPanel);
}

// The same of all columns, NV vectors after the other.
template <int MR, int NV, int P, int Column = 0, class Weights>
HT_INLINE void few_rows_columns(const float* a, int64_t lda, const Weights& weights, int64_t panel, int64_t apart,
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

// acc[m, n] = sum over k of a[m * lda + k] * weights[k, n], to the epilogue as batch 0.
// Workspace of a worker: gemm_nbytes of cpu_workspace.py, dequantises.
template <class Cut, class Weights, class Epi>
int32_t gemm_quantized(const HtKernelArgs* args, const float* a, int64_t lda, const Weights& weights, int64_t m,
                       int64_t n, const Epi& epi) {
  const QuantizedGemm<Weights> source = {{a, lda, nullptr, weights.k}, weights};
  if (m > kFewRows) return run_blocks<Cut>(args, source, epi, 1, m, n, {1, weights.k});
  if (m == 0 || n == 0) return HT_KERNEL_OK;
  using Blocks = FewRowsBlocks<Cut>;
  const Grid grid = make_grid<Blocks>(1, m, n, weights.k, args->parallel->nworkers, block_rows<float>(m, weights.k));
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
template <class Weights, class Epi>
int32_t gemm_quantized(const HtKernelArgs* args, const float* a, int64_t lda, const Weights& weights, int64_t m,
                       int64_t n, const Epi& epi) {
  return gemm_quantized<MachineBlocks<float>>(args, a, lda, weights, m, n, epi);
}

}  // namespace ht

#endif  // HARDTACK_TEMPLATES_QUANTIZED_H
