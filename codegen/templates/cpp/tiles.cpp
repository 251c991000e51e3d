// Blocks of tiles of every shape, once for a whole kernel library.
#include "tile_block.h"

#if defined(HT_TILES)

namespace ht {

void tile_block(Tiles& tiles, int count, const TapRows* rows, const TileTaps& s, const bf16x2* panel, float* sums,
                int64_t ld, int columns, bool resume, Ahead& ahead) {
  const bool lower = count > kTileRows, right = columns > kTileRows;
  const auto nothing = [] {};
  if (lower && right)
    return detail::run_tile_block<true, true>(tiles, rows, s, panel, sums, ld, resume, ahead, nothing);
  if (lower) return detail::run_tile_block<true, false>(tiles, rows, s, panel, sums, ld, resume, ahead, nothing);
  if (right) return detail::run_tile_block<false, true>(tiles, rows, s, panel, sums, ld, resume, ahead, nothing);
  detail::run_tile_block<false, false>(tiles, rows, s, panel, sums, ld, resume, ahead, nothing);
}

}  // namespace ht

#endif
