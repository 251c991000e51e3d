// Products of float with weights of 8 bits, which are read as what they are and made float in registers.
//
// The panels are those of float (gemm.h) with a byte for each element: packed[panel][k][column]. A number of 8 bits is one
// of float to the last bit, and sums run in the order of k, so results are those of the same weights as float. Many rows
// have a unit's panels made float first (blocks.h).
#ifndef HARDTACK_TEMPLATES_BYTES_H
#define HARDTACK_TEMPLATES_BYTES_H

#include "gemm.h"

namespace ht {

// An element of a panel; a type of its own, so that microkernels know it from a vector of integers.
struct Byte {
  int8_t value;
};

// One k: W bytes become a vector of float, at the price of two instructions for each vector of B.
template <int MR, int NV>
HT_INLINE void multiply_step(Sums<MR, NV>& sums, const float* const (&a)[MR], int64_t k, const Byte* b) {
  vec<float> bv[NV];
  HT_UNROLL_ALL
  for (int v = 0; v < NV; v++) bv[v] = __builtin_convertvector(load(&b[v * W].value), vec<float>);
  HT_UNROLL_ALL
  for (int r = 0; r < MR; r++) {
    const vec<float> x = bcast(a[r][k]);
    HT_UNROLL_ALL
    for (int v = 0; v < NV; v++) sums.acc[r][v] = fma(x, bv[v], sums.acc[r][v]);
  }
}

HT_INLINE void widen_panel(float* to, const Byte* from, int64_t kc) {
  for (int64_t i = 0; i < kc * kPanel; i += W)
    store(to + i, __builtin_convertvector(load(&from[i].value), vec<float>));
}

// As micro_tile, for panels of bytes. Defined in bytes.cpp, once for a library.
void micro_tile(int mr, const MicroTaps& s, const Byte* b, float* tile, int64_t ld, int columns, bool resume);

// As gemm_packed, with a weight of 8 bits.
template <class Cut, class Epi>
int32_t gemm_packed(const HtKernelArgs* args, const float* a, int64_t lda, const int8_t* b_panels, int64_t m, int64_t n,
                    int64_t k, const Epi& epi) {
  const PackedGemm<float, Byte> source = {a, lda, reinterpret_cast<const Byte*>(b_panels), k};
  return run_blocks<Cut>(args, source, epi, 1, m, n, {1, k});
}
template <class Epi>
int32_t gemm_packed(const HtKernelArgs* args, const float* a, int64_t lda, const int8_t* b_panels, int64_t m, int64_t n,
                    int64_t k, const Epi& epi) {
  return gemm_packed<MachineBlocks<float>>(args, a, lda, b_panels, m, n, k, epi);
}

}  // namespace ht

#endif  // HARDTACK_TEMPLATES_BYTES_H
