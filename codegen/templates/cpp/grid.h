// How a blocked product (blocks.h) is cut: k into blocks, rows and panels into units, units into tasks.
#ifndef HARDTACK_TEMPLATES_GRID_H
#define HARDTACK_TEMPLATES_GRID_H

#include "half.h"
#include "micro.h"
#include "parallel.h"
#include "tiles.h"
#include "workspace.h"

namespace ht {

constexpr int64_t kSerialWork = 1 << 20;  // multiplications below which waking other threads does not pay

// What else than multiplying a product takes, counted in multiplications.
struct GridCosts {
  int64_t serial;    // below which waking other threads does not pay
  int64_t unit;      // below which a unit is not cut further
  int64_t hand_out;  // while a worker is given a task, and no other is
  int64_t reload;    // rows of arithmetic that reading a unit's part of B takes; columns, for A
};
constexpr GridCosts kVectorCosts = {kSerialWork, 1 << 18, 6600, 16};
// Tiles multiply eight times as much in a time, and read no faster: bf16 of 12 GB/s beside 0.5e12 multiplications a second.
// Products of so few multiplications that others are not woken, or that are not cut, spend their time on other things.
constexpr GridCosts kTileCosts = {kSerialWork, 1 << 18, 4 * 6600, 80};

// How a product of two values reads B where its rows are contiguous.
enum class Right { kBySize, kPacked, kInPlace };

template <class T>
constexpr int64_t kOperandNbytes = same<Staged<T>, float> ? 4 : 2;

// How products of T are cut on this machine. rows, panels: the most in a unit. depth: the longest k block. unit_depth: the
// most panels * k of a unit's part of B. Where B is read as pairs of 16 bits, a unit has as many bytes of it, and so twice
// the panels. Rows that are staged stay in the first-level cache; float ones are read where they are, and may be longer.
template <class T>
struct MachineBlocks {
  static constexpr int64_t rows = kChunkRows, panels = kUnitRowNbytes / (kPanel * kOperandNbytes<T>);
  static constexpr int64_t depth = same<T, float> ? kFloatDepth : kStagedDepth;
  static constexpr int64_t unit_depth = most(depth, kUnitNbytes / (kPanel * kOperandNbytes<T>));
  static constexpr Right right = Right::kBySize;
  static_assert(rows >= kBlockRows && depth % kGrain == 0 && depth <= kMostDepth, "blocks have room");
  static_assert(kMaxRows <= kRowsOfK && kBlockRows * 2 <= kRowsOfK * 4, "rows of 16-bit numbers are staged in it");
};

// The same with what a plan of a tuning table says.
template <class T, int64_t Depth, Right Way>
struct TunedBlocks : MachineBlocks<T> {
  static constexpr int64_t depth = Depth;
  static constexpr int64_t unit_depth = most(depth, MachineBlocks<T>::unit_depth);
  static constexpr Right right = Way;
  static_assert(depth % kGrain == 0 && depth <= kMostDepth, "blocks have room");
};

// A run of taps [tap, tap + taps) and elements [c, c + kc) of each.
struct KBlock {
  int64_t tap, taps, c, kc;
};

// The k axis: taps of kc consecutive elements, cut into blocks of at most `depth` elements. A block is a run of whole
// taps or a part of one, so that k still ascends from block to block. Parts start at multiples of `grain` elements, and
// a tap counts as a multiple of it: pairs and tiles stay whole, staged rows have room.
struct KAxis {
  int64_t taps, kc;
  int64_t grain = 1, depth = 0;  // as run_blocks sets them

  HT_MEMBER int64_t parts_per_tap() const { return ceil_div(kc, depth); }
  HT_MEMBER int64_t blocks() const {
    if (taps == 0 || kc == 0) return 0;
    if (kc > depth) return taps * parts_per_tap();
    return ceil_div(taps, least(kMaxTaps, depth / (ceil_div(kc, grain) * grain)));
  }
  HT_MEMBER KBlock block(int64_t i) const {
    if (kc > depth) {
      const Range c = part_of(ceil_div(kc, grain), i % parts_per_tap(), parts_per_tap());
      return {i / parts_per_tap(), 1, c.begin * grain, least(kc, c.end * grain) - c.begin * grain};
    }
    const Range t = part_of(taps, i, blocks());
    return {t.begin, t.end - t.begin, 0, kc};
  }
};

// Panels in a unit of a product of depth k.
template <class Cut>
constexpr int64_t chunk_panels(int64_t n, int64_t k) {
  return least(panels_of(n), most(1, least(Cut::panels, Cut::unit_depth / most(1, least(k, Cut::depth)))));
}

// Rows of the tallest block that is multiplied at once. A few rows are bound by how fast B arrives, and whatever is
// chosen holds for the whole product: results must not depend on how it is cut. Tiles have no sums without k.
template <class T>
constexpr int64_t block_rows(int64_t m, int64_t k) {
#if defined(HT_TILES)
  if (kTiled<T> && m > kFewRows && k > 0) return kBlockRows;
#endif
  static_cast<void>(m);
  static_cast<void>(k);
  return kMaxRows;
}

// Which part of which product a unit is.
struct UnitPlace {
  int64_t batch, row_chunk, panel_chunk;
};

constexpr int64_t kShortK = 128;  // k of a panel that takes half of a first-level cache

// Rows in blocks no higher than `block`. Even ones are nearly equal: B streams from the second-level cache, and each block
// takes about as long as B does. Others are all of the full height but for the last two, of which the last has
// kFewRows at least: fewer would wait for each sum.
struct RowBlocks {
  int64_t rows, block;
  bool even;

