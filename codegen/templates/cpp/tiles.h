// Products of bf16 by tiles: AMX, whose registers hold 16 rows of 64 bytes. Those of int8 are the same in all but the
// multiplication (int8.h): what is a pair of bf16 here, a word, is four int8 there.
//
// A block of up to 32 rows and 32 columns, a panel, is four tiles of sums, which two tiles of A and two of B feed: four
// loads for four products. Rows of A are staged with zeros up to a multiple of kGrain k in each tap, so that all tiles of
// A are whole; the last rows of a panel are copied where they do not fill a tile.
//
// Four products take 64 cycles, in which 4 KB are read: more than a second-level cache gives. So a k block of a panel
// stays in the first-level cache while all rows of a unit pass by it, tile behind tile (stage_tiles in
// tile_walk.h).
//
// Tile registers belong to a thread, and the operating system gives them to a process that asks: the runtime does, before
// it takes a target that needs them.
#ifndef HARDTACK_TEMPLATES_TILES_H
#define HARDTACK_TEMPLATES_TILES_H

#include "half.h"
#include "parallel.h"

// HT_MODEL_TILES: the instructions as plain C++, for tests on CPUs without them. CPUs with tiles multiply pairs, too.
#if defined(HT_MODEL_TILES) || (defined(__AMX_TILE__) && defined(__AMX_BF16__))
#define HT_TILES 1
#if !defined(HT_BF16_PAIRS)
#error "tiles need instructions for pairs, or their model: HT_MODEL_PAIRS"
#endif

namespace ht {

constexpr int kTileRows = 16;
constexpr int kTilePairs = 16;  // of k, in a row of A, and rows of B
static_assert(kBlockRows == 2 * kTileRows && kPanel == 2 * kTileRows, "a block is two tiles high and wide");
static_assert(kGrain == 2 * kTilePairs, "a grain is a row of a tile");

// Which tile is which: sums by upper and lower rows and by left and right columns.
enum TileName { kUpperLeft, kUpperRight, kLowerLeft, kLowerRight, kUpperA, kLowerA, kLeftB, kRightB };

#if defined(HT_MODEL_TILES)

class Tiles {
 public:
  // For blocks of so many rows. Sums and operands are lost.
  void configure(int rows) {
    for (Tile& t : tiles_) t = Tile{};
    const int upper = rows < kTileRows ? rows : kTileRows, lower = rows - upper;
    tiles_[kUpperLeft].rows = tiles_[kUpperRight].rows = tiles_[kUpperA].rows = upper;
    tiles_[kLowerLeft].rows = tiles_[kLowerRight].rows = tiles_[kLowerA].rows = lower;
    tiles_[kLeftB].rows = tiles_[kRightB].rows = kTilePairs;
  }
  template <int T>
  void load(const void* from, int64_t stride) {
    Tile& t = tiles_[T];
    for (int r = 0; r < t.rows; r++) __builtin_memcpy(t.words[r], static_cast<const char*>(from) + r * stride, 64);
  }
  template <int T>
  void store(void* to, int64_t stride) const {
    const Tile& t = tiles_[T];
    for (int r = 0; r < t.rows; r++) __builtin_memcpy(static_cast<char*>(to) + r * stride, t.words[r], 64);
  }
  template <int T>
  void clear() {
    for (auto& row : tiles_[T].words)
      for (uint32_t& word : row) word = 0;
  }
  // Intel SDM, TDPBF16PS: the even and the odd products of a tile are summed apart, then added to the sum. Subnormal
  // numbers are zero there.
  template <int C, int A, int B>
  void multiply(float) {
    for (int m = 0; m < tiles_[C].rows; m++) {
      for (int n = 0; n < 16; n++) {
        float even = 0, odd = 0;
        for (int k = 0; k < kTilePairs; k++) {
          const uint32_t a = tiles_[A].words[m][k], b = tiles_[B].words[k][n];
          even = flushed(__builtin_fmaf(number(a << 16), number(b << 16), even));
          odd = flushed(__builtin_fmaf(number(a & 0xffff0000u), number(b & 0xffff0000u), odd));
        }
        uint32_t& sum = tiles_[C].words[m][n];
        sum = bit_copy<uint32_t>(flushed(number(sum) + flushed(even + odd)));
      }
    }
  }
  // Intel SDM, TDPBSSD: four products of bytes are added to a sum; nothing saturates.
  template <int C, int A, int B>
  void multiply(int32_t) {
    for (int m = 0; m < tiles_[C].rows; m++)
      for (int n = 0; n < 16; n++)
        for (int k = 0; k < kTilePairs; k++)
          for (int p = 0; p < 32; p += 8) {
            const uint32_t a = tiles_[A].words[m][k], b = tiles_[B].words[k][n];
            const int32_t product = static_cast<int8_t>(a >> p) * static_cast<int8_t>(b >> p);
            tiles_[C].words[m][n] += static_cast<uint32_t>(product);
          }
  }
  void release() {}

