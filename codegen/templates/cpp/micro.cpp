// The microkernels of every height, once for a whole kernel library.
#include "micro.h"

namespace ht {

void micro_tile(int mr, const MicroTaps& s, const float* b, float* tile, int64_t ld, int columns, bool resume) {
  switch (mr) {
    case 1: return micro_columns<1>(s, b, tile, ld, columns, resume);
    case 2: return micro_columns<2>(s, b, tile, ld, columns, resume);
    case 3: return micro_columns<3>(s, b, tile, ld, columns, resume);
    case 4: return micro_columns<4>(s, b, tile, ld, columns, resume);
    case 5: return micro_columns<5>(s, b, tile, ld, columns, resume);
    case 6: return micro_columns<6>(s, b, tile, ld, columns, resume);
#if defined(HT_AVX512)
    case 7: return micro_columns<7>(s, b, tile, ld, columns, resume);
    case 8: return micro_columns<8>(s, b, tile, ld, columns, resume);
    case 9: return micro_columns<9>(s, b, tile, ld, columns, resume);
    case 10: return micro_columns<10>(s, b, tile, ld, columns, resume);
    case 11: return micro_columns<11>(s, b, tile, ld, columns, resume);
    case 12: return micro_columns<12>(s, b, tile, ld, columns, resume);
#endif
  }
}

}  // namespace ht
