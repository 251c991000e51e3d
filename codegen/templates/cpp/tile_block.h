// The loop over k of a block of tiles (tiles.h), to be compiled with what is done between its products.
#ifndef HARDTACK_TEMPLATES_TILE_BLOCK_H
#define HARDTACK_TEMPLATES_TILE_BLOCK_H

#include "tiles.h"

#if defined(HT_TILES)

namespace ht {
namespace detail {

template <int T, class S>
HT_INLINE void begin_tile(Tiles& tiles, const S* sums, int64_t ld, bool resume) {
  if (resume)
    tiles.load<T>(sums, ld * 4);
  else
    tiles.clear<T>();
}

template <bool LOWER, bool RIGHT, class S>
HT_INLINE void multiply_grain(Tiles& tiles, const TapRows& a, const char* b) {
  constexpr int64_t row = kPanel * 4;  // from a pair of k to the next in a panel
  tiles.load<kUpperA>(a.upper.at, a.upper.row);
  tiles.load<kLeftB>(b, row);
  tiles.multiply<kUpperLeft, kUpperA, kLeftB>(S{});
  if constexpr (RIGHT) {
    tiles.load<kRightB>(b + row / 2, row);
    tiles.multiply<kUpperRight, kUpperA, kRightB>(S{});
  }
  if constexpr (LOWER) {
    tiles.load<kLowerA>(a.lower.at, a.lower.row);
    tiles.multiply<kLowerLeft, kLowerA, kLeftB>(S{});
    if constexpr (RIGHT) tiles.multiply<kLowerRight, kLowerA, kRightB>(S{});
  }
}

// The last rows of a panel, behind which a tile reads zeros: a grain of them.
HT_INLINE void copy_rest(char* to, const char* b, int64_t pairs) {
  constexpr int64_t row = kPanel * 4;
  for (int64_t k = 0; k < kTilePairs; k++, to += row) {
    if (k < pairs)
      __builtin_memcpy(to, b + k * row, row);
    else
      __builtin_memset(to, 0, row);
  }
}

template <bool LOWER, bool RIGHT, class S>
__attribute__((noinline)) void multiply_rest(Tiles& tiles, const TapRows& a, const char* b, int64_t pairs) {
  alignas(64) char rest[kGrainNbytes];
  copy_rest(rest, b, pairs);
  multiply_grain<LOWER, RIGHT, S>(tiles, a, rest);
}

// A block of one shape. between(): what is done meanwhile, behind each grain: tiles are multiplied beside other instructions.
template <bool LOWER, bool RIGHT, class B, class S, class Between>
HT_INLINE void run_tile_block(Tiles& tiles, const TapRows* rows, const TileTaps& s, const B* panel, S* sums,
                              int64_t ld, bool resume, Ahead& shared_ahead, const Between& between) {
  Ahead ahead = shared_ahead;  // in registers
  S* lower = sums + kTileRows * ld;
  begin_tile<kUpperLeft>(tiles, sums, ld, resume);
  if constexpr (RIGHT) begin_tile<kUpperRight>(tiles, sums + kTileRows, ld, resume);
  if constexpr (LOWER) begin_tile<kLowerLeft>(tiles, lower, ld, resume);
  if constexpr (LOWER && RIGHT) begin_tile<kLowerRight>(tiles, lower + kTileRows, ld, resume);
  const int64_t grains = s.pairs / kTilePairs, rest = s.pairs % kTilePairs;
  for (int64_t t = 0; t < s.taps; t++) {
    TapRows a = rows[t];
    const char* b = reinterpret_cast<const char*>(panel + s.b_offset[t]);
    for (int64_t k = 0; k < grains; k++, b += kGrainNbytes) {
      ahead.ask();
      multiply_grain<LOWER, RIGHT, S>(tiles, a, b);
      a.upper.at += a.upper.grain;
      a.lower.at += a.lower.grain;
      between();
    }
    if (rest > 0 && s.rests)
      multiply_grain<LOWER, RIGHT, S>(tiles, a, s.rests + t * kGrainNbytes);
    else if (rest > 0)
      multiply_rest<LOWER, RIGHT, S>(tiles, a, b, rest);
  }
  shared_ahead = ahead;
  tiles.store<kUpperLeft>(sums, ld * 4);
  if constexpr (RIGHT) tiles.store<kUpperRight>(sums + kTileRows, ld * 4);
  if constexpr (LOWER) tiles.store<kLowerLeft>(lower, ld * 4);
  if constexpr (LOWER && RIGHT) tiles.store<kLowerRight>(lower + kTileRows, ld * 4);
}

// A block of any shape.
template <class B, class S>
HT_INLINE void run_any_tile_block(Tiles& tiles, int count, const TapRows* rows, const TileTaps& s, const B* panel,
                                  S* sums, int64_t ld, int columns, bool resume, Ahead& ahead) {
  const bool lower = count > kTileRows, right = columns > kTileRows;
  const auto nothing = [] {};
  if (lower && right) return run_tile_block<true, true>(tiles, rows, s, panel, sums, ld, resume, ahead, nothing);
  if (lower) return run_tile_block<true, false>(tiles, rows, s, panel, sums, ld, resume, ahead, nothing);
  if (right) return run_tile_block<false, true>(tiles, rows, s, panel, sums, ld, resume, ahead, nothing);
  run_tile_block<false, false>(tiles, rows, s, panel, sums, ld, resume, ahead, nothing);
}

}  // namespace detail
}  // namespace ht

#endif

#endif  // HARDTACK_TEMPLATES_TILE_BLOCK_H
