// Blocks of tiles of every shape, once for a whole kernel library.
#include "tile_block.h"

#if defined(HT_TILES)

namespace ht {

void tile_block(Tiles& tiles, int count, const TapRows* rows, const TileTaps& s, const bf16x2* panel, float* sums,
                int64_t ld, int columns, bool resume, Ahead& ahead) {
  detail::run_any_tile_block(tiles, count, rows, s, panel, sums, ld, columns, resume, ahead);
}

}  // namespace ht

#endif
