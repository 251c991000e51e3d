// Vectors of W lanes for generated CPU kernels: types, loads and stores, masks, conversions.
//
// A vec<T> always has W lanes, whatever T is, so that a loop body that mixes dtypes has one lane count; the compiler
// splits a vec<double> over two registers and keeps a vec<int8_t> in a quarter of one. Masks in registers are
// vec<int32_t> with 0 or -1 (vmask). Tensors of 16-bit floats are stored as bf16 or f16 and computed as float.
//
// Freestanding: no libc header. Every function is inlined; nothing here has state. Arithmetic is in simd_math.h, which
// this header includes last.
#ifndef HARDTACK_TEMPLATES_SIMD_H
#define HARDTACK_TEMPLATES_SIMD_H

#include <stddef.h>
#include <stdint.h>

#if defined(__AVX512F__) && defined(__AVX512BW__) && defined(__AVX512DQ__) && defined(__AVX512VL__)
#define HT_AVX512 1
#elif defined(__AVX2__) && defined(__FMA__) && defined(__F16C__)
#define HT_AVX2 1
#elif defined(__aarch64__)
#define HT_NEON 1
#endif

#if defined(HT_AVX512) || defined(HT_AVX2)
#define __MM_MALLOC_H             // clang's and gcc's guards of the one intrinsic header that wants <stdlib.h>
#define _MM_MALLOC_H_INCLUDED
#include <immintrin.h>
#elif defined(HT_NEON)
#include <arm_neon.h>
#endif

#if defined(HT_AVX512)
#define HT_VEC_BYTES 64
#elif defined(HT_AVX2)
#define HT_VEC_BYTES 32
#else
#define HT_VEC_BYTES 16
#endif

// For free functions and for member functions of functors. Generated code uses them too.
#define HT_INLINE static inline __attribute__((always_inline))
#define HT_MEMBER inline __attribute__((always_inline))

// Vectors wider than a register are only ever passed to inlined functions, so their calling convention is moot.
#if defined(__GNUC__) && !defined(__clang__)
#pragma GCC diagnostic ignored "-Wpsabi"
#pragma GCC diagnostic ignored "-Wignored-attributes"
#endif

