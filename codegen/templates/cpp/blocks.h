// The blocked matrix product behind gemm.h and conv.h: which tile is computed when, by whom, and from where.
//
// C[batch, m, n] = sum over k of A[batch, m, k] * B[batch, k, n] is cut into units of some row blocks times some
// panels; units are shared out over the workers. Inside a unit, k is cut into blocks small enough that the unit's part
// of B stays in the second-level cache; sums travel from one k block to the next in the worker's workspace. Finished
// rows go to the epilogue, which alone knows where and how the result is stored.
//
// A Source says where A and B are:
//   Element                  the type of A's elements: float, or a shorter one, whose rows may be staged (half.h, int8.h)
//   Cursor start(int64_t batch, int64_t m, const KBlock&, void* scratch) const    before row m of A
//   void rows(Cursor&, int count, const Element** out) const
//       out[t * count + r]: the next rows of A, row r under tap t of the k block; moves the cursor behind them
//   PanelView<B> panels(int64_t batch, Range panels, const KBlock&, void* scratch) const    B: Packed<Element> or float
//   int64_t tap_offset(int64_t tap) const    where a tap starts in a panel, in its elements
//   int64_t epilogue_batch(int64_t batch) const, int64_t epilogue_row(int64_t m) const,
//   int64_t epilogue_column(int64_t batch) const     what the epilogue is told for this batch, row, and column 0
//   bool rows_stay() const                       whether all that rows() gave can be read until the k block is done
//   bool rows_follow() const                     whether the epilogue's rows are next to each other where those of A are
//   bool has_room() const                        asked where fours of a row are read where they lie (int8.h): whether that of a
//                                                row's last elements is in memory, whatever stands behind these
//   RowRun run_from(int64_t m, int count) const  how many rows from m on, up to count, are next to each other there, and where
//   static constexpr bool kOneInput              whether rows of A are parts of the same lines in every batch: a convolution's.
//                                                Tiles ask such a source for next_even_rows, window, copy_window and tile_rows,
//                                                too: conv.h
//
// An epilogue is written by the code generator:
//   struct Row {...};
//   Row row(int64_t batch, int64_t m) const;                                 once for a row and a chunk of columns
//   void operator()(const Row&, int64_t m, int64_t n, int count, vec<Sum<T>> acc) const;  columns [n, n + count)
//   void part(const Row&, int64_t m, int64_t n, int count, vec<Sum<T>> acc) const;        the same, where it may be a part
//   static constexpr int kOperations;             about how many instructions a vector takes
//   static constexpr bool kOneRow;                whether m is always 0
#ifndef HARDTACK_TEMPLATES_BLOCKS_H
#define HARDTACK_TEMPLATES_BLOCKS_H

#include "finish.h"
#include "grid.h"
#include "half.h"
#include "micro.h"
#include "operands.h"
#include "parallel.h"
#include "tile_walk.h"
#include "workspace.h"

