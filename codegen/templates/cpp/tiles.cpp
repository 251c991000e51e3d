// Blocks of tiles of every shape, once for a whole kernel library.
#include "tiles.h"

#if defined(HT_TILES)

namespace ht {
namespace {

template <int T>
HT_INLINE void begin(Tiles& tiles, const float* sums, int64_t ld, bool resume) {
  if (resume) tiles.load<T>(sums, ld * 4);
  else tiles.clear<T>();
}

template <bool LOWER, bool RIGHT>
HT_INLINE void multiply(Tiles& tiles, const bf16x2* a, int64_t lda, const bf16x2* b) {
  constexpr int64_t row = kPanel * 4;  // bytes from a pair of k to the next in a panel
  tiles.load<kUpperA>(a, lda * 4);
  tiles.load<kLeftB>(b, row);
  tiles.multiply<kUpperLeft, kUpperA, kLeftB>();
  if constexpr (RIGHT) {
    tiles.load<kRightB>(b + kTileRows, row);
    tiles.multiply<kUpperRight, kUpperA, kRightB>();
  }
  if constexpr (LOWER) {
    tiles.load<kLowerA>(a + kTileRows * lda, lda * 4);
    tiles.multiply<kLowerLeft, kLowerA, kLeftB>();
    if constexpr (RIGHT) tiles.multiply<kLowerRight, kLowerA, kRightB>();
  }
}

template <bool LOWER, bool RIGHT>
void block(Tiles& tiles, const TileTaps& s, const bf16x2* panel, float* sums, int64_t ld, bool resume) {
  float* lower = sums + kTileRows * ld;
  begin<kUpperLeft>(tiles, sums, ld, resume);
  if constexpr (RIGHT) begin<kUpperRight>(tiles, sums + kTileRows, ld, resume);
  if constexpr (LOWER) begin<kLowerLeft>(tiles, lower, ld, resume);
  if constexpr (LOWER && RIGHT) begin<kLowerRight>(tiles, lower + kTileRows, ld, resume);
  alignas(64) bf16x2 last[kTilePairs * kPanel];
  for (int64_t t = 0; t < s.taps; t++) {
    const bf16x2* b = panel + s.b_offset[t];
    for (int64_t k = 0; k < s.pairs; k += kTilePairs, b += kTilePairs * kPanel) {
      if (s.pairs - k < kTilePairs) {
        const size_t there = static_cast<size_t>((s.pairs - k) * kPanel) * sizeof(bf16x2);
        __builtin_memset(last, 0, sizeof(last));
        __builtin_memcpy(last, b, there);
        multiply<LOWER, RIGHT>(tiles, s.a + t * s.step + k, s.lda, last);
      } else {
        multiply<LOWER, RIGHT>(tiles, s.a + t * s.step + k, s.lda, b);
      }
    }
  }
  tiles.store<kUpperLeft>(sums, ld * 4);
  if constexpr (RIGHT) tiles.store<kUpperRight>(sums + kTileRows, ld * 4);
  if constexpr (LOWER) tiles.store<kLowerLeft>(lower, ld * 4);
  if constexpr (LOWER && RIGHT) tiles.store<kLowerRight>(lower + kTileRows, ld * 4);
}

}  // namespace

void tile_block(Tiles& tiles, int rows, const TileTaps& s, const bf16x2* panel, float* sums, int64_t ld, int columns,
                bool resume) {
  const bool lower = rows > kTileRows, right = columns > kTileRows;
  if (lower && right) return block<true, true>(tiles, s, panel, sums, ld, resume);
  if (lower) return block<true, false>(tiles, s, panel, sums, ld, resume);
  if (right) return block<false, true>(tiles, s, panel, sums, ld, resume);
  block<false, false>(tiles, s, panel, sums, ld, resume);
}

}  // namespace ht

#endif
