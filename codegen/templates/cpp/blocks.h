// The blocked matrix product behind gemm.h and conv.h: which tile is computed when, by whom, and from where.
//
// C[batch, m, n] = sum over k of A[batch, m, k] * B[batch, k, n] is cut into units of some row blocks times some
// panels; units are shared out over the workers. Inside a unit, k is cut into blocks small enough that the unit's part
// of B stays in the second-level cache; sums travel from one k block to the next in the worker's workspace. Finished
// rows go to the epilogue, which alone knows where and how the result is stored.
//
// A Source says where A and B are:
//   Cursor start(int64_t batch, int64_t m, const KBlock&, float* scratch) const    before row m of A
//   void rows(Cursor&, int count, const float** out) const
//       out[t * count + r]: the next rows of A, row r under tap t of the k block; moves the cursor behind them
//   PanelView panels(int64_t batch, Range panels, const KBlock&, float* scratch) const
//   int64_t tap_offset(int64_t tap) const    where a tap starts in a panel, in elements
//   int64_t epilogue_batch(int64_t batch) const, int64_t epilogue_row(int64_t m) const,
//   int64_t epilogue_column(int64_t batch) const     what the epilogue is told for this batch, row, and column 0
//
// An epilogue is written by the code generator:
//   struct Row {...};
//   Row row(int64_t batch, int64_t m) const;                                 once for a row and a chunk of columns
//   void operator()(const Row&, int64_t m, int64_t n, int count, vec<float> acc) const;   columns [n, n + count)
#ifndef HARDTACK_TEMPLATES_BLOCKS_H
#define HARDTACK_TEMPLATES_BLOCKS_H

#include "micro.h"
#include "parallel.h"
#include "workspace.h"

namespace ht {

constexpr int64_t kSerialWork = 1 << 20; // multiplications below which waking other threads does not pay
constexpr int64_t kUnitWork = 1 << 18;   // multiplications below which a unit is not cut further
constexpr int64_t kHandOutWork = 6600;   // multiplications while a worker is given a task, and no other is
constexpr int64_t kReload = 16;          // rows of arithmetic that reading a unit's part of B takes; columns, for A

// A run of taps [tap, tap + taps) and elements [c, c + kc) of each.
struct KBlock {
  int64_t tap, taps, c, kc;
};

// The k axis: taps of kc consecutive elements, cut into blocks of at most kDepth elements. A block is a run of whole
// taps or a part of one, so that k still ascends from block to block.
struct KAxis {
  int64_t taps, kc;

  HT_MEMBER int64_t parts_per_tap() const { return ceil_div(kc, kDepth); }
  HT_MEMBER int64_t blocks() const {
    if (taps == 0 || kc == 0) return 0;
    if (kc > kDepth) return taps * parts_per_tap();
    return ceil_div(taps, least(kMaxTaps, kDepth / kc));
  }
  HT_MEMBER KBlock block(int64_t i) const {
    if (kc > kDepth) {
      const Range c = part_of(kc, i % parts_per_tap(), parts_per_tap());
      return {i / parts_per_tap(), 1, c.begin, c.end - c.begin};
    }
    const Range t = part_of(taps, i, blocks());
    return {t.begin, t.end - t.begin, 0, kc};
  }
};

// Asks for `count` rows of numel elements, ld apart, ahead of their use: the next tile of A while this one is worked
// on. A dozen short streams at once are more than hardware prefetchers follow.
HT_INLINE void prefetch_rows(const float* a, int64_t ld, int count, int64_t numel) {
  for (int r = 0; r < count; r++)
    for (int64_t i = 0; i < numel; i += 16) __builtin_prefetch(a + r * ld + i);
}

// Panel p of the range asked for is at base + p * stride; its rows are ldb elements apart.
struct PanelView {
  const float* base;
  int64_t stride;
  int64_t ldb;
};

// Panels in a unit of a product of depth k.
constexpr int64_t chunk_panels(int64_t n, int64_t k) {
  return least(panels_of(n), most(1, least(kChunkPanels, kChunkDepth / most(1, least(k, kDepth)))));
}

// How the product is cut. Rows are cut into blocks of nearly equal height, none higher than the tallest microkernel.
struct Grid {
  int64_t m, panels;
  int64_t row_blocks, row_chunks, panel_chunks;
  int64_t units, units_per_task;

