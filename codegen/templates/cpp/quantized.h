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

#include "float8.h"
#include "gemm.h"

namespace ht {

namespace detail {

// v rounded to T. kShortNans: a NaN among v has zeros in the bits that bf16 lacks, so that it stays one without a look at it.
template <class T, bool kShortNans>
HT_INLINE vec<float> round_to(vec<float> v) {
  if constexpr (same<T, bf16> && kShortNans) {
    const vec<uint32_t> u = bit_copy<vec<uint32_t>>(v);
    return bit_copy<vec<float>>((u + 0x7fffu + ((u >> 16) & 1u)) & 0xffff0000u);
  } else {
    return cast<T>(v);
  }
}

}  // namespace detail

// Steps. Result: what their results are rounded to. Of: the type of the numbers in their table.
template <class Result, class Of = Result>
struct Subtract {
  using Number = Of;
  template <bool kShortNans>
  HT_MEMBER vec<float> take(vec<float> x, vec<float> number) const {
    return detail::round_to<Result, kShortNans>(x - number);
  }
};
template <class Result, class Of = Result>
struct Multiply {
  using Number = Of;
  template <bool kShortNans>
  HT_MEMBER vec<float> take(vec<float> x, vec<float> number) const {
    return detail::round_to<Result, kShortNans>(x * number);
  }
};
template <class Result, class Of = Result>
struct Add {
  using Number = Of;
  template <bool kShortNans>
  HT_MEMBER vec<float> take(vec<float> x, vec<float> number) const {
    return detail::round_to<Result, kShortNans>(x + number);
  }
};

// Two codes of 4 bits: the low half is of column j of a panel, the high half of column j + kPanel / 2.
struct SignedNibbles {  // -8 to 7, stored with 8 added
  uint8_t codes;
};
struct UnsignedNibbles {  // 0 to 15
  uint8_t codes;
};

// Codes that are floats of 8 bits.
struct E4m3 {
  uint8_t code;
};
struct E5m2 {
  uint8_t code;
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

// The same in 16 bits.
HT_INLINE vec<uint16_t> load_short_bytes(const uint8_t* p) {
#if defined(HT_AVX512)
  return bit_copy<vec<uint16_t>>(_mm256_cvtepu8_epi16(bit_copy<__m128i>(load_raw(p))));
#elif defined(HT_AVX2)
  return bit_copy<vec<uint16_t>>(_mm_cvtepu8_epi16(_mm_loadl_epi64(reinterpret_cast<const __m128i*>(p))));
#elif defined(HT_NEON)
  return bit_copy<vec<uint16_t>>(vget_low_u16(vmovl_u8(vcreate_u8(bit_copy<uint32_t>(load_raw(p))))));
#else
  return __builtin_convertvector(load_raw(p), vec<uint16_t>);
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
  } else if constexpr (same<Code, E4m3>) {
    return float_of_e4m3(load_short_bytes(&row[column].code));
  } else if constexpr (same<Code, E5m2>) {
    return float_of_e5m2(load_short_bytes(&row[column].code));
  } else {
    return __builtin_convertvector(load_bytes(row + column), vec<float>);
  }
}

// The numbers of a group for NV vectors of columns, in registers where there is room.
template <int NV, class... Steps>
struct StepNumbers {
  vec<float> of[sizeof...(Steps) + 1][NV];  // one more: there are no arrays of nothing

  HT_MEMBER vec<float> apply(vec<float> x, int v) const {
    constexpr bool kShortNans = (!same<typename Steps::Number, float> && ...);  // those of instructions are so, too
    int i = 0;
    ((x = Steps{}.template take<kShortNans>(x, of[i++][v])), ...);
    return x;
  }
};

}  // namespace detail

// A weight [k, n]. Code: int8_t, uint8_t, SignedNibbles, UnsignedNibbles, E4m3 or E5m2.
template <class Code, class... Steps>
struct QuantizedPanels {
  const Code* codes;  // [ceil(n / 32)][k][32]; of nibbles [ceil(n / 32)][k][16]
  const void* tables[sizeof...(Steps) == 0 ? 1 : sizeof...(Steps)];  // each [ceil(n / 32)][ceil(k / group)][32]
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
    int i = 0;
    ((load_numbers_of<Steps, NV>(to.of[i] + first, tables[i], at), i++), ...);
  }
  template <class Step, int NV>
  HT_MEMBER void load_numbers_of(vec<float>* to, const void* table, int64_t at) const {
    const auto from = static_cast<const typename Step::Number*>(table) + at;
    prefetch_columns<NV>(from + 2 * kPanel);
    HT_UNROLL_ALL
    for (int v = 0; v < NV; v++) to[v] = load(from + v * W);
  }
};

namespace detail {

constexpr int64_t kCodesAhead = 4096;  // bytes of codes that are asked for ahead of their use

template <class Code>
HT_INLINE void prefetch_codes(const Code* codes) {
  __builtin_prefetch(reinterpret_cast<const char*>(codes) + kCodesAhead);
}

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
  auto codes = weights.row(panel, begin);
  for (int64_t k = begin; k < end; at += kPanel, before = 0) {
    typename Weights::template Numbers<NV> numbers;
    weights.template load_numbers<NV>(numbers, 0, at);
    for (const int64_t next = k + least(end - k, group - before); k < next; k++) {
      HT_UNROLL_ALL
      for (int v = 0; v < NV; v++) to.put(numbers.apply(load_codes(codes, v * W), v), v * W);
      prefetch_codes(codes);
      codes += Weights::kRow;
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
template <int MR, int NV, int P, int Column, class T, class Weights>
__attribute__((noinline)) void few_rows_micro(const T* a, int64_t lda, const Weights& shared_weights, int64_t panel,
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
        const vec<float> x = bcast(load1(a + r * lda + k));
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
