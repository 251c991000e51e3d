// The blocked matrix product behind gemm.h and conv.h: which tile is computed when, by whom, and from where.
//
// C[batch, m, n] = sum over k of A[batch, m, k] * B[batch, k, n] is cut into units of some row blocks times some
// panels; units are shared out over the workers. Inside a unit, k is cut into blocks small enough that the unit's part
// of B stays in the second-level cache; sums travel from one k block to the next in the worker's workspace. Finished
// rows go to the epilogue, which alone knows where and how the result is stored.
//
// A Source says where A and B are:
//   Element                  the type of A's elements: float, or a 16-bit one, whose rows may be staged (half.h)
//   Cursor start(int64_t batch, int64_t m, const KBlock&, void* scratch) const    before row m of A
//   void rows(Cursor&, int count, const Element** out) const
//       out[t * count + r]: the next rows of A, row r under tap t of the k block; moves the cursor behind them
//   PanelView<B> panels(int64_t batch, Range panels, const KBlock&, void* scratch) const    B: Packed<Element> or float
//   int64_t tap_offset(int64_t tap) const    where a tap starts in a panel, in its elements
//   int64_t epilogue_batch(int64_t batch) const, int64_t epilogue_row(int64_t m) const,
//   int64_t epilogue_column(int64_t batch) const     what the epilogue is told for this batch, row, and column 0
//   bool rows_stay() const                       whether all that rows() gave can be read until the k block is done
//   bool rows_follow() const                     whether the epilogue's rows are next to each other where those of A are
//   RowRun run_from(int64_t m, int count) const  how many rows from m on, up to count, are next to each other there, and where
//   static constexpr bool kOneInput              whether rows of A are parts of the same lines in every batch: a convolution's,
//                                                which may have its rows in windows (conv_window.h)
//
// An epilogue is written by the code generator:
//   struct Row {...};
//   Row row(int64_t batch, int64_t m) const;                                 once for a row and a chunk of columns
//   void operator()(const Row&, int64_t m, int64_t n, int count, vec<float> acc) const;   columns [n, n + count)
//   void part(const Row&, int64_t m, int64_t n, int count, vec<float> acc) const;         the same, where it may be a part
//   static constexpr int kOperations;             about how many instructions a vector takes
//   static constexpr bool kOneRow;                whether m is always 0
#ifndef HARDTACK_TEMPLATES_BLOCKS_H
#define HARDTACK_TEMPLATES_BLOCKS_H

#include "finish.h"
#include "grid.h"
#include "half.h"
#include "micro.h"
#include "parallel.h"
#include "tile_block.h"
#include "workspace.h"