  HT_MEMBER int64_t first_row(int64_t block) const {
    return block * (m / row_blocks) + least(block, m % row_blocks);
  }
  HT_MEMBER Range rows(int64_t chunk) const {
    const Range blocks = part_of(row_blocks, chunk, row_chunks);
    return {first_row(blocks.begin), first_row(blocks.end)};
  }
};

// Every number in a result is the same for every grid, so the number of workers may shape it. Of the cuts between few
// large units and many small ones, the one that ends soonest: bench/schedule.py has the same rule, and simulates it.
inline Grid make_grid(int64_t batches, int64_t m, int64_t n, int64_t k, int64_t workers) {
  Grid g = {};
  g.m = m;
  g.panels = panels_of(n);
  g.row_blocks = ceil_div(m, kMaxRows);
  int64_t blocks = least(g.row_blocks, kChunkRows / kMaxRows), panels = chunk_panels(n, k);
  // Loading B is what counts when m is small.
  if (batches * (m + kReload) * n * k < kSerialWork) workers = 1;
  int64_t unit_work = 0, least_time = 0;
  for (;;) {
    const int64_t row_chunks = ceil_div(g.row_blocks, blocks), panel_chunks = ceil_div(g.panels, panels);
    const int64_t units = batches * row_chunks * panel_chunks;
    const int64_t rows = ceil_div(g.row_blocks, row_chunks) * kMaxRows;
    const int64_t columns = ceil_div(g.panels, panel_chunks) * kPanel;
    const int64_t work = (rows + kReload) * (columns + kReload) * k;
    // The workers' turns; one more, by which a slow or busy one is late; and handing units out.
    const int64_t time = (ceil_div(units, workers) + 1) * work + units * kHandOutWork;
    if (least_time == 0 || time < least_time) {
      least_time = time;
      unit_work = work;
      g.row_chunks = row_chunks;
      g.panel_chunks = panel_chunks;
      g.units = units;
    }
    if (workers == 1 || units >= 8 * workers || work < 2 * kUnitWork || (blocks == 1 && panels == 1)) break;
    int64_t& longer = panels * kPanel >= blocks * kMaxRows && panels > 1 ? panels : (blocks > 1 ? blocks : panels);
    longer = ceil_div(longer, 2);
  }
  const int64_t tasks = least(g.units, 4 * workers), fitting = most(1, kUnitWork / most(1, unit_work));
  g.units_per_task = workers == 1 ? g.units : least(ceil_div(g.units, tasks), fitting);
  return g;
}

// Hands a tile of `count` rows from m on, columns [n.begin, n.end), to the epilogue.
template <class Source, class Epi>
HT_INLINE void finish_rows(const Source& source, const Epi& epi, int64_t batch, int64_t m, int count, Range n,
                           const float* tile, int64_t ld) {
  const int64_t n0 = source.epilogue_column(batch);
  for (int r = 0; r < count; r++) {
    const int64_t out = source.epilogue_row(m + r);
    const auto row = epi.row(source.epilogue_batch(batch), out);
    const float* sums = tile + r * ld;
    int64_t j = n.begin;
    for (; j + W <= n.end; j += W, sums += W) epi(row, out, n0 + j, W, load(sums));
    if (j < n.end) epi(row, out, n0 + j, static_cast<int>(n.end - j), load(sums));
  }
}

inline void clear(float* p, int64_t numel) {
  for (int64_t i = 0; i < numel; i++) p[i] = 0.0f;
}

// One k block of one tile: the next `count` rows of A times the panels of view.
template <class Source>
HT_INLINE void multiply_rows(const Source& source, typename Source::Cursor& cursor, int count, const KBlock& kb,
                             const int64_t* offsets, const PanelView& view, Range n, float* tile, int64_t ld,
                             bool resume) {
  const float* rows[kMaxTaps * kMaxRows];
  source.rows(cursor, count, rows);
  const MicroTaps taps = {rows, offsets, kb.taps, kb.kc, view.ldb};
  const float* b = view.base;
  for (int64_t j = n.begin; j < n.end; j += kPanel, b += view.stride) {
    const int columns = static_cast<int>(least(kPanel, n.end - j));
    micro_tile(count, taps, b, tile + (j - n.begin), ld, columns, resume);
  }
}

// One unit: rows [m.begin, m.end) times panels [p.begin, p.end). `tile` holds tile_nbytes, `scratch` what Source asks.
template <class Source, class Epi>
void run_unit(const Source& shared_source, const Epi& shared_epi, int64_t batch, Range m, Range p, int64_t n, KAxis k,
              float* tile, float* scratch) {
  // Copies of its own: what is stored through the epilogue's pointers cannot change them, and they stay in registers.
  const Source source = shared_source;
  const Epi epi = shared_epi;
  const Range columns = {p.begin * kPanel, least(p.end * kPanel, n)};
  const int64_t ld = (p.end - p.begin) * kPanel;
  const int64_t blocks = k.blocks(), height = m.end - m.begin, tiles = ceil_div(height, kMaxRows);
  if (blocks == 0) clear(tile, height * ld);
  for (int64_t i = 0; i < blocks || i == 0; i++) {
    int64_t offsets[kMaxTaps];
    const KBlock kb = blocks > 0 ? k.block(i) : KBlock{};
    const PanelView view = source.panels(batch, p, kb, scratch);
    for (int64_t t = 0; t < kb.taps; t++) offsets[t] = source.tap_offset(kb.tap + t);
    typename Source::Cursor cursor = source.start(batch, m.begin, kb, scratch);
    for (int64_t j = 0, row = m.begin; j < tiles; j++) {
      const int count = static_cast<int>(height / tiles + (j < height % tiles ? 1 : 0));
      // With a single k block nothing travels, and the tile stays in the first-level cache.
      float* sums = blocks == 1 ? tile : tile + (row - m.begin) * ld;
      if (blocks > 0) multiply_rows(source, cursor, count, kb, offsets, view, columns, sums, ld, i > 0);
      if (i + 1 >= blocks) finish_rows(source, epi, batch, row, count, columns, sums, ld);
      row += count;
    }
  }
}

// The whole product. A worker's workspace holds tile_numel(m, n) sums, then the source's scratch.
template <class Source, class Epi>
int32_t run_blocks(const HtKernelArgs* args, const Source& source, const Epi& epi, int64_t batches, int64_t m,
                   int64_t n, KAxis k) {
  if (batches == 0 || m == 0 || n == 0) return HT_KERNEL_OK;
  const Grid grid = make_grid(batches, m, n, k.taps * k.kc, args->parallel->nworkers);
  parallel_for(args, ceil_div(grid.units, grid.units_per_task), [&](int64_t task, int32_t worker) {
    float* tile = reinterpret_cast<float*>(worker_workspace(args, worker));
    const int64_t end = least(grid.units, (task + 1) * grid.units_per_task);
    for (int64_t unit = task * grid.units_per_task; unit < end; unit++) {
      const int64_t row_chunk = unit % grid.row_chunks, rest = unit / grid.row_chunks;
      const Range panels = part_of(grid.panels, rest % grid.panel_chunks, grid.panel_chunks);
      run_unit(source, epi, rest / grid.panel_chunks, grid.rows(row_chunk), panels, n, k, tile, tile + tile_numel(m, n));
    }
  });
  return HT_KERNEL_OK;
}

}  // namespace ht

#endif  // HARDTACK_TEMPLATES_BLOCKS_H
