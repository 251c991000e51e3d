// Convolutions by 3 x 3 filters in steps of 1, with fused epilogues, by Winograd's minimal filtering F(2x2, 3x3)
// (Lavin and Gray, "Fast Algorithms for Convolutional Neural Networks", 2015, arXiv:1509.09308): a tile of 2 x 2 results
// takes 16 multiplications a channel in place of 36.
//
// A tile's 4 x 4 inputs and the filters are transformed, B^T d B and G g G^T: each of the 16 positions of the two is a
// product of matrices, tiles times channels times output channels. The 2 x 2 results are A^T m A of the products m:
//
//         1  0 -1  0         1    0    0
//   B^T = 0  1  1  0     G = 1/2  1/2  1/2     A^T = 1  1  1  0
//         0 -1  1  0         1/2 -1/2  1/2           0  1 -1 -1
//         0  1  0 -1         0    0    1
//
// A result depends on the inputs of its own window only, as it does when it is computed directly: B and A leave nothing of
// the others. Inside the window an infinity, or a sum beyond float's range, may have become a NaN: a result that is not
// finite is computed once more, directly, and has the bits that conv.h would give it.
//
// The input's channels lie side by side. Weights are packed as conv.h has them, [ceil(oc / 32)][3][3][c][32], and are
// transformed in every call: that is a small part of the work, and a file with transformed weights would be larger, and
// slower where weights come from memory. What the epilogue sees: conv.h.
#ifndef HARDTACK_TEMPLATES_WINOGRAD_H
#define HARDTACK_TEMPLATES_WINOGRAD_H

#include "conv.h"

namespace ht {

constexpr int64_t kFilterTaps = 9;

// Where a tile lies. Divisions are slow: walks over tiles divide once.
struct TilePlace {
  int64_t image, row, column;
};

// A convolution and its tiles, which are numbered as output pixels are: image, row, column.
struct Winograd {
  ConvShape s;
  const float* x;
  const float* panels;
  int64_t tiles_h, tiles_w, tiles;

  HT_MEMBER TilePlace place(int64_t tile) const {
    return {tile / tiles_w / tiles_h, tile / tiles_w % tiles_h, tile % tiles_w};
  }
  HT_MEMBER void advance(TilePlace& p) const {
    if (++p.column < tiles_w) return;
    p.column = 0;
    if (++p.row < tiles_h) return;
    p.row = 0;
    p.image++;
  }
  HT_MEMBER const float* panel(int64_t i) const { return panels + i * kFilterTaps * s.c * kPanel; }
  HT_MEMBER Range columns(int64_t i) const { return {i * kPanel, least((i + 1) * kPanel, s.oc)}; }
};

// A matrix for each position: rows of `ld` elements side by side, matrices `stride` elements apart.
struct Positions {
  float* data;
  int64_t ld, stride;

