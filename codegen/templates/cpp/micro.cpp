// The microkernels of every height, once for a whole kernel library.
#include "micro.h"

namespace ht {

void micro_tile(int mr, const MicroTaps& s, const float* b, float* tile, int64_t ld, int columns, bool resume) {
  micro_rows(mr, s, b, tile, ld, columns, resume);
}

}  // namespace ht