namespace ht {

constexpr int W = HT_VEC_BYTES / 4;

// g++ drops the attribute from an alias of a dependent type, hence the struct.
template <class T, int N = W>
struct VecOf {
  typedef T type __attribute__((vector_size(sizeof(T) * N)));
};
template <class T>
using vec = typename VecOf<T>::type;
using vmask = vec<int32_t>;

struct bf16 {
  uint16_t bits;
};
struct f16 {
  uint16_t bits;
};

// reg<T>: the lane type that a stored T has in a register.
template <class T>
struct RegOf {
  using type = T;
};
template <>
struct RegOf<bf16> {
  using type = float;
};
template <>
struct RegOf<f16> {
  using type = float;
};
template <class T>
using reg = typename RegOf<T>::type;

// lane<V>: the lane type of a vector type.
template <class T>
struct Plain {
  using type = T;
};
template <class T>
struct Plain<T&> {
  using type = T;
};
template <class T>
struct Plain<const T&> {
  using type = T;
};
template <class V>
using lane = typename Plain<decltype((*static_cast<V*>(nullptr))[0])>::type;

template <class A, class B>
constexpr bool same = false;
template <class A>
constexpr bool same<A, A> = true;
template <class T>
constexpr bool is_float = same<T, float> || same<T, double>;

// The signed integer of a given size: the lane type of a comparison's result.
template <size_t nbytes>
struct IntOf;
template <>
struct IntOf<1> {
  using type = int8_t;
};
template <>
struct IntOf<2> {
  using type = int16_t;
};
template <>
struct IntOf<4> {
  using type = int32_t;
};
template <>
struct IntOf<8> {
  using type = int64_t;
};
template <class V>
using mask_lanes = vec<typename IntOf<sizeof(lane<V>)>::type>;

template <class To, class From>
HT_INLINE To bit_copy(const From& from) {
  static_assert(sizeof(To) == sizeof(From), "bit_copy needs equal sizes");
  To to;
  __builtin_memcpy(&to, &from, sizeof(To));
  return to;
}

template <class T>
HT_INLINE vec<T> bcast(T x) {
  return x - vec<T>{};  // x - 0 keeps the sign of -0.0, x + 0 would not
}

template <class T>
HT_INLINE vec<T> iota() {
  vec<T> v{};
  for (int i = 0; i < W; i++) v[i] = static_cast<T>(i);
  return v;
}

// Masked and full moves of plain lanes.

namespace detail {

template <class T>
HT_INLINE vec<T> load_raw(const T* p) {
  vec<T> v;
  __builtin_memcpy(&v, p, sizeof(v));
  return v;
}

template <class T>
HT_INLINE void store_raw(T* p, vec<T> v) {
  __builtin_memcpy(p, &v, sizeof(v));
}

// Two halves of a vector of 8-byte lanes, each one register.
template <class Half>
struct Pair {
  Half lo, hi;
};

template <class T>
HT_INLINE vec<T> load_raw_n(const T* p, int n) {
  if (__builtin_constant_p(n) && n == W) return load_raw(p);
#if defined(HT_AVX512)
  const uint32_t m = (uint32_t{1} << n) - 1;
  if constexpr (sizeof(T) == 1) return bit_copy<vec<T>>(_mm_maskz_loadu_epi8(static_cast<__mmask16>(m), p));
  if constexpr (sizeof(T) == 2) return bit_copy<vec<T>>(_mm256_maskz_loadu_epi16(static_cast<__mmask16>(m), p));
  if constexpr (sizeof(T) == 4) return bit_copy<vec<T>>(_mm512_maskz_loadu_epi32(static_cast<__mmask16>(m), p));
  if constexpr (sizeof(T) == 8) {
    const Pair<__m512i> halves = {_mm512_maskz_loadu_epi64(static_cast<__mmask8>(m), p),
                                  _mm512_maskz_loadu_epi64(static_cast<__mmask8>(m >> 8), p + 8)};
    return bit_copy<vec<T>>(halves);
  }
#else
#if defined(HT_AVX2)
  if constexpr (sizeof(T) == 4) {
    const __m256i m = bit_copy<__m256i>(iota<int32_t>() < bcast<int32_t>(n));
    return bit_copy<vec<T>>(_mm256_maskload_epi32(reinterpret_cast<const int*>(p), m));
  }
  if constexpr (sizeof(T) == 8) {
    const Pair<__m256i> m = bit_copy<Pair<__m256i>>(iota<int64_t>() < bcast<int64_t>(n));
    const long long* q = reinterpret_cast<const long long*>(p);
    const Pair<__m256i> halves = {_mm256_maskload_epi64(q, m.lo), _mm256_maskload_epi64(q + 4, m.hi)};
    return bit_copy<vec<T>>(halves);
  }
#endif
  if (n == W) return load_raw(p);
  T lanes[W] = {};
  for (int i = 0; i < n; i++) lanes[i] = p[i];
  return load_raw<T>(lanes);
#endif
}

template <class T>
HT_INLINE void store_raw_n(T* p, vec<T> v, int n) {
  if (__builtin_constant_p(n) && n == W) return store_raw(p, v);
#if defined(HT_AVX512)
  uint32_t m = (uint32_t{1} << n) - 1;
#if defined(__clang_major__) && __clang_major__ >= 22
  // clang 22 makes a narrowing store under a constant mask of one lane write the wide lane: hide the constant.
  __asm__("" : "+r"(m));
#endif
  if constexpr (sizeof(T) == 1) _mm_mask_storeu_epi8(p, static_cast<__mmask16>(m), bit_copy<__m128i>(v));
  if constexpr (sizeof(T) == 2) _mm256_mask_storeu_epi16(p, static_cast<__mmask16>(m), bit_copy<__m256i>(v));
  if constexpr (sizeof(T) == 4) _mm512_mask_storeu_epi32(p, static_cast<__mmask16>(m), bit_copy<__m512i>(v));
  if constexpr (sizeof(T) == 8) {
    const Pair<__m512i> halves = bit_copy<Pair<__m512i>>(v);
    _mm512_mask_storeu_epi64(p, static_cast<__mmask8>(m), halves.lo);
    _mm512_mask_storeu_epi64(p + 8, static_cast<__mmask8>(m >> 8), halves.hi);
  }
#else
#if defined(HT_AVX2)
  if constexpr (sizeof(T) == 4) {
    const __m256i m = bit_copy<__m256i>(iota<int32_t>() < bcast<int32_t>(n));
    _mm256_maskstore_epi32(reinterpret_cast<int*>(p), m, bit_copy<__m256i>(v));
    return;
  }
  if constexpr (sizeof(T) == 8) {
    const Pair<__m256i> m = bit_copy<Pair<__m256i>>(iota<int64_t>() < bcast<int64_t>(n));
    const Pair<__m256i> halves = bit_copy<Pair<__m256i>>(v);
    long long* q = reinterpret_cast<long long*>(p);
    _mm256_maskstore_epi64(q, m.lo, halves.lo);
    _mm256_maskstore_epi64(q + 4, m.hi, halves.hi);
    return;
  }
#endif
  if (n == W) return store_raw(p, v);
  T lanes[W];
  store_raw<T>(lanes, v);
  for (int i = 0; i < n; i++) p[i] = lanes[i];
#endif
}

// 16-bit floats.

HT_INLINE vec<float> widen_bf16(vec<uint16_t> bits) {
  return bit_copy<vec<float>>(__builtin_convertvector(bits, vec<uint32_t>) << 16);
}

// The nearest bf16 in the upper halves of the lanes; the lower halves are left as they come.
HT_INLINE vec<uint32_t> rounded_bf16(vec<float> v) {
  const vec<uint32_t> u = bit_copy<vec<uint32_t>>(v), nearest = u + 0x7fffu + ((u >> 16) & 1u);
#if defined(HT_AVX512)
  // What would be a comparison and a choice is one operation: NaNs, quiet and signalling, become v's own, made quiet.
  const __m512i nans_of_v = _mm512_set1_epi32(0x22);
  return bit_copy<vec<uint32_t>>(_mm512_fixupimm_ps(bit_copy<__m512>(nearest), bit_copy<__m512>(v), nans_of_v, 0));
#else
  return (v != v) ? (u | 0x400000u) : nearest;
#endif
}
// The same of numbers among which none is subnormal: AVX512-BF16's instruction takes those for zero.
HT_INLINE vec<uint16_t> narrow_normal_bf16(vec<float> v) {
#if defined(HT_AVX512) && defined(__AVX512BF16__)
  return bit_copy<vec<uint16_t>>(_mm512_cvtneps_pbh(bit_copy<__m512>(v)));
#else
  return __builtin_convertvector(rounded_bf16(v) >> 16, vec<uint16_t>);
#endif
}
HT_INLINE vec<uint16_t> narrow_bf16(vec<float> v) {
#if defined(HT_AVX512) && defined(__AVX512BF16__)
  constexpr int kSubnormal = 0x20;
  if (__builtin_expect(_mm512_fpclass_ps_mask(bit_copy<__m512>(v), kSubnormal) != 0, 0))
    return __builtin_convertvector(rounded_bf16(v) >> 16, vec<uint16_t>);
#endif
  return narrow_normal_bf16(v);
}
HT_INLINE vec<float> round_bf16(vec<float> v) { return bit_copy<vec<float>>(rounded_bf16(v) & 0xffff0000u); }

#if defined(HT_AVX512)
HT_INLINE vec<float> widen_f16(vec<uint16_t> bits) {
  return bit_copy<vec<float>>(_mm512_cvtph_ps(bit_copy<__m256i>(bits)));
}
HT_INLINE vec<uint16_t> narrow_f16(vec<float> v) {
  return bit_copy<vec<uint16_t>>(_mm512_cvtps_ph(bit_copy<__m512>(v), _MM_FROUND_TO_NEAREST_INT));
}
#elif defined(HT_AVX2)
HT_INLINE vec<float> widen_f16(vec<uint16_t> bits) {
  return bit_copy<vec<float>>(_mm256_cvtph_ps(bit_copy<__m128i>(bits)));
}
HT_INLINE vec<uint16_t> narrow_f16(vec<float> v) {
  return bit_copy<vec<uint16_t>>(_mm256_cvtps_ph(bit_copy<__m256>(v), _MM_FROUND_TO_NEAREST_INT));
}
#elif defined(HT_NEON)
HT_INLINE vec<float> widen_f16(vec<uint16_t> bits) {
  return bit_copy<vec<float>>(vcvt_f32_f16(bit_copy<float16x4_t>(bits)));
}
HT_INLINE vec<uint16_t> narrow_f16(vec<float> v) {
  return bit_copy<vec<uint16_t>>(vcvt_f16_f32(bit_copy<float32x4_t>(v)));
}
#else
// Multiplying by 2^112 moves the exponent bias from 15 to 127 and makes f16 subnormals exact floats.
HT_INLINE vec<float> widen_f16(vec<uint16_t> bits) {
  const vec<uint32_t> h = __builtin_convertvector(bits, vec<uint32_t>);
  const vec<uint32_t> magnitude = (h & 0x7fffu) << 13;
  const vec<float> finite = bit_copy<vec<float>>(magnitude) * 0x1p112f;
  const vec<uint32_t> special = magnitude | 0x7f800000u;
  const vec<uint32_t> u = (magnitude >= (0x7c00u << 13)) ? special : bit_copy<vec<uint32_t>>(finite);
  return bit_copy<vec<float>>(u | ((h & 0x8000u) << 16));
}
// Below 2^-14 the result is subnormal: adding 0.5f lines its last place up with the float's, so the add rounds.
HT_INLINE vec<uint16_t> narrow_f16(vec<float> v) {
  const vec<uint32_t> u = bit_copy<vec<uint32_t>>(v);
  const vec<uint32_t> a = u & 0x7fffffffu;
  const vec<uint32_t> normal = (a + 0xfffu + ((a >> 13) & 1u) - (112u << 23)) >> 13;
  const vec<uint32_t> tiny = bit_copy<vec<uint32_t>>(bit_copy<vec<float>>(a) + 0.5f) - 0x3f000000u;
  vec<uint32_t> h = (a < 0x38800000u) ? tiny : normal;
  h = (a >= 0x477ff000u) ? bcast<uint32_t>(0x7c00u) : h;
  h = (a > 0x7f800000u) ? (0x7e00u | ((a >> 13) & 0x3ffu)) : h;
  return __builtin_convertvector(h | ((u >> 16) & 0x8000u), vec<uint16_t>);
}
#endif

template <class T>
HT_INLINE vec<reg<T>> widen(vec<uint16_t> bits) {
  if constexpr (same<T, bf16>) return widen_bf16(bits);
  if constexpr (same<T, f16>) return widen_f16(bits);
}

template <class T>
HT_INLINE vec<uint16_t> narrow(vec<float> v) {
  if constexpr (same<T, bf16>) return narrow_bf16(v);
  if constexpr (same<T, f16>) return narrow_f16(v);
}

template <class T>
constexpr bool is_half = same<T, bf16> || same<T, f16>;

}  // namespace detail

// Loads and stores: any alignment; lanes from n on are zero when loaded, left alone when stored.

template <class T>
HT_INLINE vec<reg<T>> load(const T* p) {
  if constexpr (detail::is_half<T>) return detail::widen<T>(detail::load_raw(&p->bits));
  else return detail::load_raw(p);
}

template <class T>
HT_INLINE vec<reg<T>> load_n(const T* p, int n) {
  if constexpr (detail::is_half<T>) return detail::widen<T>(detail::load_raw_n(&p->bits, n));
  else return detail::load_raw_n(p, n);
}

template <class T>
HT_INLINE void store(T* p, vec<reg<T>> v) {
  if constexpr (detail::is_half<T>) detail::store_raw(&p->bits, detail::narrow<T>(v));
  else detail::store_raw(p, v);
}

template <class T>
HT_INLINE void store_n(T* p, vec<reg<T>> v, int n) {
  if constexpr (detail::is_half<T>) detail::store_raw_n(&p->bits, detail::narrow<T>(v), n);
  else detail::store_raw_n(p, v, n);
}

// The same of values that are bf16 already.
HT_INLINE void store_exact(bf16* p, vec<float> v, int n) {
  const vec<uint16_t> bits = __builtin_convertvector(bit_copy<vec<uint32_t>>(v) >> 16, vec<uint16_t>);
  if (n == W) detail::store_raw(&p->bits, bits);
  else detail::store_raw_n(&p->bits, bits, n);
}

// One scalar, through the lane type: load1(const bf16*) is a float.
template <class T>
HT_INLINE reg<T> load1(const T* p) {
  if constexpr (detail::is_half<T>) return load_n(p, 1)[0];
  else return *p;
}

template <class T>
HT_INLINE void store1(T* p, reg<T> x) {
  if constexpr (detail::is_half<T>) store_n(p, bcast<float>(x), 1);
  else *p = x;
}

template <class T>
HT_INLINE vec<reg<T>> load_strided(const T* p, int64_t stride, int n) {
  T lanes[W] = {};
  if (n == W) {
    for (int i = 0; i < W; i++) lanes[i] = p[i * stride];
  } else {
    for (int i = 0; i < n; i++) lanes[i] = p[i * stride];
  }
  return load<T>(lanes);
}

template <class T>
HT_INLINE void store_strided(T* p, int64_t stride, vec<reg<T>> v, int n) {
  T lanes[W];
  store<T>(lanes, v);
  if (n == W) {
    for (int i = 0; i < W; i++) p[i * stride] = lanes[i];
  } else {
    for (int i = 0; i < n; i++) p[i * stride] = lanes[i];
  }
}

// Lane i is p[idx[i]] for i < n; idx[i] of further lanes is not used.
template <class T>
HT_INLINE vec<reg<T>> gather(const T* p, vec<int64_t> idx, int n) {
#if defined(HT_AVX512)
  if constexpr (sizeof(T) == 4) {
    const uint32_t m = (uint32_t{1} << n) - 1;
    const detail::Pair<__m512i> at = bit_copy<detail::Pair<__m512i>>(idx);
    const __m256i zero = _mm256_setzero_si256();
    const detail::Pair<__m256i> halves = {
        _mm512_mask_i64gather_epi32(zero, static_cast<__mmask8>(m), at.lo, p, 4),
        _mm512_mask_i64gather_epi32(zero, static_cast<__mmask8>(m >> 8), at.hi, p, 4)};
    return bit_copy<vec<T>>(halves);
  }
#endif
  int64_t at[W];
  store<int64_t>(at, idx);
  T lanes[W] = {};
  for (int i = 0; i < n; i++) lanes[i] = p[at[i]];
  return load<T>(lanes);
}

}  // namespace ht

#include "simd_math.h"

#endif  // HARDTACK_TEMPLATES_SIMD_H
