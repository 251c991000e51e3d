// The steps that make numbers of codes (quantized.h), and how they are taken in fewer instructions.
#ifndef HARDTACK_TEMPLATES_CODE_STEPS_H
#define HARDTACK_TEMPLATES_CODE_STEPS_H

#include "codes.h"

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

enum class StepKind { kSubtract, kMultiply, kAdd };

// How the numbers of a table are stored, whether they have a factor, and whether a NaN among them has zeros in the bits that
// bf16 lacks.
template <class Number>
struct TableOf {
  using Stored = Number;
  static constexpr bool kScaled = false, kShortNans = !same<Number, float>;
};

// Those of a vector as float.
template <class Stored>
HT_INLINE vec<float> load_number(const Stored* from) {
  if constexpr (same<Stored, E8m0>)
    return float_of_e8m0(bit_copy<vec<uint32_t>>(load_bytes(&from->code)));
  else if constexpr (same<Stored, E4m3>)
    return load_codes(from, 0, 0);
  else
    return load(from);
}

}  // namespace detail

// Numbers of a table of Stored that are multiplied with one factor first, in float.
template <class Stored>
struct Factored {};
namespace detail {
template <class Of>
struct TableOf<Factored<Of>> {
  using Stored = Of;
  static constexpr bool kScaled = true, kShortNans = false;
};
}  // namespace detail

// Result: what a step's results are rounded to. Of: the type of the numbers in its table, or Factored.
template <detail::StepKind Kind, class ResultOf, class Of>
struct CodeStep {
  using Result = ResultOf;
  using Number = Of;
  static constexpr detail::StepKind kKind = Kind;

  HT_MEMBER static vec<float> exact(vec<float> x, vec<float> number) {
    if constexpr (Kind == detail::StepKind::kSubtract)
      return x - number;
    else if constexpr (Kind == detail::StepKind::kMultiply)
      return x * number;
    else
      return x + number;
  }
  template <bool kShortNans>
  HT_MEMBER static vec<float> take(vec<float> x, vec<float> number) {
    return detail::round_to<Result, kShortNans>(exact(x, number));
  }
};
template <class Result, class Of = Result>
using Subtract = CodeStep<detail::StepKind::kSubtract, Result, Of>;
template <class Result, class Of = Result>
using Multiply = CodeStep<detail::StepKind::kMultiply, Result, Of>;
template <class Result, class Of = Result>
using Add = CodeStep<detail::StepKind::kAdd, Result, Of>;

namespace detail {

// The first multiplication among steps, where at most one subtraction is before it; -1 where there is none.
template <class... Steps>
constexpr int first_factor() {
  constexpr StepKind kinds[] = {Steps::kKind..., StepKind::kAdd};
  if (kinds[0] == StepKind::kMultiply) return 0;
  if (sizeof...(Steps) > 1 && kinds[0] == StepKind::kSubtract && kinds[1] == StepKind::kMultiply) return 1;
  return -1;
}

// How the first multiplication of a code is taken in fewer instructions, in groups whose factors s allow it.
//
// A product that is rounded to 16 bits, p = c * s with c and s of 16 bits, is two fused ones. Let q be the bits of a float
// that such a number lacks, 16 of bf16 and 13 of f16. s * (2^q + 1) is exact, and float(c * s * (2^q + 1)) = 2^q p + r, where
// r is p rounded as it should be: the sum has the last place of r, and 2^q p is an even multiple of it, so that ties go where
// r's go. 2^q p is subtracted exactly. It takes p that is normal in 16 bits; c is whole, or a float e4m3 or e2m1, s a number of
// the result's type, a power of 2 (e8m0) or a float e4m3, which 16 bits hold where allowed() has it. Where p is -0, +0
// comes out, which a sum could only show if all that is before it came to -0.
template <class Code, class... Steps>
struct FactorOf {
  static constexpr int kAt = -1;
  static constexpr bool kRounds = false;
};
template <class Code, class First, class... Rest>
struct FactorOf<Code, First, Rest...> {
  static constexpr int kAt = first_factor<First, Rest...>();
  template <int At, class A, class... B>
  struct Pick : Pick<At - 1, B...> {};
  template <class A, class... B>
  struct Pick<0, A, B...> {
    using type = A;
  };
  using Step = typename Pick<(kAt < 0 ? 0 : kAt), First, Rest...>::type;
  using Result = typename Step::Result;
  using Number = typename Step::Number;
  static constexpr bool kShortNumbers = same<Result, Number> || same<Number, E8m0> || same<Number, E4m3>;
  static constexpr bool kFloats = (same<Code, E4m3> || is_float4<Code>)&&kAt == 0;
  static constexpr bool kWhole = !is_float8<Code> && !is_float4<Code>;
#if defined(HT_AVX512) || defined(HT_AVX2) || defined(HT_NEON)
  static constexpr bool kFused = true;
#else
  static constexpr bool kFused = false;
#endif
  static constexpr bool kRounds =
      kFused && kAt >= 0 && is_half<Result> && kShortNumbers && (kFloats || kWhole);