namespace ht {

// Asks for `count` rows of numel elements, ld apart, ahead of their use: the next tile of A while this one is worked
// on. A dozen short streams at once are more than hardware prefetchers follow.
template <class T>
HT_INLINE void prefetch_rows(const T* a, int64_t ld, int count, int64_t numel) {
  for (int r = 0; r < count; r++)
    for (int64_t i = 0; i < numel; i += 64 / static_cast<int64_t>(sizeof(T))) __builtin_prefetch(a + r * ld + i);
}

// Panel p of the range asked for is at base + p * stride; its rows are ldb elements apart.
template <class B>
struct PanelView {
  const B* base;
  int64_t stride;
  int64_t ldb;
};

template <class View>
struct ElementOfView;
template <class B>
struct ElementOfView<const PanelView<B>> {
  using type = B;
};
template <class View>
using ElementOf = typename ElementOfView<const View>::type;

template <class T>
inline void clear(T* p, int64_t numel) {
  for (int64_t i = 0; i < numel; i++) p[i] = T{};
}

// What a worker has beside the sums: rows of A that are staged or spread, panels of 16-bit numbers that were made
// float, and what a source asks for.
struct Scratch {
  void* staged;
  float* widened;
  void* source;
};

namespace detail {

// Lines of a first-level cache that are this far apart share a set, which has room for so many on every CPU met: more
// rows than that, each a multiple of the distance behind the one before, drive each other out before they are used up.
#if defined(HT_NEON)
constexpr uintptr_t kSetDistance = 16384;
constexpr int kSetLines = 4;
#else
constexpr uintptr_t kSetDistance = 4096;
constexpr int kSetLines = 8;
#endif

template <class T>
HT_INLINE bool share_a_set(const T* const* rows, int count) {
  const auto first = reinterpret_cast<uintptr_t>(rows[0]);
  int together = 0;
  for (int r = 0; r < count; r++)
    together += (reinterpret_cast<uintptr_t>(rows[r]) - first) % kSetDistance < 64 ? 1 : 0;
  return together > kSetLines;
}

// Rows of A as the microkernel reads them: float as it lies, or copied where rows share a set, each a line further.
HT_INLINE const float* const* staged_rows(const float** rows, int count, const KBlock& kb, void* staged) {
  if (kb.kc < kSpreadK || !share_a_set(rows, count)) return rows;
  const int64_t step = (kb.kc + 15) / 16 * 16 + 16;
  float* to = static_cast<float*>(staged);
  for (int64_t i = 0; i < kb.taps * count; i++, to += step) {
    copy_row(to, rows[i], kb.kc);
    rows[i] = to;
  }
  return rows;
}
// The same of 16-bit numbers: where pairs are multiplied, a row's neighbours are pairs where they lie.
template <class T>
HT_INLINE const Staged<T>* const* staged_rows(const T** rows, int count, const KBlock& kb, void* staged) {
  if constexpr (reads_pairs_in_place<T>) {
    if (kb.kc < kSpreadK || !share_a_set(rows, count)) return reinterpret_cast<const Staged<T>* const*>(rows);
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
  return same<B, bf16x2> ? (kc + 1) / 2 : kc;
}

}  // namespace detail

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
                        int count, Range columns, const KStep<B>& step, void* staged, float* sums, int64_t ld) {
  using T = typename Source::Element;
  const T* rows[kMaxTaps * kMaxRows];
  source.rows(cursor, count, rows);
  const TapsOf<Staged<T>> taps = {detail::staged_rows(rows, count, step.kb, staged),
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
                           const KStep<B>& step, float* tile, const Scratch& scratch) {
  const int64_t ld = (u.p.end - u.p.begin) * kPanel;
  typename Source::Cursor cursor = source.start(u.batch, u.m.begin, step.kb, scratch.source);
  for (int64_t j = 0, row = u.m.begin; j < u.blocks.count(); j++) {
    const int count = u.blocks.height(j);
    // With a single k block nothing travels, and the tile stays in the first-level cache.
    float* sums = blocks == 1 ? tile : tile + (row - u.m.begin) * ld;
    run_tile(source, cursor, epi, {u.batch, row, 0}, count, columns, step, scratch.staged, sums, ld);
    row += count;
  }
}

#if defined(HT_TILES)
namespace detail {

// A row of a tile from the n elements that are left of a row of A.
HT_INLINE void stage_grain(bf16x2* to, const bf16* from, int64_t n) {
  for (int i = 0; i < kTilePairs; i += W) {
    const vec<uint32_t> pairs = n > 2 * i ? load_pairs_n(from + 2 * i, n - 2 * i) : vec<uint32_t>{};
    __builtin_memcpy(to + i, &pairs, sizeof(pairs));
  }
}

// Whether a tile can read rows where they lie: each as far behind the one before, and not all in one set of the cache.
HT_INLINE bool lie_as_tiles(const bf16* const* rows, int count) {
  if (count < 2) return true;
  const int64_t step = rows[1] - rows[0];
  int64_t differ = 0;
  for (int r = 2; r < count; r++) differ |= (rows[r] - rows[r - 1]) ^ step;
  return differ == 0 && (step == 0 || step % (static_cast<int64_t>(kSetDistance) / 2) != 0);
}

// Rows of a tile: where they lie, or else copied to `to`, grain by grain, zero where k is past the last one. Those that stay
// are taken as they are if k is whole grains, since what is behind the last k may be no number. A tile's rows that there are
// not are left as they are in the copy.
HT_INLINE TileRows rows_of_tile(bf16x2* to, const bf16* const* rows, int count, int64_t kc, bool stay) {
  constexpr int64_t row = kTilePairs * 4, grain = kBlockRows * row;
  if (stay && kc % kGrain == 0 && lie_as_tiles(rows, count)) {
    const int64_t step = count < 2 ? 0 : rows[1] - rows[0];
    return {reinterpret_cast<const char*>(rows[0]), step * 2, row};
  }
  const TileRows staged = {reinterpret_cast<const char*>(to), row, grain};
  for (int64_t k = 0; k < kc; k += kGrain, to += kBlockRows * kTilePairs)
    for (int r = 0; r < count; r++) stage_grain(to + r * kTilePairs, rows[r] + k, kc - k);
  return staged;
}

}  // namespace detail

// A unit's rows of A for a k block, as tiles read them, to out[block * taps + tap]: of its window, which is copied with the
// first one. ahead: what is read then.
template <class Source>
HT_INLINE void window_tiles(const Source& source, const Unit& u, const KBlock& kb, bool first, const Scratch& scratch,
                            TapRows* out) {
  const auto copy = static_cast<bf16x2*>(scratch.staged);
  const int64_t rows = u.m.end - u.m.begin;
  if (first) source.copy_window(u.batch, u.m, copy);
  for (int64_t j = 0, row = 0; j < u.blocks.count(); row += u.blocks.height(j++))
    for (int64_t t = 0; t < kb.taps; t++) *out++ = source.tile_rows(copy, rows, row, kb.tap + t, kb.c);
}

// The same where each tap's rows are read, or copied, by themselves.
template <class Source>
HT_INLINE void stage_tiles(const Source& source, const Unit& u, const KBlock& kb, const Scratch& scratch, Ahead ahead,
                           TapRows* out) {
  typename Source::Cursor cursor = source.start(u.batch, u.m.begin, kb, scratch.source);
  auto to = static_cast<bf16x2*>(scratch.staged);
  const int64_t tap = ceil_div(kb.kc, kGrain) * kBlockRows * kTilePairs;
  const bool stay = source.rows_stay();
  for (int64_t j = 0; j < u.blocks.count(); j++) {
    const bf16* rows[kMaxTaps * kBlockRows];
    const int count = u.blocks.height(j), upper = static_cast<int>(least(count, kTileRows));
    source.rows(cursor, count, rows);
    for (int64_t t = 0; t < kb.taps; t++, out++, to += tap) {
      const bf16* const* const of_tap = rows + t * count;
      ahead.ask();
      out->upper = detail::rows_of_tile(to, of_tap, upper, kb.kc, stay);
      if (count > upper)
        out->lower = detail::rows_of_tile(to + kTileRows * kTilePairs, of_tap + upper, count - upper, kb.kc, stay);
      else
        out->lower = out->upper;
    }
  }
}

// A block's finished sums on their way to the epilogue: `done` of its rows have been there.
struct Finished {
  int64_t row;
  int count, done;
  Range columns;
  const float* sums;
};

// Sums of `count` rows whose places in the result follow each other from `out` on.
template <class Source, class Epi>
HT_INLINE void finish_run(const Source& source, const Epi& epi, int64_t batch, int64_t out, int count, Range columns,
                          const float* sums, int64_t ld) {
  const int64_t out_batch = source.epilogue_batch(batch), n = source.epilogue_column(batch) + columns.begin;
  const int64_t width = columns.end - columns.begin;
  if (width == kPanel) finish_panel(epi, out_batch, out, n, count, sums, ld);
  else finish_part(epi, out_batch, out, n, count, static_cast<int>(width), sums, ld);
}
// The same of rows from m on whose places do not, or that have none.
template <class Source, class Epi>
__attribute__((noinline)) void finish_runs(const Source& source, const Epi& epi, int64_t batch, int64_t m, int count,
                                           Range columns, const float* sums, int64_t ld) {
  for (int done = 0; done < count;) {
    const RowRun run = source.run_from(m + done, count - done);
    if (run.out >= 0) finish_run(source, epi, batch, run.out, run.count, columns, sums + done * ld, ld);
    done += run.count;
  }
}

// The next `some` rows of them.
template <class Source, class Epi>
HT_INLINE void finish_some(const Source& source, const Epi& epi, int64_t batch, Finished& f, int some, int64_t ld) {
  const int begin = f.done, end = static_cast<int>(least(f.count, begin + some));
  if (begin >= end) return;
  f.done = end;
  const int64_t m = f.row + begin;
  const float* sums = f.sums + begin * ld;
  if (source.rows_follow())
    finish_run(source, epi, batch, source.epilogue_row(m), end - begin, f.columns, sums, ld);
  else
    finish_runs(source, epi, batch, m, end - begin, f.columns, sums, ld);
}

// What is left of a panel behind whole grains, of so many taps at most, as tiles read it: copied once for all rows.
struct PanelRests {
  static constexpr int64_t kTaps = 9;
  alignas(64) char grains[kTaps * kGrainNbytes];

  HT_MEMBER void copy(const bf16x2* panel, const TileTaps& s) {
    for (int64_t t = 0; t < s.taps; t++) {
      const bf16x2* from = panel + s.b_offset[t] + s.pairs / kTilePairs * kTilePairs * kPanel;
      detail::copy_rest(grains + t * kGrainNbytes, reinterpret_cast<const char*>(from), s.pairs % kTilePairs);
    }
  }
};

// As run_k_block. All rows pass by a panel before the next one, whose lines are asked for meanwhile; and the epilogue
// has a block's sums while the next block is multiplied, some rows behind each grain: tiles are multiplied beside it, and
// the stores of sums are done by then.
template <class Source, class Epi>
HT_INLINE void run_k_block_by_tiles(const Source& source, const Epi& epi, const Unit& u, Range columns, KAxis k,
                                    int64_t i, const KBlock& kb, const int64_t* offsets, const PanelView<bf16x2>& view,
                                    float* tile, const Scratch& scratch) {
  const int64_t unit_ld = (u.p.end - u.p.begin) * kPanel, blocks = k.blocks(), pairs = packed_rows<bf16>(kb.kc);
  const int64_t ld = blocks == 1 ? kPanel : unit_ld;
  PanelRests rests;
  const bool copies = pairs % kTilePairs != 0 && kb.taps <= PanelRests::kTaps && u.blocks.count() > 1;
  const TileTaps taps = {offsets, kb.taps, pairs, copies ? rests.grains : nullptr};
  const auto panel_ahead = [&](const bf16x2* b, int64_t turns) {
    return Ahead(b + (kb.taps > 0 ? offsets[0] : 0), kb.taps * pairs * kPanel * 4, u.blocks.count() * turns);
  };
  TapRows rows[kMaxTaps * (kChunkRows / kBlockRows)];  // of each block's taps
  bool windowed = false;
  if constexpr (Source::kOneInput) windowed = source.reads_window();
  if constexpr (Source::kOneInput) {
    if (windowed) window_tiles(source, u, kb, i == 0, scratch, rows);
  }
  if (!windowed) stage_tiles(source, u, kb, scratch, panel_ahead(view.base, kb.taps), rows);
  Tiles tiles;
  Finished before = {};
  int configured = 0;
  int64_t turn = 0;
  const bf16x2* b = view.base;
  for (int64_t n = columns.begin; n < columns.end; n += kPanel, b += view.stride) {
    const Range panel = {n, least(columns.end, n + kPanel)};
    Ahead ahead = panel.end < columns.end ? panel_ahead(b + view.stride, taps.grains()) : Ahead();
    if (copies) rests.copy(b, taps);
    const TapRows* a = rows;
    for (int64_t j = 0, row = u.m.begin; j < u.blocks.count(); j++, turn++, a += kb.taps) {
      const int count = u.blocks.height(j), width = static_cast<int>(panel.end - n);
      if (count != configured) tiles.configure(configured = count);
      // With a single k block nothing travels: the sums of two blocks, in turn, stay in the first-level cache.
      float* const place = tile + (row - u.m.begin) * ld + n - columns.begin;
      float* const sums = blocks == 1 ? tile + turn % 2 * u.blocks.height(0) * kPanel : place;
      if (before.done < before.count && count > kTileRows && width > kTileRows) {
        const int some = static_cast<int>(ceil_div(before.count, most(1, taps.grains())));
        const auto between = [&] { finish_some(source, epi, u.batch, before, some, ld); };
        detail::run_tile_block<true, true>(tiles, a, taps, b, sums, ld, i > 0, ahead, between);
      } else {
        tile_block(tiles, count, a, taps, b, sums, ld, width, i > 0, ahead);
      }
      finish_some(source, epi, u.batch, before, before.count, ld);
      if (i + 1 == blocks) before = {row, count, 0, panel, sums};
      row += count;
    }
  }
  finish_some(source, epi, u.batch, before, before.count, ld);
  tiles.release();  // a thread without tiles is cheaper to switch
}
#endif

// `tile` holds the unit's sums.
template <class Source, class Epi>
void run_unit(const Source& shared_source, const Epi& shared_epi, const Unit& u, int64_t n, KAxis k, float* tile,
              const Scratch& scratch) {
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
    if constexpr (same<decltype(view), const PanelView<bf16x2>>) {
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
  if constexpr (!same<T, float>) k.grain = kGrain;
  k.depth = Cut::depth;
  const int64_t numel = k.taps * k.kc;
  const Grid grid = make_grid<Cut>(batches, m, n, numel, args->parallel->nworkers, block_rows<T>(m, numel));
  for_units(args, grid, Source::kOneInput, [&](const Unit& unit, int32_t worker) {
    float* tile = reinterpret_cast<float*>(worker_workspace(args, worker));
    run_unit(source, epi, unit, n, k, tile, scratch_of<T, Cut>(tile, m, n));
  });
  return HT_KERNEL_OK;
}

}  // namespace ht

#endif  // HARDTACK_TEMPLATES_BLOCKS_H
