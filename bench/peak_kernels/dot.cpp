// Products of pairs of bfloat16 with float32 sums (VDPBF16PS) from registers.
#include "hardtack/kernel_abi.h"
#include "micro.h"

extern "C" int32_t dot(const HtKernelArgs* args) {
  constexpr int kChains = 16;
  double* out = static_cast<double*>(args->buffers[0]);
  const __m512bh x = (__m512bh)_mm512_loadu_si512(args->buffers[1]);
  __m512 sums[kChains];
  for (int j = 0; j < kChains; j++) sums[j] = _mm512_set1_ps(static_cast<float>(j));
  for (int64_t k = 0; k < args->ints[0]; k++) {
    HT_UNROLL_ALL
    for (int j = 0; j < kChains; j++) sums[j] = _mm512_dpbf16_ps(sums[j], x, x);
  }
  for (int j = 0; j < kChains; j++) out[1] += _mm512_reduce_add_ps(sums[j]);
  out[0] = 4.0 * 16 * kChains * static_cast<double>(args->ints[0]);
  return HT_KERNEL_OK;
}