 private:
  struct Tile {
    int rows;
    uint32_t words[kTileRows][16];
  };
  static float flushed(float x) {
    const uint32_t bits = bit_copy<uint32_t>(x);
    return (bits & 0x7f800000u) == 0 ? bit_copy<float>(bits & 0x80000000u) : x;
  }
  static float number(uint32_t bits) { return flushed(bit_copy<float>(bits)); }
  Tile tiles_[8];
};

#else

class Tiles {
 public:
  // For blocks of so many rows. Sums and operands are lost.
  HT_MEMBER void configure(int rows) {
    struct alignas(64) {
      uint8_t palette, start_row, reserved[14];
      uint16_t row_nbytes[16];
      uint8_t rows[16];
    } shape = {};
    const int upper = rows < kTileRows ? rows : kTileRows, lower = rows - upper;
    shape.palette = 1;
    for (int name = 0; name < 8; name++) shape.row_nbytes[name] = 64;
    shape.rows[kUpperLeft] = shape.rows[kUpperRight] = shape.rows[kUpperA] = static_cast<uint8_t>(upper);
    shape.rows[kLowerLeft] = shape.rows[kLowerRight] = shape.rows[kLowerA] = static_cast<uint8_t>(lower);
    shape.rows[kLeftB] = shape.rows[kRightB] = kTilePairs;
    for (int name = 0; name < 8; name++)
      if (shape.rows[name] == 0) shape.row_nbytes[name] = 0;  // a tile without rows is not configured
    _tile_loadconfig(&shape);
  }
  // gcc writes the number of a tile into its assembly as it stands in the source: each has a line.
  template <int T>
  HT_MEMBER void load(const void* from, int64_t stride) {
    if constexpr (T == kUpperLeft) _tile_loadd(0, from, stride);
    if constexpr (T == kUpperRight) _tile_loadd(1, from, stride);
    if constexpr (T == kLowerLeft) _tile_loadd(2, from, stride);
    if constexpr (T == kLowerRight) _tile_loadd(3, from, stride);
    if constexpr (T == kUpperA) _tile_loadd(4, from, stride);
    if constexpr (T == kLowerA) _tile_loadd(5, from, stride);
    if constexpr (T == kLeftB) _tile_loadd(6, from, stride);
    if constexpr (T == kRightB) _tile_loadd(7, from, stride);
  }
  template <int T>
  HT_MEMBER void store(void* to, int64_t stride) const {
    if constexpr (T == kUpperLeft) _tile_stored(0, to, stride);
    if constexpr (T == kUpperRight) _tile_stored(1, to, stride);
    if constexpr (T == kLowerLeft) _tile_stored(2, to, stride);
    if constexpr (T == kLowerRight) _tile_stored(3, to, stride);
    static_assert(T <= kLowerRight, "sums are stored");
  }
  template <int T>
  HT_MEMBER void clear() {
    if constexpr (T == kUpperLeft) _tile_zero(0);
    if constexpr (T == kUpperRight) _tile_zero(1);
    if constexpr (T == kLowerLeft) _tile_zero(2);
    if constexpr (T == kLowerRight) _tile_zero(3);
    static_assert(T <= kLowerRight, "sums are cleared");
  }
  // Of bf16, summed in float.
  template <int C, int A, int B>
  HT_MEMBER void multiply(float) {
    static_assert(A == (C < kLowerLeft ? kUpperA : kLowerA) && B == (C % 2 == 0 ? kLeftB : kRightB), "of its block");
    if constexpr (C == kUpperLeft) _tile_dpbf16ps(0, 4, 6);
    if constexpr (C == kUpperRight) _tile_dpbf16ps(1, 4, 7);
    if constexpr (C == kLowerLeft) _tile_dpbf16ps(2, 5, 6);
    if constexpr (C == kLowerRight) _tile_dpbf16ps(3, 5, 7);
  }
#if defined(__AMX_INT8__)
  // Of int8, summed in int32.
  template <int C, int A, int B>
  HT_MEMBER void multiply(int32_t) {
    static_assert(A == (C < kLowerLeft ? kUpperA : kLowerA) && B == (C % 2 == 0 ? kLeftB : kRightB), "of its block");
    if constexpr (C == kUpperLeft) _tile_dpbssd(0, 4, 6);
    if constexpr (C == kUpperRight) _tile_dpbssd(1, 4, 7);
    if constexpr (C == kLowerLeft) _tile_dpbssd(2, 5, 6);
    if constexpr (C == kLowerRight) _tile_dpbssd(3, 5, 7);
  }
#endif
  HT_MEMBER void release() { _tile_release(); }
};

#endif

// Up to 16 rows of A under a tap: where the first begins, and how many bytes it is to the next one, and to the next grain of
// k.
struct TileRows {
  const char* at;
  int64_t row, grain;
};
// A block's: the first 16, and the others.
struct TapRows {
  TileRows upper, lower;
};

// Rows that lie as they are, `step` pairs apart.
HT_INLINE TapRows tap_rows(const bf16x2* a, int64_t step) {
  constexpr int64_t grain = kTilePairs * 4;
  const auto from = reinterpret_cast<const char*>(a);
  return {{from, step * 4, grain}, {from + kTileRows * step * 4, step * 4, grain}};
}

constexpr int64_t kGrainNbytes = kTilePairs * kPanel * 4;  // of a panel

// The k of a block: `taps` taps of `pairs` pairs each.
struct TileTaps {
  const int64_t* b_offset;  // where each tap starts in a panel
  int64_t taps, pairs;
  const char* rests = nullptr;  // for each tap, what is left of a panel behind its whole grains, as copy_rest has it

