// The microkernels of weights of 8 bits in every height, once for a whole kernel library.
#include "bytes.h"

namespace ht {

void micro_tile(int mr, const MicroTaps& s, const Byte* b, float* tile, int64_t ld, int columns, bool resume) {
  micro_rows(mr, s, b, tile, ld, columns, resume);
}

}  // namespace ht
