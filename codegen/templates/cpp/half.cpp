// The microkernels of 16-bit numbers in every height, once for a whole kernel library.
#include "half.h"

namespace ht {
namespace {

template <class B>
void tile_of(int mr, const MicroTaps& s, const B* b, float* tile, int64_t ld, int columns, bool resume) {
  with_height(mr, [&](auto height) { micro_columns<decltype(height)::value>(s, b, tile, ld, columns, resume); });
}

template <int MR>
void pair_columns(const TapsOf<Staged<bf16>>& s, const bf16x2* b, float* tile, int64_t ld, int columns, bool resume) {
  constexpr int NV = micro_vectors(MR);
  if constexpr (NV * W == kPanel) {
    if (columns <= kPanel / 2) return micro_pairs<MR, NV / 2>(s, b, tile, ld, resume);
  }
  for (int c = 0; c < columns; c += NV * W) micro_pairs<MR, NV>(s, b + c, tile + c, ld, resume);
}

}  // namespace

void micro_tile(int mr, const MicroTaps& s, const f16* b, float* tile, int64_t ld, int columns, bool resume) {
  tile_of(mr, s, b, tile, ld, columns, resume);
}

void micro_tile(int mr, const MicroTaps& s, const bf16* b, float* tile, int64_t ld, int columns, bool resume) {
  tile_of(mr, s, b, tile, ld, columns, resume);
}

void micro_tile(int mr, const TapsOf<Staged<bf16>>& s, const bf16x2* b, float* tile, int64_t ld, int columns,
                bool resume) {
  with_height(mr, [&](auto height) { pair_columns<decltype(height)::value>(s, b, tile, ld, columns, resume); });
}

}  // namespace ht
