// The microkernels of 16-bit numbers in every height, once for a whole kernel library.
#include "half.h"

namespace ht {

void micro_tile(int mr, const MicroTaps& s, const f16* b, float* tile, int64_t ld, int columns, bool resume) {
  micro_rows(mr, s, b, tile, ld, columns, resume);
}

void micro_tile(int mr, const MicroTaps& s, const bf16* b, float* tile, int64_t ld, int columns, bool resume) {
  micro_rows(mr, s, b, tile, ld, columns, resume);
}

void micro_tile(int mr, const TapsOf<Staged<bf16>>& s, const bf16x2* b, float* tile, int64_t ld, int columns,
                bool resume) {
  micro_rows(mr, s, b, tile, ld, columns, resume);
}

}  // namespace ht