  HT_MEMBER Positions from(int64_t position, int64_t row) const {
    return {data + position * stride + row * ld, ld, stride};
  }
};

HT_INLINE Positions positions_of(float* data, int64_t rows, int64_t ld) {
  return {data, ld, position_stride(rows, ld)};
}

// Where a worker's parts lie: tiles or filters that it has transformed, their products, and room for one tile.
struct WinogradScratch {
  float* transformed;
  float* sums;
  float* tile;
};

HT_INLINE WinogradScratch winograd_scratch(const HtKernelArgs* args, int32_t worker, const Winograd& w) {
  float* transformed = reinterpret_cast<float*>(worker_workspace(args, worker));
  float* sums = transformed + winograd_operand_numel(w.tiles, w.s.c);
  return {transformed, sums, sums + winograd_sums_numel(w.tiles)};
}

// What the transform of a tile or a filter is worth, for each channel, in multiplications of the microkernel.
constexpr int64_t kTileWork = 128, kFilterWork = 180;

// The functions of winograd.cpp, compiled once for a library:

// Positions 4 * row .. 4 * row + 3 of a panel of filters, as [4][c][32].
void winograd_filter(float* to, const float* panel, int64_t c, int row);
// Tiles [t.begin, t.end), one a row. `patch` has room for a tile.
void winograd_input(const Winograd& w, Range t, const Positions& to, float* patch);
// sums = tiles times filters [count][c][32] for `count` positions of `height` tiles; `columns` columns of the panel exist.
void winograd_products(const Positions& tiles, const float* filters, int64_t count, int64_t height, int64_t c,
                       int columns, const Positions& sums);
// results[tile][2][2][32] of the products of `count` tiles from `first` on with a panel of filters.
void winograd_output(const Winograd& w, int64_t first, int64_t count, int64_t panel, const Positions& sums,
                     float* results);

namespace detail {

// Hands the results of `count` tiles to the epilogue and goes behind them; of the last tiles a part may lie outside of
// the output.
template <class Epi>
HT_INLINE void finish_tiles(const Winograd& w, const Epi& epi, TilePlace& place, int64_t count, Range n,
                            const float* results) {
  for (int64_t i = 0; i < count; i++, w.advance(place)) {
    for (int64_t k = 0; k < 4; k++, results += kPanel) {
      const int64_t y = place.row * 2 + k / 2, z = place.column * 2 + k % 2;
      if (y >= w.s.oh || z >= w.s.ow) continue;
      const int64_t m = (place.image * w.s.oh + y) * w.s.ow + z;
      const auto row = epi.row(0, m);
      const float* sums = results;
      int64_t j = n.begin;
      for (; j + W <= n.end; j += W, sums += W) epi(row, m, j, W, load(sums));
      if (j < n.end) epi(row, m, j, static_cast<int>(n.end - j), load(sums));
    }
  }
}

// The results of tiles [t.begin, t.end) and a panel of filters.
template <class Epi>
HT_INLINE void finish_panel(const Winograd& w, const Epi& epi, Range t, int64_t panel, const Positions& sums,
                            float* results) {
  TilePlace place = w.place(t.begin);
  for (int64_t i = t.begin; i < t.end; i += kFinishTiles) {
    const int64_t count = least(kFinishTiles, t.end - i);
    winograd_output(w, i, count, panel, sums.from(0, i - t.begin), results);
    finish_tiles(w, epi, place, count, w.columns(panel), results);
  }
}

// How many workers a first step of so much work is for: waiting for others takes longer than a few transforms.
HT_INLINE int64_t first_workers(int64_t work, int64_t workers) { return work < 2 * kSerialWork ? 1 : workers; }

// Runs body(unit, worker) for every unit; all on the calling thread where waking others does not pay.
template <class Body>
HT_INLINE void for_units(const HtKernelArgs* args, int64_t units, int64_t workers, const Body& body) {
  parallel_for(args, workers == 1 ? 1 : units, [&](int64_t task, int32_t worker) {
    for (int64_t i = task; i < (workers == 1 ? units : task + 1); i++) body(i, worker);
  });
}

// How a convolution of few tiles is cut: into so many parts of tiles times so many of panels. Each transforms its tiles
// and its filters by itself, since what one core has just written another one gets slowly.
struct WinogradCut {
  int64_t tiles, panels;
};

// Of the cuts with a unit or two for each worker, the one that ends soonest.
inline WinogradCut winograd_cut(const Winograd& w, int64_t workers) {
  const int64_t panels = panels_of(w.s.oc), fewest = ceil_div(w.tiles, winograd_few_tiles(w.tiles, w.s.c));
  WinogradCut best = {fewest, 1};
  int64_t least_time = 0;
  for (int64_t i = 1; i <= least(panels, 2 * workers); i++) {
    for (int64_t turns = 1; turns <= 2; turns++) {
      const int64_t parts = most(fewest, least(ceil_div(w.tiles, kMostRows), turns * workers / i));
      const int64_t tiles = ceil_div(w.tiles, parts), filters = ceil_div(panels, i) * kPanel;
      const int64_t work = tiles * filters * kPositions + tiles * kTileWork + filters * kFilterWork;
      const int64_t time = ceil_div(parts * i, workers) * work;
      if (least_time != 0 && time >= least_time) continue;
      least_time = time;
      best = {parts, i};
    }
  }
  return best;
}

// Few tiles, many filters: a worker's tiles are transformed first, then for each panel a row of positions of its filters,
// which stays in the worker's cache.
template <class Epi>
void few_tiles(const HtKernelArgs* args, const Winograd& w, int64_t workers, const Epi& shared_epi) {
  const int64_t c = w.s.c;
  const WinogradCut cut = winograd_cut(w, workers);
  for_units(args, cut.tiles * cut.panels, workers, [&](int64_t unit, int32_t worker) {
    const Epi epi = shared_epi;
    const WinogradScratch scratch = winograd_scratch(args, worker, w);
    const Range t = part_of(w.tiles, unit / cut.panels, cut.tiles);
    const Range panels = part_of(panels_of(w.s.oc), unit % cut.panels, cut.panels);
    const int64_t height = t.end - t.begin;
    const Positions tiles = positions_of(scratch.transformed, height, c);
    float* filters = scratch.transformed + kPositions * tiles.stride;
    const Positions sums = positions_of(scratch.sums, height, kPanel);
    winograd_input(w, t, tiles, scratch.tile);
    for (int64_t panel = panels.begin; panel < panels.end; panel++) {
      const Range n = w.columns(panel);
      for (int row = 0; row < 4; row++) {
        winograd_filter(filters, w.panel(panel), c, row);
        winograd_products(tiles.from(4 * row, 0), filters, 4, height, c, static_cast<int>(n.end - n.begin),
                          sums.from(4 * row, 0));
      }
      finish_panel(w, epi, t, panel, sums, scratch.tile);
    }
  });
}

// Many tiles: all filters are transformed first, then each worker its tiles, which stay in its cache.
template <class Epi>
void many_tiles(const HtKernelArgs* args, const Winograd& w, int64_t workers, const Epi& shared_epi) {
  const int64_t c = w.s.c, panels = panels_of(w.s.oc), numel = kPositions * c * kPanel;
  float* filters = static_cast<float*>(args->shared_workspace);
  for_units(args, panels * 4, first_workers(c * w.s.oc * kFilterWork, workers), [&](int64_t unit, int32_t) {
    const int row = static_cast<int>(unit % 4);
    winograd_filter(filters + unit * (numel / 4), w.panel(unit / 4), c, row);
  });
  const int64_t fewest = ceil_div(w.tiles, winograd_tiles(w.tiles, c));
  const int64_t blocks = workers == 1 ? fewest : most(fewest, least(4 * workers, ceil_div(w.tiles, 2 * kMostRows)));
  for_units(args, blocks, workers, [&](int64_t unit, int32_t worker) {
    const Epi epi = shared_epi;
    const WinogradScratch scratch = winograd_scratch(args, worker, w);
    const Range t = part_of(w.tiles, unit, blocks);
    const int64_t height = t.end - t.begin;
    const Positions tiles = positions_of(scratch.transformed, height, c);
    const Positions sums = positions_of(scratch.sums, height, kPanel);
    winograd_input(w, t, tiles, scratch.tile);
    for (int64_t i = 0; i < panels; i++) {
      const Range n = w.columns(i);
      winograd_products(tiles, filters + i * numel, kPositions, height, c, static_cast<int>(n.end - n.begin), sums);
      finish_panel(w, epi, t, i, sums, scratch.tile);
    }
  });
}

}  // namespace detail

// acc[m, channel] = sum over kh, kw, c of input times weight, to the epilogue. Of s, the filter is 3 x 3, strides,
// dilations and groups are 1, and x_stride_c is.
// Shared workspace: winograd_shared_numel(tiles, c, oc) floats. Workspace of a worker: winograd_numel(tiles, c) floats,
// where tiles = n * ceil(oh / 2) * ceil(ow / 2).
template <class Epi>
int32_t winograd2d(const HtKernelArgs* args, const ConvShape& s, const float* x, const float* panels, const Epi& epi) {
  if (s.n == 0 || s.oh == 0 || s.ow == 0 || s.oc == 0) return HT_KERNEL_OK;
  Winograd w = {s, x, panels, ceil_div(s.oh, 2), ceil_div(s.ow, 2), 0};
  w.tiles = s.n * w.tiles_h * w.tiles_w;
  const bool wakes = w.tiles * kPositions * s.c * s.oc >= kSerialWork;
  const int64_t workers = wakes ? args->parallel->nworkers : 1;
  if (w.tiles <= kFewTiles)
    detail::few_tiles(args, w, workers, epi);
  else
    detail::many_tiles(args, w, workers, epi);
  return HT_KERNEL_OK;
}

}  // namespace ht

#endif  // HARDTACK_TEMPLATES_WINOGRAD_H
