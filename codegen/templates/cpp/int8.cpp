// The microkernels of int8 in every height, once for a whole kernel library.
#include "int8.h"

namespace ht {

void micro_tile(int mr, const TapsOf<StagedQuad>& s, const i8x4* b, int32_t* tile, int64_t ld, int columns,
                bool resume) {
  micro_rows(mr, s, b, tile, ld, columns, resume);
}

}  // namespace ht