  static constexpr float kLeast = !same<Result, f16> ? 0x1p-100f : (kFloats ? 0x1p-5f : 0x1p-14f);
  static constexpr float kMost = same<Result, f16> ? 64.0f : 0x1p90f;
  static constexpr float kRaise = same<Result, f16> ? 0x1p13f : 0x1p16f;  // 2^q

  HT_MEMBER static vmask allowed(vec<float> factor) {
    return ge(factor, bcast(kLeast)) & le(factor, bcast(kMost));
  }
  // What is subtracted before: c is whole then, and as it is in 16 bits.
  HT_MEMBER static vmask allowed_before(vec<float> number) {
    const vec<float> whole = __builtin_convertvector(cast<int32_t>(number), vec<float>);
    constexpr float least = kMostCode<Code> - 256, most = kLeastCode<Code> + 256;
    return eq(number, whole) & ge(number, bcast(least)) & le(number, bcast(most));
  }
};

// The numbers of a group for N vectors of columns, in registers where there is room.
template <int N, class Code, class... Steps>
struct StepNumbers {
  using Factor = FactorOf<Code, Steps...>;
  static constexpr int kCount = sizeof...(Steps);
  vec<float> of[kCount + 1][N];  // one more: there are no arrays of nothing
  vec<float> back[N];            // of a factor in two parts, -2^q of it

  // Whether apply<true> gives what apply<false> does; if so, its numbers are made.
  HT_MEMBER bool quicken() {
    if constexpr (!Factor::kRounds) {
      return false;
    } else {
      vmask able = ~vmask{};
      HT_UNROLL_ALL
      for (int v = 0; v < N; v++) {
        able &= Factor::allowed(of[Factor::kAt][v]);
        if constexpr (Factor::kAt == 1) able &= Factor::allowed_before(of[0][v]);
      }
      if (!hall(able)) return false;
      HT_UNROLL_ALL
      for (int v = 0; v < N; v++) {
        vec<float>& factor = of[Factor::kAt][v];
        back[v] = factor * -Factor::kRaise;
        factor = factor - back[v];
      }
      return true;
    }
  }

  template <bool kQuick>
  HT_MEMBER vec<float> apply(vec<float> x, int v) const {
    constexpr bool kShortNans = (TableOf<typename Steps::Number>::kShortNans && ...);  // those of instructions are so, too
    int i = 0;
    ((x = take<kQuick, kShortNans, Steps>(x, i++, v)), ...);
    return x;
  }

 private:
  template <bool kQuick, bool kShortNans, class Step>
  HT_MEMBER vec<float> take(vec<float> x, int i, int v) const {
    if constexpr (kQuick && Factor::kRounds) {
      if (i == Factor::kAt) return fma(x, back[v], x * of[i][v]);
      if (i < Factor::kAt) return Step::exact(x, of[i][v]);
    }
    return Step::template take<kShortNans>(x, of[i][v]);
  }
};

}  // namespace detail

}  // namespace ht

#endif  // HARDTACK_TEMPLATES_CODE_STEPS_H
