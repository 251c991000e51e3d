// The microkernels of int8 in every height, once for a whole kernel library.
#include "int8.h"

#include "tile_block.h"

namespace ht {

void micro_tile(int mr, const TapsOf<StagedQuad>& s, const i8x4* b, int32_t* tile, int64_t ld, int columns,
                bool resume) {
  micro_rows(mr, s, b, tile, ld, columns, resume);
}

#if defined(HT_CODES7)
void micro_tile(int mr, const TapsOf<Quad7>& s, const i8x4* b, int32_t* tile, int64_t ld, int columns, bool resume) {
  micro_rows(mr, s, b, tile, ld, columns, resume);
}
#endif

#if defined(HT_INT8_TILES)
void tile_block(Tiles& tiles, int count, const TapRows* rows, const TileTaps& s, const i8x4* panel, int32_t* sums,
                int64_t ld, int columns, bool resume, Ahead& ahead) {
  detail::run_any_tile_block(tiles, count, rows, s, panel, sums, ld, columns, resume, ahead);
}
#endif

}  // namespace ht
