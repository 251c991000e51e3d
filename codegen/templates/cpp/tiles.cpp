// Blocks of tiles of every shape, once for a whole kernel library.
#include "tiles.h"

#if defined(HT_TILES)

namespace ht {
namespace {

constexpr int64_t kLineNbytes = 64;
constexpr int64_t kGrainNbytes = kTilePairs * kPanel * 4;  // of a panel
constexpr int kLinesAhead = 8;  // for each grain: a panel is asked for while four blocks of rows pass by the one before

template <int T>
HT_INLINE void begin(Tiles& tiles, const float* sums, int64_t ld, bool resume) {
  if (resume) tiles.load<T>(sums, ld * 4);
  else tiles.clear<T>();
}

// From one row of a tile to the next, in bytes, to the lower tile, and to the next grain of k: in registers, so that the
// loop over k loads tiles only.
struct Steps {
  int64_t row, lower, grain;
};

template <bool LOWER, bool RIGHT>
HT_INLINE void multiply(Tiles& tiles, const char* a, const Steps& step, const char* b) {
  constexpr int64_t row = kPanel * 4;  // from a pair of k to the next in a panel
  tiles.load<kUpperA>(a, step.row);
  tiles.load<kLeftB>(b, row);
  tiles.multiply<kUpperLeft, kUpperA, kLeftB>();
  if constexpr (RIGHT) {
    tiles.load<kRightB>(b + row / 2, row);
    tiles.multiply<kUpperRight, kUpperA, kRightB>();
  }
  if constexpr (LOWER) {
    tiles.load<kLowerA>(a + step.lower, step.row);
    tiles.multiply<kLowerLeft, kLowerA, kLeftB>();
    if constexpr (RIGHT) tiles.multiply<kLowerRight, kLowerA, kRightB>();
  }
}

// The last rows of a panel, behind which a tile reads zeros.
template <bool LOWER, bool RIGHT>
__attribute__((noinline)) void multiply_rest(Tiles& tiles, const char* a, const Steps& step, const char* b,
                                             int64_t pairs) {
  alignas(64) char rest[kGrainNbytes] = {};
  __builtin_memcpy(rest, b, static_cast<size_t>(pairs * kPanel * 4));
  multiply<LOWER, RIGHT>(tiles, a, step, rest);
}

template <bool LOWER, bool RIGHT>
void block(Tiles& tiles, const TileTaps& s, const bf16x2* panel, float* sums, int64_t ld, bool resume, Ahead& ahead) {
  float* lower = sums + kTileRows * ld;
  begin<kUpperLeft>(tiles, sums, ld, resume);
  if constexpr (RIGHT) begin<kUpperRight>(tiles, sums + kTileRows, ld, resume);
  if constexpr (LOWER) begin<kLowerLeft>(tiles, lower, ld, resume);
  if constexpr (LOWER && RIGHT) begin<kLowerRight>(tiles, lower + kTileRows, ld, resume);
  const Steps step = {s.lda * 4, s.lower * 4, s.grain * 4};
  const int64_t grains = s.pairs / kTilePairs, rest = s.pairs % kTilePairs;
  const char *next = ahead.next, *const end = ahead.end;
  for (int64_t t = 0; t < s.taps; t++) {
    const char* a = reinterpret_cast<const char*>(s.a + t * s.tap);
    const char* b = reinterpret_cast<const char*>(panel + s.b_offset[t]);
    for (int64_t k = 0; k < grains; k++, a += step.grain, b += kGrainNbytes) {
      if (next < end) {
        HT_UNROLL_ALL
        for (int line = 0; line < kLinesAhead; line++) __builtin_prefetch(next + line * kLineNbytes, 0, 2);
        next += kLinesAhead * kLineNbytes;
      }
      multiply<LOWER, RIGHT>(tiles, a, step, b);
    }
    if (rest > 0) multiply_rest<LOWER, RIGHT>(tiles, a, step, b, rest);
  }
  ahead.next = next;
  tiles.store<kUpperLeft>(sums, ld * 4);
  if constexpr (RIGHT) tiles.store<kUpperRight>(sums + kTileRows, ld * 4);
  if constexpr (LOWER) tiles.store<kLowerLeft>(lower, ld * 4);
  if constexpr (LOWER && RIGHT) tiles.store<kLowerRight>(lower + kTileRows, ld * 4);
}

}  // namespace

void tile_block(Tiles& tiles, int rows, const TileTaps& s, const bf16x2* panel, float* sums, int64_t ld, int columns,
                bool resume, Ahead& ahead) {
  const bool lower = rows > kTileRows, right = columns > kTileRows;
  if (lower && right) return block<true, true>(tiles, s, panel, sums, ld, resume, ahead);
  if (lower) return block<true, false>(tiles, s, panel, sums, ld, resume, ahead);
  if (right) return block<false, true>(tiles, s, panel, sums, ld, resume, ahead);
  block<false, false>(tiles, s, panel, sums, ld, resume, ahead);
}

}  // namespace ht

#endif