  HT_MEMBER int64_t grains() const { return taps * (pairs / kTilePairs); }  // that are whole
};

// Memory that is soon read, of which lines are asked for while other memory is worked on: a line of each page, then the
// next line of each. Hardware that has seen lines of a page fetches those behind them into the second-level cache by itself,
// and has more room for them on their way than a core has for what it asks for. Of one page at a time a Xeon with AMX read
// 6.0 GB/s beside a product of 128 rows, of all pages of a panel 7.8.
class Ahead {
 public:
  Ahead() = default;
  // nbytes from `from` on, in `turns` calls of ask.
  Ahead(const void* from, int64_t nbytes, int64_t turns)
      : next_(static_cast<const char*>(from)),
        column_(next_),
        columns_end_(next_ + least(nbytes, kPageNbytes)),
        end_(next_ + nbytes),
        lines_(ceil_div(ceil_div(nbytes, kLineNbytes), most(1, turns))) {}

  HT_MEMBER void ask() {
    for (int64_t i = 0; i < lines_ && column_ < columns_end_; i++) {
      __builtin_prefetch(next_, 0, 2);
      next_ += kPageNbytes;
      if (next_ >= end_) next_ = column_ += kLineNbytes;
    }
  }

 private:
  static constexpr int64_t kPageNbytes = 4096, kLineNbytes = 64;
  const char *next_ = nullptr, *column_ = nullptr, *columns_end_ = nullptr, *end_ = nullptr;
  int64_t lines_ = 0;
};

// sums[r * ld + c] (+)= the rows times a panel, a tap's behind the other's; `count` as configured, columns up to kPanel, whole
// tiles of them written. Defined in tiles.cpp, once for a library; tile_block.h has the loop.
void tile_block(Tiles& tiles, int count, const TapRows* rows, const TileTaps& s, const bf16x2* panel, float* sums,
                int64_t ld, int columns, bool resume, Ahead& ahead);

}  // namespace ht

#endif

#endif  // HARDTACK_TEMPLATES_TILES_H
