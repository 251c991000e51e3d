// What CUDA C++ of users may include, version 1: types of whole numbers by their bits, and half types, which need no
// header of the toolkit. Arithmetic on half types is done in float, and rounded to the nearest, ties to even.
#pragma once

#define HT_CUDA_ABI_VERSION 1

using int8_t = signed char;
using int16_t = short;
using int32_t = int;
using int64_t = long;
using uint8_t = unsigned char;
using uint16_t = unsigned short;
using uint32_t = unsigned int;
using uint64_t = unsigned long;

// A number of float16 as its bits.
struct ht_half {
  uint16_t bits;
};

// A number of bfloat16 as its bits.
struct ht_bfloat16 {
  uint16_t bits;
};

__device__ __forceinline__ float ht_to_float(ht_half x) {
  float y;
  asm("cvt.f32.f16 %0, %1;" : "=f"(y) : "h"(x.bits));
  return y;
}

__device__ __forceinline__ float ht_to_float(ht_bfloat16 x) {
  return __uint_as_float(static_cast<uint32_t>(x.bits) << 16);
}

__device__ __forceinline__ ht_half ht_to_half(float x) {
  ht_half y;
  asm("cvt.rn.f16.f32 %0, %1;" : "=h"(y.bits) : "f"(x));
  return y;
}

__device__ __forceinline__ ht_bfloat16 ht_to_bfloat16(float x) {
  ht_bfloat16 y;
  asm("cvt.rn.bf16.f32 %0, %1;" : "=h"(y.bits) : "f"(x));
  return y;
}
