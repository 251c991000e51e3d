// Multiply-adds of float32 from registers: enough chains of them that no one waits for another's result.
#include "hardtack/kernel_abi.h"
#include "micro.h"

extern "C" int32_t fma(const HtKernelArgs* args) {
  constexpr int kChains = HT_VEC_BYTES == 32 ? 12 : 16;  // AVX2 has 16 registers
  double* out = static_cast<double*>(args->buffers[0]);
  const float* in = static_cast<const float*>(args->buffers[1]);
  const ht::vec<float> x = ht::load<float>(in), y = ht::load<float>(in + ht::W);
  ht::vec<float> sums[kChains];
  for (int j = 0; j < kChains; j++) sums[j] = ht::bcast(static_cast<float>(j));
  for (int64_t k = 0; k < args->ints[0]; k++) {
    HT_UNROLL_ALL
    for (int j = 0; j < kChains; j++) sums[j] = ht::fma(x, sums[j], y);
  }
  for (int j = 0; j < kChains; j++) out[1] += ht::hsum(sums[j]);
  out[0] = 2.0 * ht::W * kChains * static_cast<double>(args->ints[0]);
  return HT_KERNEL_OK;
}