namespace ht {
namespace detail {

template <class T>
HT_INLINE bool share_a_set(const T* const* rows, int count) {
  const auto first = reinterpret_cast<uintptr_t>(rows[0]);
  int together = 0;
  for (int r = 0; r < count; r++)
    together += (reinterpret_cast<uintptr_t>(rows[r]) - first) % kSetDistance < 64 ? 1 : 0;
  return together > kSetLines;
}

// Rows of A as the microkernel reads them: float as it lies, or copied where rows share a set, each a line further.
HT_INLINE const float* const* staged_rows(const float** rows, int count, const KBlock& kb, void* staged, bool) {
  if (kb.kc < kSpreadK || !share_a_set(rows, count)) return rows;
  const int64_t step = (kb.kc + 15) / 16 * 16 + 16;
  float* to = static_cast<float*>(staged);
  for (int64_t i = 0; i < kb.taps * count; i++, to += step) {
    copy_row(to, rows[i], kb.kc);
    rows[i] = to;
  }
  return rows;
}
// The same of shorter numbers: where pairs or fours are multiplied, a row's neighbours are those where they lie. has_room:
// whether whole fours can be read, also of rows that end within one.
template <class T>
HT_INLINE const Staged<T>* const* staged_rows(const T** rows, int count, const KBlock& kb, void* staged,
                                              bool has_room) {
  if constexpr (reads_pairs_in_place<T> || kReadsQuads<T>) {
    const bool whole = reads_pairs_in_place<T> || has_room || kb.kc % PackedOf<T>::ks == 0;
    if (whole && (kb.kc < kSpreadK || !share_a_set(rows, count))) return reinterpret_cast<const Staged<T>* const*>(rows);
  }
  Staged<T>* to = static_cast<Staged<T>*>(staged);
  const auto out = reinterpret_cast<const Staged<T>**>(rows);  // each pointer is replaced by one to its copy
  const int64_t step = same<Staged<T>, float> ? packed_rows<T>(kb.kc) * PackedOf<T>::ks : packed_rows<T>(kb.kc);
  for (int64_t i = 0; i < kb.taps * count; i++, to += step) {
    stage_row(to, rows[i], kb.kc);
    out[i] = to;
  }
  return out;
}

// k elements of a tap, counted as the panel counts them.
template <class B>
constexpr int64_t ks_of(int64_t kc) {
  return (kc + kDepthOf<B> - 1) / kDepthOf<B>;
}

}  // namespace detail

template <class T>
using Sum = typename SumOf<T>::type;

// The panels of a k block as float, tap by tap. offsets: where the taps start in them; then where they start here.
template <class B>
HT_INLINE PanelView<float> widen_panels(const PanelView<B>& view, int64_t count, const KBlock& kb, int64_t* offsets,
                                        float* to) {
  const int64_t tap_numel = kb.kc * kPanel;
  for (int64_t p = 0; p < count; p++)
    for (int64_t t = 0; t < kb.taps; t++)
      widen_panel(to + (p * kb.taps + t) * tap_numel, view.base + p * view.stride + offsets[t], kb.kc);
  for (int64_t t = 0; t < kb.taps; t++) offsets[t] = t * tap_numel;
  return {to, kb.taps * tap_numel, kPanel};
}

// A k block of a unit: where its taps start in a panel, and its panels; whether there are sums of the blocks before, and
// whether it is the last.
template <class B>
struct KStep {
  const KBlock& kb;
  const int64_t* offsets;
  const PanelView<B>& view;
  bool resume, last;
};
template <class B>
HT_INLINE KStep<B> step_of(const KBlock& kb, const int64_t* offsets, const PanelView<B>& view, bool resume, bool last) {
  return {kb, offsets, view, resume, last};
}

// One k block of one tile, the next rows of A times the panels: to the epilogue behind the last one.
template <class Source, class Epi, class B>
HT_INLINE void run_tile(const Source& source, typename Source::Cursor& cursor, const Epi& epi, const TileAt& at,
                        int count, Range columns, const KStep<B>& step, void* staged,
                        Sum<typename Source::Element>* sums, int64_t ld) {
  using T = typename Source::Element;
  const T* rows[kMaxTaps * kMaxRows];
  source.rows(cursor, count, rows);
  bool has_room = false;
  if constexpr (kReadsQuads<T>) has_room = source.has_room();
  const TapsOf<Staged<T>> taps = {detail::staged_rows(rows, count, step.kb, staged, has_room),
                                  step.offsets,
                                  step.kb.taps,
                                  detail::ks_of<B>(step.kb.kc),
                                  step.view.ldb,
                                  reads_pairs_in_place<T> && step.kb.kc % 2 != 0};
  const B* b = step.view.base;
  const bool finishes = step.last && !step.resume && step.kb.taps * step.kb.kc <= kFinishK && count == kMaxRows;
  Range left = columns;  // what the epilogue has not got yet
  for (int64_t j = columns.begin; j < columns.end; j += kPanel, b += step.view.stride) {
    const int width = static_cast<int>(least(kPanel, columns.end - j));
    if constexpr (kFinishesSums<T, Epi>) {
      if (finishes && source.rows_follow() && ends_in_registers(width)) {
        finish_tile(source, epi, {at.batch, at.m, j}, width, taps, b);
        left.begin = j + width;
        continue;
      }
    }
    micro_tile(count, taps, b, sums + (j - columns.begin), ld, width, step.resume);
  }
  if (step.last && left.begin < left.end)
    finish_rows(source, epi, at.batch, at.m, count, left, sums + (left.begin - columns.begin), ld);
}

// One k block of a unit, tile by tile.
template <class Source, class Epi, class B>
HT_INLINE void run_k_block(const Source& source, const Epi& epi, const Unit& u, Range columns, int64_t blocks,
                           const KStep<B>& step, Sum<typename Source::Element>* tile, const Scratch& scratch) {
  const int64_t ld = (u.p.end - u.p.begin) * kPanel;
  typename Source::Cursor cursor = source.start(u.batch, u.m.begin, step.kb, scratch.source);
  for (int64_t j = 0, row = u.m.begin; j < u.blocks.count(); j++) {
    const int count = u.blocks.height(j);
    // With a single k block nothing travels, and the tile stays in the first-level cache.
    Sum<typename Source::Element>* sums = blocks == 1 ? tile : tile + (row - u.m.begin) * ld;
    run_tile(source, cursor, epi, {u.batch, row, 0}, count, columns, step, scratch.staged, sums, ld);
    row += count;
  }
}

// `tile` holds the unit's sums.
template <class Source, class Epi>
void run_unit(const Source& shared_source, const Epi& shared_epi, const Unit& u, int64_t n, KAxis k,
              Sum<typename Source::Element>* tile, const Scratch& scratch) {
  using T = typename Source::Element;
  // Copies of its own: what is stored through the epilogue's pointers cannot change them, and they stay in registers.
  const Source source = shared_source;
  const Epi epi = shared_epi;
  const Range columns = {u.p.begin * kPanel, least(u.p.end * kPanel, n)};
  const int64_t blocks = k.blocks(), height = u.m.end - u.m.begin;
  for (int64_t i = 0; i < blocks || i == 0; i++) {
    int64_t offsets[kMaxTaps];
    const KBlock kb = blocks > 0 ? k.block(i) : KBlock{};  // without k, a block of no taps: sums of 0
    const bool resume = i > 0, last = i + 1 >= blocks;
    const auto view = source.panels(u.batch, u.p, kb, scratch.source);
    for (int64_t t = 0; t < kb.taps; t++) offsets[t] = source.tap_offset(kb.tap + t);
    if constexpr (widens<T, ElementOf<decltype(view)>>) {
      if (height >= kWidenRows) {
        const auto wide = widen_panels(view, u.p.end - u.p.begin, kb, offsets, scratch.widened);
        run_k_block(source, epi, u, columns, blocks, step_of(kb, offsets, wide, resume, last), tile, scratch);
        continue;
      }
    }
#if defined(HT_TILES)
    if constexpr (kTiled<T>) {
      if (u.blocks.block == kBlockRows) {
        run_k_block_by_tiles(source, epi, u, columns, k, i, kb, offsets, view, tile, scratch);
        continue;
      }
    }
#endif
    run_k_block(source, epi, u, columns, blocks, step_of(kb, offsets, view, resume, last), tile, scratch);
  }
}

// Where a worker's parts lie: its sums, rows of A, for 16-bit numbers panels, then the source's scratch.
template <class T, class Cut>
HT_INLINE Scratch scratch_of(float* tile, int64_t m, int64_t n) {
  float* behind = tile + tile_numel(m, n, Cut::rows, Cut::panels);
  if constexpr (same<T, float>) return {behind, nullptr, behind + spread_rows_numel(m, Cut::depth)};
  float* widened = behind + staged_numel(m, Cut::depth);
  const int64_t numel = same<Staged<T>, float> ? packed_panels_numel(n, Cut::depth, Cut::depth, Cut::unit_depth) : 0;
  return {behind, widened, widened + numel};
}

// body(unit, worker) for every unit of a grid, by all workers.
template <class Body>
HT_INLINE void for_units(const HtKernelArgs* args, const Grid& grid, bool one_input, const Body& body) {
  parallel_for(args, ceil_div(grid.units, grid.units_per_task), [&](int64_t task, int32_t worker) {
    const int64_t end = least(grid.units, (task + 1) * grid.units_per_task);
    for (int64_t unit = task * grid.units_per_task; unit < end; unit++) {
      const UnitPlace at = grid.place(unit, one_input);
      const Range panels = part_of(grid.panels, at.panel_chunk, grid.panel_chunks);
      const Range rows = grid.rows(at.row_chunk);
      const RowBlocks blocks = {rows.end - rows.begin, grid.m.block, grid.m.even};
      body(Unit{at.batch, rows, panels, blocks}, worker);
    }
  });
}

// The whole product. Cut: MachineBlocks or TunedBlocks.
template <class Cut, class Source, class Epi>
int32_t run_blocks(const HtKernelArgs* args, const Source& source, const Epi& epi, int64_t batches, int64_t m,
                   int64_t n, KAxis k) {
  using T = typename Source::Element;
  if (batches == 0 || m == 0 || n == 0) return HT_KERNEL_OK;
  if constexpr (!same<T, float>) k.grain = kGrainOf<T>;
  k.depth = Cut::depth;
  const int64_t numel = k.taps * k.kc;
  const Grid grid = make_grid<Cut>(batches, m, n, numel, args->parallel->nworkers, block_rows<T>(m, numel));
  for_units(args, grid, Source::kOneInput, [&](const Unit& unit, int32_t worker) {
    const auto words = worker_workspace(args, worker);
    const Scratch scratch = scratch_of<T, Cut>(reinterpret_cast<float*>(words), m, n);
    run_unit(source, epi, unit, n, k, reinterpret_cast<Sum<T>*>(words), scratch);
  });
  return HT_KERNEL_OK;
}

}  // namespace ht

#endif  // HARDTACK_TEMPLATES_BLOCKS_H
