// A unit of a product by tiles: all its rows pass by a panel before the next one, and the epilogue has a block's sums while the
// next block is multiplied.
#ifndef HARDTACK_TEMPLATES_TILE_WALK_H
#define HARDTACK_TEMPLATES_TILE_WALK_H

#include "finish.h"
#include "grid.h"
#include "operands.h"
#include "tile_block.h"

#if defined(HT_TILES)

namespace ht {
namespace detail {

// A row of a tile from the n elements that are left of a row of A.
HT_INLINE void stage_grain(bf16x2* to, const bf16* from, int64_t n) {
  for (int i = 0; i < kTilePairs; i += W) {
    const vec<uint32_t> pairs = n > 2 * i ? load_pairs_n(from + 2 * i, n - 2 * i) : vec<uint32_t>{};
    __builtin_memcpy(to + i, &pairs, sizeof(pairs));
  }
}

// Whether a tile can read rows where they lie: each as far behind the one before, and not all in one set of the cache.
template <class T>
HT_INLINE bool lie_as_tiles(const T* const* rows, int count) {
  if (count < 2) return true;
  const int64_t step = rows[1] - rows[0];
  int64_t differ = 0;
  for (int r = 2; r < count; r++) differ |= (rows[r] - rows[r - 1]) ^ step;
  return differ == 0 && (step == 0 || step % (static_cast<int64_t>(kSetDistance) / static_cast<int64_t>(sizeof(T))) != 0);
}

// Rows of a tile: where they lie, or else copied to `to`, grain by grain, zero where k is past the last one. Those that stay
// are taken as they are if k is whole grains, since what is behind the last k may be no number. A tile's rows that there are
// not are left as they are in the copy.
template <class T>
HT_INLINE TileRows rows_of_tile(Packed<T>* to, const T* const* rows, int count, int64_t kc, bool stay) {
  constexpr int64_t row = kTilePairs * 4, grain = kBlockRows * row;
  if (stay && kc % kGrainOf<T> == 0 && lie_as_tiles(rows, count)) {
    const int64_t step = count < 2 ? 0 : rows[1] - rows[0];
    return {reinterpret_cast<const char*>(rows[0]), step * static_cast<int64_t>(sizeof(T)), row};
  }
  const TileRows staged = {reinterpret_cast<const char*>(to), row, grain};
  for (int64_t k = 0; k < kc; k += kGrainOf<T>, to += kBlockRows * kTilePairs)
    for (int r = 0; r < count; r++) stage_grain(to + r * kTilePairs, rows[r] + k, kc - k);
  return staged;
}

}  // namespace detail

// A unit's rows of A for a k block, as tiles read them, to out[block * taps + tap]: of its window, which is copied for the
// first one. False where the source has none.
template <class Source>
HT_INLINE bool window_tiles(const Source& source, const Unit& u, const KBlock& kb, bool first, const Scratch& scratch,
                            TapRows* out) {
  if constexpr (Source::kOneInput && same<typename Source::Element, bf16>) {
    if (!source.window.used()) return false;
    const auto copy = static_cast<bf16x2*>(scratch.staged);
    const int64_t rows = u.m.end - u.m.begin;
    if (first) source.copy_window(u.batch, u.m, copy);
    for (int64_t j = 0, row = 0; j < u.blocks.count(); row += u.blocks.height(j++))
      for (int64_t t = 0; t < kb.taps; t++) *out++ = source.tile_rows(copy, rows, row, kb.tap + t, kb.c);
    return true;
  }
  return false;
}

// The next n rows of A, a tile's at most, under each tap of a k block, to the half of out[tap] that `half` gives: where they
// lie, if the source knows that at once or they turn out to, or else copied to `to`, `tap` pairs further for each tap.
template <class Source, class Half>
HT_INLINE void stage_half(const Source& source, typename Source::Cursor& cursor, int n, const KBlock& kb,
                          Packed<typename Source::Element>* to, int64_t tap, Ahead& ahead, const Half& half) {
  if constexpr (Source::kOneInput) {
    using T = typename Source::Element;
    if (kb.kc % kGrainOf<T> == 0) {
      if (const auto even = source.next_even_rows(cursor, n); even.first) {
        for (int64_t t = 0; t < kb.taps; t++) {
          ahead.ask();
          half(t) = {reinterpret_cast<const char*>(even.first + cursor.shift[t]),
                     even.step * static_cast<int64_t>(sizeof(T)), kTilePairs * 4};
        }
        return;
      }
    }
  }
  const typename Source::Element* rows[kMaxTaps * kTileRows];
  source.rows(cursor, n, rows);
  for (int64_t t = 0; t < kb.taps; t++) {
    ahead.ask();
    half(t) = detail::rows_of_tile(to + t * tap, rows + t * n, n, kb.kc, source.rows_stay());
  }
}

// The same where each tap's rows are read, or copied, by themselves. ahead: what is read then.
template <class Source>
HT_INLINE void stage_tiles(const Source& source, const Unit& u, const KBlock& kb, const Scratch& scratch, Ahead ahead,
                           TapRows* out) {
  using T = typename Source::Element;
  typename Source::Cursor cursor = source.start(u.batch, u.m.begin, kb, scratch.source);
  auto to = static_cast<Packed<T>*>(scratch.staged);
  const int64_t tap = ceil_div(kb.kc, kGrainOf<T>) * kBlockRows * kTilePairs;
  for (int64_t j = 0; j < u.blocks.count(); j++, out += kb.taps, to += kb.taps * tap) {
    const int count = u.blocks.height(j), upper = static_cast<int>(least(count, kTileRows));
    const auto upper_of = [&](int64_t t) -> TileRows& { return out[t].upper; };
    const auto lower_of = [&](int64_t t) -> TileRows& { return out[t].lower; };
    stage_half(source, cursor, upper, kb, to, tap, ahead, upper_of);
    if (count > upper)
      stage_half(source, cursor, count - upper, kb, to + kTileRows * kTilePairs, tap, ahead, lower_of);
    else
      for (int64_t t = 0; t < kb.taps; t++) out[t].lower = out[t].upper;
  }
}

// A block's finished sums on their way to the epilogue: `done` of its rows have been there.
template <class S>
struct Finished {
  int64_t row;
  int count, done;
  Range columns;
  const S* sums;
};

// Sums of `count` rows whose places in the result follow each other from `out` on.
template <class Source, class Epi, class S>
HT_INLINE void finish_run(const Source& source, const Epi& epi, int64_t batch, int64_t out, int count, Range columns,
                          const S* sums, int64_t ld) {
  const int64_t out_batch = source.epilogue_batch(batch), n = source.epilogue_column(batch) + columns.begin;
  const int64_t width = columns.end - columns.begin;
  if (width == kPanel) finish_panel(epi, out_batch, out, n, count, sums, ld);
  else finish_part(epi, out_batch, out, n, count, static_cast<int>(width), sums, ld);
}
// The same of rows from m on whose places do not, or that have none.
template <class Source, class Epi, class S>
__attribute__((noinline)) void finish_runs(const Source& source, const Epi& epi, int64_t batch, int64_t m, int count,
                                           Range columns, const S* sums, int64_t ld) {
  for (int done = 0; done < count;) {
    const RowRun run = source.run_from(m + done, count - done);
    if (run.out >= 0) finish_run(source, epi, batch, run.out, run.count, columns, sums + done * ld, ld);
    done += run.count;
  }
}

// The next `some` rows of them.
template <class Source, class Epi, class S>
HT_INLINE void finish_some(const Source& source, const Epi& epi, int64_t batch, Finished<S>& f, int some, int64_t ld) {
  const int begin = f.done, end = static_cast<int>(least(f.count, begin + some));
  if (begin >= end) return;
  f.done = end;
  const int64_t m = f.row + begin;
  const S* sums = f.sums + begin * ld;
  if (source.rows_follow())
    finish_run(source, epi, batch, source.epilogue_row(m), end - begin, f.columns, sums, ld);
  else
    finish_runs(source, epi, batch, m, end - begin, f.columns, sums, ld);
}

// What is left of a panel behind whole grains, of so many taps at most, as tiles read it: copied once for all rows.
struct PanelRests {
  static constexpr int64_t kTaps = 9;
  alignas(64) char grains[kTaps * kGrainNbytes];

