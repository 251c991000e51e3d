// Arithmetic on the vectors of simd.h: conversions, comparisons, selection, rounding, horizontal reductions.
// Include simd.h, which includes this.
#ifndef HARDTACK_TEMPLATES_SIMD_MATH_H
#define HARDTACK_TEMPLATES_SIMD_MATH_H

#if defined(__has_builtin)
#if __has_builtin(__builtin_elementwise_fma) && __has_builtin(__builtin_elementwise_roundeven)
#define HT_ELEMENTWISE 1
#endif
#endif

namespace ht {

namespace detail {

// Every lane rounded towards zero; the lowest integer for NaN and for what I cannot hold, as x86 converts.
template <class I, class V>
HT_INLINE vec<I> truncated(V v) {
  using T = lane<V>;
#if defined(HT_AVX512)
  if constexpr (same<T, float> && same<I, int32_t>) return bit_copy<vec<I>>(_mm512_cvttps_epi32(bit_copy<__m512>(v)));
#elif defined(HT_AVX2)
  if constexpr (same<T, float> && same<I, int32_t>) return bit_copy<vec<I>>(_mm256_cvttps_epi32(bit_copy<__m256>(v)));
#endif
  constexpr uint64_t sign = uint64_t{1} << (8 * sizeof(I) - 1);
  const V edge = bcast<T>(static_cast<T>(sign));
  const auto inside = (v >= -edge) & (v < edge);
  const vec<I> whole = __builtin_convertvector(inside ? v : V{}, vec<I>);
  return __builtin_convertvector(inside, vec<I>) ? whole : bcast<I>(static_cast<I>(sign));
}

}  // namespace detail

// C++ conversion of every lane, and defined where C++ is not. Floats go to narrow integers through int32_t, doubles to
// uint8_t and all to uint32_t through int64_t, as torch has it, so that they wrap. cast<bf16> and cast<f16> round and stay vec<float>.
template <class To, class V>
HT_INLINE vec<reg<To>> cast(V v) {
  if constexpr (same<To, bf16>) {
    return detail::round_bf16(cast<float>(v));
  } else if constexpr (same<To, f16>) {
    return detail::widen_f16(detail::narrow_f16(cast<float>(v)));
  } else if constexpr (same<To, lane<V>>) {
    return v;
  } else if constexpr (is_float<lane<V>> && !is_float<To>) {
    constexpr bool of_double = same<To, uint8_t> && same<lane<V>, double>;
    constexpr bool wide = sizeof(To) == 8 || same<To, uint32_t> || of_double;
    const auto whole = detail::truncated<typename IntOf<wide ? 8 : 4>::type>(v);
    return __builtin_convertvector(whole, vec<To>);
  } else {
    return __builtin_convertvector(v, vec<To>);
  }
}

// The bits that From's value has in memory as a To of the same size.
template <class To, class From, class V>
HT_INLINE vec<reg<To>> bitcast(V v) {
  if constexpr (detail::is_half<From>) {
    return bitcast<To, uint16_t>(detail::narrow<From>(v));
  } else if constexpr (detail::is_half<To>) {
    return detail::widen<To>(bit_copy<vec<uint16_t>>(v));
  } else {
    return bit_copy<vec<To>>(v);
  }
}

namespace detail {
// clang gives a comparison of bytes lanes of char, which is unsigned on aarch64: they would become 255, not -1.
template <class M>
HT_INLINE vmask to_vmask(M m) {
  return __builtin_convertvector(bit_copy<mask_lanes<M>>(m), vmask);
}
}  // namespace detail

template <class V>
HT_INLINE vmask lt(V a, V b) {
  return detail::to_vmask(a < b);
}
template <class V>
HT_INLINE vmask le(V a, V b) {
  return detail::to_vmask(a <= b);
}
template <class V>
HT_INLINE vmask gt(V a, V b) {
  return detail::to_vmask(a > b);
}
template <class V>
HT_INLINE vmask ge(V a, V b) {
  return detail::to_vmask(a >= b);
}
template <class V>
HT_INLINE vmask eq(V a, V b) {
  return detail::to_vmask(a == b);
}
template <class V>
HT_INLINE vmask ne(V a, V b) {
  return detail::to_vmask(a != b);
}

// True where a lane is not zero; a NaN counts as true, as in C++.
template <class V>
HT_INLINE vmask mask_of(V v) {
  return detail::to_vmask(v != V{});
}

// True in the first n lanes.
HT_INLINE vmask first_n(int n) { return iota<int32_t>() < bcast<int32_t>(n); }

namespace detail {
template <class V>
HT_INLINE void hide(V& v) {
#if defined(__x86_64__)
  asm("" : "+v"(v));
#elif defined(__aarch64__)
  asm("" : "+w"(v));
#endif
}
}  // namespace detail

// v, of which the compiler then knows nothing. clang takes max(max(v, c), c) for max(v, c) also where the outer one is a
// comparison and a choice, which give c for a NaN.
template <class V>
HT_INLINE V opaque(V v) {
  struct Registers {
    vec<float> of[sizeof(V) / HT_VEC_BYTES];
  };
  auto registers = bit_copy<Registers>(v);
  for (auto& r : registers.of) detail::hide(r);
  return bit_copy<V>(registers);
}

template <class V>
HT_INLINE V select(vmask m, V a, V b) {
  return __builtin_convertvector(m, mask_lanes<V>) ? a : b;
}

// A NaN in either operand gives a NaN, as torch.minimum and torch.maximum do.
template <class V>
HT_INLINE V vmin(V a, V b) {
  return ((a < b) | (a != a)) ? a : b;
}
template <class V>
HT_INLINE V vmax(V a, V b) {
  return ((a > b) | (a != a)) ? a : b;
}
#if defined(HT_AVX512)
// x86's instructions give b where either operand is a NaN, so that a's has to be put back.
HT_INLINE vec<float> vmin(vec<float> a, vec<float> b) {
  const auto x = bit_copy<__m512>(a), least = _mm512_min_ps(x, bit_copy<__m512>(b));
  return bit_copy<vec<float>>(_mm512_mask_mov_ps(least, _mm512_cmp_ps_mask(x, x, _CMP_UNORD_Q), x));
}
HT_INLINE vec<float> vmax(vec<float> a, vec<float> b) {
  const auto x = bit_copy<__m512>(a), most = _mm512_max_ps(x, bit_copy<__m512>(b));
  return bit_copy<vec<float>>(_mm512_mask_mov_ps(most, _mm512_cmp_ps_mask(x, x, _CMP_UNORD_Q), x));
}
#endif

template <class V>
HT_INLINE V vabs(V v) {
  if constexpr (is_float<lane<V>>) {
    using Bits = mask_lanes<V>;
    using Bit = lane<Bits>;
    constexpr Bit all_but_sign = static_cast<Bit>(~(uint64_t{1} << (8 * sizeof(Bit) - 1)));
    return bit_copy<V>(bit_copy<Bits>(v) & all_but_sign);
  } else {
    return v < V{} ? -v : v;
  }
}

// The unsigned integer of a lane type's size.
template <class T>
struct Unsigned {
  using type = T;
};
template <>
struct Unsigned<int8_t> {
  using type = uint8_t;
};
template <>
struct Unsigned<int16_t> {
  using type = uint16_t;
};
template <>
struct Unsigned<int32_t> {
  using type = uint32_t;
};
template <>
struct Unsigned<int64_t> {
  using type = uint64_t;
};

// a << b, 0 where b is negative or not below the width.
template <class V>
HT_INLINE V shl(V a, V b) {
  using U = vec<typename Unsigned<lane<V>>::type>;
  constexpr lane<U> width = 8 * sizeof(lane<V>);
  const U count = bit_copy<U>(b);
  const U moved = bit_copy<U>(a) << (count & static_cast<lane<U>>(width - 1));
  return bit_copy<V>((count < width) ? moved : U{});
}

// a >> b, the sign moved in, which is all there is where b is negative or not below the width.
template <class V>
HT_INLINE V shr(V a, V b) {
  using U = vec<typename Unsigned<lane<V>>::type>;
  constexpr lane<U> width = 8 * sizeof(lane<V>);
  const U count = bit_copy<U>(b);
  const V moved = a >> bit_copy<V>(count & static_cast<lane<U>>(width - 1));
  return (count < width) ? moved : ((a < V{}) ? ~V{} : V{});
}

// a with b's sign bit.
template <class V>
HT_INLINE V vcopysign(V a, V b) {
  using Bits = mask_lanes<V>;
  using Bit = lane<Bits>;
  constexpr Bit sign = static_cast<Bit>(uint64_t{1} << (8 * sizeof(Bit) - 1));
  return bit_copy<V>((bit_copy<Bits>(a) & static_cast<Bit>(~sign)) | (bit_copy<Bits>(b) & sign));
}

#if !defined(HT_ELEMENTWISE) && (defined(HT_AVX512) || defined(HT_AVX2) || defined(HT_NEON))
namespace detail {
#if defined(HT_AVX512)
using Floats = __m512;
using Doubles = Pair<__m512d>;
HT_INLINE Floats fma_register(Floats a, Floats b, Floats c) { return _mm512_fmadd_ps(a, b, c); }
HT_INLINE Doubles fma_register(Doubles a, Doubles b, Doubles c) {
  return {_mm512_fmadd_pd(a.lo, b.lo, c.lo), _mm512_fmadd_pd(a.hi, b.hi, c.hi)};
}
#elif defined(HT_AVX2)
using Floats = __m256;
using Doubles = Pair<__m256d>;
HT_INLINE Floats fma_register(Floats a, Floats b, Floats c) { return _mm256_fmadd_ps(a, b, c); }
HT_INLINE Doubles fma_register(Doubles a, Doubles b, Doubles c) {
  return {_mm256_fmadd_pd(a.lo, b.lo, c.lo), _mm256_fmadd_pd(a.hi, b.hi, c.hi)};
}
#else
using Floats = float32x4_t;
using Doubles = Pair<float64x2_t>;
HT_INLINE Floats fma_register(Floats a, Floats b, Floats c) { return vfmaq_f32(c, a, b); }
HT_INLINE Doubles fma_register(Doubles a, Doubles b, Doubles c) {
  return {vfmaq_f64(c.lo, a.lo, b.lo), vfmaq_f64(c.hi, a.hi, b.hi)};
}
#endif
}  // namespace detail
#define HT_FMA_REGISTER 1
#endif

// a * b + c, rounded once where the target has the instruction; integers as written.
template <class V>
HT_INLINE V fma(V a, V b, V c) {
#if defined(HT_FMA_REGISTER)
  if constexpr (same<lane<V>, float>) {
    using R = detail::Floats;
    return bit_copy<V>(detail::fma_register(bit_copy<R>(a), bit_copy<R>(b), bit_copy<R>(c)));
  } else if constexpr (same<lane<V>, double>) {
    using R = detail::Doubles;
    return bit_copy<V>(detail::fma_register(bit_copy<R>(a), bit_copy<R>(b), bit_copy<R>(c)));
  }
#elif defined(HT_AVX512) || defined(HT_AVX2) || defined(HT_NEON)
  if constexpr (is_float<lane<V>>) return __builtin_elementwise_fma(a, b, c);
#endif
  return a * b + c;
}

#if defined(HT_ELEMENTWISE)
#define HT_UNARY(name, vector_builtin, float_builtin, double_builtin) \
  template <class V>                                                  \
  HT_INLINE V name(V v) {                                             \
    static_assert(is_float<lane<V>>, #name " takes floats");          \
    return vector_builtin(v);                                         \
  }
#else
#define HT_UNARY(name, vector_builtin, float_builtin, double_builtin) \
  template <class V>                                                  \
  HT_INLINE V name(V v) {                                             \
    static_assert(is_float<lane<V>>, #name " takes floats");          \
    V r{};                                                            \
    for (int i = 0; i < W; i++) {                                     \
      if constexpr (sizeof(lane<V>) == 4)                             \
        r[i] = float_builtin(v[i]);                                   \
      else                                                            \
        r[i] = double_builtin(v[i]);                                  \
    }                                                                 \
    return r;                                                         \
  }
#endif
HT_UNARY(vsqrt, __builtin_elementwise_sqrt, __builtin_sqrtf, __builtin_sqrt)
HT_UNARY(vfloor, __builtin_elementwise_floor, __builtin_floorf, __builtin_floor)
HT_UNARY(vceil, __builtin_elementwise_ceil, __builtin_ceilf, __builtin_ceil)
HT_UNARY(vtrunc, __builtin_elementwise_trunc, __builtin_truncf, __builtin_trunc)
HT_UNARY(vround, __builtin_elementwise_roundeven, __builtin_roundevenf, __builtin_roundeven)
#undef HT_UNARY

#if defined(HT_AVX2)
namespace detail {

// Numbers that are no larger than codes less their zero point, rounded as they are converted. What is no int32, NaN too, becomes
// the lowest one, and then the lowest word, to which no zero point gives a code above 0.
HT_INLINE vec<uint8_t> narrow_codes(vec<float> numbers, vec<float> zero) {
  const __m256i whole = _mm256_cvtps_epi32(bit_copy<__m256>(numbers));
  const __m128i words = _mm_packs_epi32(_mm256_castsi256_si128(whole), _mm256_extracti128_si256(whole, 1));
  const __m128i moved = _mm_adds_epi16(words, bit_copy<__m128i>(__builtin_convertvector(zero, vec<int16_t>)));
  const __m128i codes = _mm_packus_epi16(moved, moved);
  vec<uint8_t> found;
  __builtin_memcpy(&found, &codes, sizeof(found));
  return found;
}

}  // namespace detail
#endif

// Codes: round(a) + b, at most c and at least 0, and 0 of NaN. b is whole, up to 2^14 from 0, c whole, from 0 to 255. As float
// they take no conversion, as uint8_t none but that.
template <class To>
HT_INLINE vec<To> vcode(vec<float> a, vec<float> b, vec<float> c) {
#if defined(HT_AVX2)
  if constexpr (same<To, uint8_t>) return detail::narrow_codes(vmin(c - b, a), b);
#endif
  const vec<float> code = vmin(c, vround(a) + b);
  return cast<To>(code > vec<float>{} ? code : vec<float>{});
}

// Horizontal reductions: a fixed tree, lane i with lane i + half.

namespace detail {

struct Sum {
  template <class T>
  HT_MEMBER T operator()(T a, T b) const {
    return a + b;
  }
};
struct Product {
  template <class T>
  HT_MEMBER T operator()(T a, T b) const {
    return a * b;
  }
};
struct Minimum {
  template <class T>
  HT_MEMBER T operator()(T a, T b) const {
    return ((a < b) | (a != a)) ? a : b;
  }
};
struct Maximum {
  template <class T>
  HT_MEMBER T operator()(T a, T b) const {
    return ((a > b) | (a != a)) ? a : b;
  }
};

template <class T, int N, class Op>
HT_INLINE T fold(typename VecOf<T, N>::type v, Op op) {
  if constexpr (N == 2) {
    const T lo = v[0], hi = v[1];
    return op(lo, hi);
  } else if constexpr (N == 4) {
    // The order of halves, spelt out: with two vectors of 8 bytes clang 21's instruction selection never ends where the
    // lanes are known to be small (bytes, booleans) and a constant mask leaves some of them (AVX-512).
    return op(op(static_cast<T>(v[0]), static_cast<T>(v[2])), op(static_cast<T>(v[1]), static_cast<T>(v[3])));
  } else {
    using Half = typename VecOf<T, N / 2>::type;
    Half half[2];
    __builtin_memcpy(half, &v, sizeof(half));
    return fold<T, N / 2>(op(half[0], half[1]), op);
  }
}

}  // namespace detail

template <class V>
HT_INLINE lane<V> hsum(V v) {
  return detail::fold<lane<V>, W>(v, detail::Sum{});
}
template <class V>
HT_INLINE lane<V> hprod(V v) {
  return detail::fold<lane<V>, W>(v, detail::Product{});
}
template <class V>
HT_INLINE lane<V> hmin(V v) {
  return detail::fold<lane<V>, W>(v, detail::Minimum{});
}
template <class V>
HT_INLINE lane<V> hmax(V v) {
  return detail::fold<lane<V>, W>(v, detail::Maximum{});
}

#if defined(HT_AVX512)
HT_INLINE bool hany(vmask m) { return _mm512_movepi32_mask(bit_copy<__m512i>(m)) != 0; }
HT_INLINE bool hall(vmask m) { return _mm512_movepi32_mask(bit_copy<__m512i>(m)) == 0xffff; }
#else
HT_INLINE bool hany(vmask m) { return hmin(m) != 0; }
HT_INLINE bool hall(vmask m) { return hmax(m) != 0; }
#endif

}  // namespace ht

#endif  // HARDTACK_TEMPLATES_SIMD_MATH_H