  HT_MEMBER int64_t count() const { return ceil_div(rows, block); }
  HT_MEMBER int64_t first(int64_t i) const {  // of block i; behind the last one, the end
    if (even) return i * (rows / count()) + least(i, rows % count());
    return i < count() ? least(i * block, most(0, rows - kFewRows)) : rows;
  }
  HT_MEMBER int height(int64_t i) const { return static_cast<int>(first(i + 1) - first(i)); }
};

// How the product is cut.
struct Grid {
  RowBlocks m;
  int64_t batches, panels;
  int64_t row_blocks, row_chunks, panel_chunks;
  int64_t units, units_per_task;

  // A worker's units lie one behind the other (thread_pool.cpp), so workers share rows first: those that one reads here it
  // wrote in the kernel before, and they are in its cache. B is read by all, and written by none of them.
  // Batches that are groups of the same rows' channels pass by a chunk of rows one after the other, while it is in the cache.
  HT_MEMBER UnitPlace place(int64_t unit, bool one_input) const {
    const int64_t chunk = unit / panel_chunks, panel_chunk = unit % panel_chunks;
    if (one_input) return {chunk % batches, chunk / batches, panel_chunk};
    return {chunk / row_chunks, chunk % row_chunks, panel_chunk};
  }
  HT_MEMBER Range rows(int64_t chunk) const {
    const Range blocks = part_of(row_blocks, chunk, row_chunks);
    return {m.first(blocks.begin), m.first(blocks.end)};
  }
};

// The least number of chunks, from `chunks` on, of which `others` times as many are shared out evenly.
HT_INLINE int64_t even_chunks(int64_t chunks, int64_t others, int64_t workers) {
  int64_t common = workers;
  for (int64_t rest = others; rest != 0;) {
    const int64_t next = common % rest;
    common = rest;
    rest = next;
  }
  const int64_t step = workers / common;
  return ceil_div(chunks, step) * step;
}

// Every number in a result is the same for every grid, so the number of workers may shape it. Of the cuts between few
// large units and many small ones, and of those next to them that give each worker as many units, the one that ends
// soonest: bench/schedule.py has the same rule, and simulates it.
template <class Cut>
inline Grid make_grid(int64_t batches, int64_t m, int64_t n, int64_t k, int64_t workers, int64_t block) {
  const GridCosts& cost = block == kBlockRows ? kTileCosts : kVectorCosts;
  Grid g = {};
  g.m = {m, block, k > kShortK};
  g.batches = batches;
  g.panels = panels_of(n);
  g.row_blocks = g.m.count();
  int64_t blocks = least(g.row_blocks, Cut::rows / block), panels = chunk_panels<Cut>(n, k);
  // Loading B is what counts when m is small.
  if (batches * (m + cost.reload) * n * k < cost.serial) workers = 1;
  int64_t unit_work = 0, least_time = 0;
  const auto consider = [&](int64_t row_chunks, int64_t panel_chunks) {
    if (row_chunks > g.row_blocks || panel_chunks > g.panels) return int64_t{0};
    const int64_t units = batches * row_chunks * panel_chunks;
    const int64_t rows = ceil_div(g.row_blocks, row_chunks) * block;
    const int64_t columns = ceil_div(g.panels, panel_chunks) * kPanel;
    const int64_t work = (rows + cost.reload) * (columns + cost.reload) * k;
    // The workers' turns; one more, by which a slow or busy one is late; and handing units out.
    const int64_t time = (ceil_div(units, workers) + 1) * work + units * cost.hand_out;
    if (least_time == 0 || time < least_time) {
      least_time = time;
      unit_work = work;
      g.row_chunks = row_chunks;
      g.panel_chunks = panel_chunks;
      g.units = units;
    }
    return work;
  };
  for (;;) {
    const int64_t row_chunks = ceil_div(g.row_blocks, blocks), panel_chunks = ceil_div(g.panels, panels);
    const int64_t work = consider(row_chunks, panel_chunks);
    if (workers == 1) break;
    consider(even_chunks(row_chunks, batches * panel_chunks, workers), panel_chunks);
    consider(row_chunks, even_chunks(panel_chunks, batches * row_chunks, workers));
    const int64_t units = batches * row_chunks * panel_chunks;
    if (units >= 8 * workers || work < 2 * cost.unit || (blocks == 1 && panels == 1)) break;
    int64_t& longer = panels * kPanel >= blocks * block && panels > 1 ? panels : (blocks > 1 ? blocks : panels);
    longer = ceil_div(longer, 2);
  }
  const int64_t tasks = least(g.units, 4 * workers), fitting = most(1, cost.unit / most(1, unit_work));
  g.units_per_task = workers == 1 ? g.units : least(ceil_div(g.units, tasks), fitting);
  return g;
}

// A unit of a product: rows [m.begin, m.end) of a batch times panels [p.begin, p.end).
struct Unit {
  int64_t batch;
  Range m, p;
  RowBlocks blocks;  // of its rows
};

}  // namespace ht

#endif  // HARDTACK_TEMPLATES_GRID_H
