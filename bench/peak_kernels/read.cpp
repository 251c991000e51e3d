// Reads memory from end to end, once for each step.
#include "hardtack/kernel_abi.h"
#include "micro.h"

extern "C" int32_t read(const HtKernelArgs* args) {
  constexpr int kChains = 8;
  double* out = static_cast<double*>(args->buffers[0]);
  const float* in = static_cast<const float*>(args->buffers[1]);
  const int64_t count = args->ints[1] / (kChains * ht::W) * (kChains * ht::W);
  ht::vec<float> sums[kChains] = {};
  for (int64_t step = 0; step < args->ints[0]; step++) {
    for (int64_t i = 0; i < count; i += kChains * ht::W) {
      HT_UNROLL_ALL
      for (int j = 0; j < kChains; j++) sums[j] += ht::load<float>(in + i + j * ht::W);
    }
  }
  for (int j = 0; j < kChains; j++) out[1] += ht::hsum(sums[j]);
  out[0] = 4.0 * static_cast<double>(count) * static_cast<double>(args->ints[0]);
  return HT_KERNEL_OK;
}