  template <class B>
  HT_MEMBER void copy(const B* panel, const TileTaps& s) {
    for (int64_t t = 0; t < s.taps; t++) {
      const B* from = panel + s.b_offset[t] + s.pairs / kTilePairs * kTilePairs * kPanel;
      detail::copy_rest(grains + t * kGrainNbytes, reinterpret_cast<const char*>(from), s.pairs % kTilePairs);
    }
  }
};

// As run_k_block. All rows pass by a panel before the next one, whose lines are asked for meanwhile; and the epilogue
// has a block's sums while the next block is multiplied, some rows behind each grain: tiles are multiplied beside it, and
// the stores of sums are done by then.
template <class Source, class Epi, class B, class S>
HT_INLINE void run_k_block_by_tiles(const Source& source, const Epi& epi, const Unit& u, Range columns, KAxis k,
                                    int64_t i, const KBlock& kb, const int64_t* offsets, const PanelView<B>& view,
                                    S* tile, const Scratch& scratch) {
  const int64_t unit_ld = (u.p.end - u.p.begin) * kPanel, blocks = k.blocks();
  const int64_t pairs = packed_rows<typename Source::Element>(kb.kc);
  const int64_t ld = blocks == 1 ? kPanel : unit_ld;
  PanelRests rests;
  const bool copies = pairs % kTilePairs != 0 && kb.taps <= PanelRests::kTaps && u.blocks.count() > 1;
  const TileTaps taps = {offsets, kb.taps, pairs, copies ? rests.grains : nullptr};
  const auto panel_ahead = [&](const B* b, int64_t turns) {
    return Ahead(b + (kb.taps > 0 ? offsets[0] : 0), kb.taps * pairs * kPanel * 4, u.blocks.count() * turns);
  };
  TapRows rows[kMaxTaps * (kChunkRows / kBlockRows)];  // of each block's taps
  if (!window_tiles(source, u, kb, i == 0, scratch, rows))
    stage_tiles(source, u, kb, scratch, panel_ahead(view.base, 2 * kb.taps), rows);
  Tiles tiles;
  Finished<S> before = {};
  int configured = 0;
  int64_t turn = 0;
  const B* b = view.base;
  for (int64_t n = columns.begin; n < columns.end; n += kPanel, b += view.stride) {
    const Range panel = {n, least(columns.end, n + kPanel)};
    Ahead ahead = panel.end < columns.end ? panel_ahead(b + view.stride, taps.grains()) : Ahead();
    if (copies) rests.copy(b, taps);
    const TapRows* a = rows;
    for (int64_t j = 0, row = u.m.begin; j < u.blocks.count(); j++, turn++, a += kb.taps) {
      const int count = u.blocks.height(j), width = static_cast<int>(panel.end - n);
      if (count != configured) tiles.configure(configured = count);
      // With a single k block nothing travels: the sums of two blocks, in turn, stay in the first-level cache.
      S* const place = tile + (row - u.m.begin) * ld + n - columns.begin;
      S* const sums = blocks == 1 ? tile + turn % 2 * u.blocks.height(0) * kPanel : place;
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

}  // namespace ht

#endif

#endif  // HARDTACK_TEMPLATES_TILE_WALK_H
