// The transforms and products of winograd.h, once for a whole kernel library.
#include "winograd.h"

namespace ht {
namespace {

struct Four {
  vec<float> at[4];
};

// B^T times a column.
HT_INLINE Four input_column(vec<float> a, vec<float> b, vec<float> c, vec<float> d) {
  return {{a - c, b + c, c - b, b - d}};
}

// B^T d B for the next n channels.
HT_INLINE void transform_channels(const float* from, int64_t ld_h, int64_t ld_w, int n, float* to, int64_t stride) {
  Four d[4];
  HT_UNROLL_ALL
  for (int j = 0; j < 4; j++) {
    const float* at = from + j * ld_w;
    d[j] = input_column(load_n(at, n), load_n(at + ld_h, n), load_n(at + 2 * ld_h, n), load_n(at + 3 * ld_h, n));
  }
  HT_UNROLL_ALL
  for (int i = 0; i < 4; i++) {
    const Four row = input_column(d[0].at[i], d[1].at[i], d[2].at[i], d[3].at[i]);
    HT_UNROLL_ALL
    for (int j = 0; j < 4; j++) store_n(to + (4 * i + j) * stride, row.at[j], n);
  }
}

// Not inlined: tiles inside the image and at its edge share it.
__attribute__((noinline)) void transform_tile(const float* from, int64_t ld_h, int64_t ld_w, int64_t c, float* to,
                                              int64_t stride) {
  int64_t i = 0;
  for (; i + W <= c; i += W) transform_channels(from + i, ld_h, ld_w, W, to + i, stride);
  if (i < c) transform_channels(from + i, ld_h, ld_w, static_cast<int>(c - i), to + i, stride);
}

// patch[4][4][c]: the inputs of a tile that begins at (y, z), zeros outside of the image.
void copy_patch(const ConvShape& s, const float* from, int64_t y, int64_t z, float* patch) {
  for (int64_t i = 0; i < 4; i++) {
    for (int64_t j = 0; j < 4; j++, patch += s.c) {
      const bool exists = y + i >= 0 && y + i < s.h && z + j >= 0 && z + j < s.w;
      if (exists)
        copy_row(patch, from + i * s.x_stride_h + j * s.x_stride_w, s.c);
      else
        clear(patch, s.c);
    }
  }
}

// Row `row` of G times a column.
template <int row>
HT_INLINE vec<float> filter_element(vec<float> a, vec<float> b, vec<float> c) {
  if constexpr (row == 0) return a;
  if constexpr (row == 1) return (a + c) * 0.5f + b * 0.5f;
  if constexpr (row == 2) return (a + c) * 0.5f - b * 0.5f;
  if constexpr (row == 3) return c;
}

template <int row>
void transform_panel(float* to, const float* panel, int64_t c) {
  const int64_t tap = c * kPanel;
  for (int64_t i = 0; i < tap; i += W) {
    vec<float> g[3];
    HT_UNROLL_ALL
    for (int j = 0; j < 3; j++) {
      const float* at = panel + j * tap + i;
      g[j] = filter_element<row>(load(at), load(at + 3 * tap), load(at + 6 * tap));
    }
    store(to + i, filter_element<0>(g[0], g[1], g[2]));
    store(to + tap + i, filter_element<1>(g[0], g[1], g[2]));
    store(to + 2 * tap + i, filter_element<2>(g[0], g[1], g[2]));
    store(to + 3 * tap + i, filter_element<3>(g[0], g[1], g[2]));
  }
}

// results[2][2] of a tile for W columns of a panel, directly: in the order of conv.h, tap by tap, channel by channel.
__attribute__((noinline)) void direct_tile(const Winograd& w, int64_t tile, const float* panel, vec<float>* results) {
  const ConvShape& s = w.s;
  const TilePlace place = w.place(tile);
  for (int64_t k = 0; k < 4; k++) {
    const int64_t y = place.row * 2 + k / 2 - s.pad_top, z = place.column * 2 + k % 2 - s.pad_left;
    const float* from = w.x + place.image * s.x_stride_n + y * s.x_stride_h + z * s.x_stride_w;
    const float* b = panel;
    vec<float> sum = {};
    for (int64_t i = 0; i < 3; i++) {
      for (int64_t j = 0; j < 3; j++) {
        const bool exists = y + i >= 0 && y + i < s.h && z + j >= 0 && z + j < s.w;
        const float* x = from + i * s.x_stride_h + j * s.x_stride_w;
        for (int64_t c = 0; c < s.c; c++, b += kPanel) sum = fma(bcast(exists ? x[c] : 0.0f), load(b), sum);
      }
    }
    results[k] = sum;
  }
}

}  // namespace

void winograd_filter(float* to, const float* panel, int64_t c, int row) {
  switch (row) {
    case 0: return transform_panel<0>(to, panel, c);
    case 1: return transform_panel<1>(to, panel, c);
    case 2: return transform_panel<2>(to, panel, c);
    case 3: return transform_panel<3>(to, panel, c);
  }
}

void winograd_input(const Winograd& w, Range t, const Positions& to, float* patch) {
  const ConvShape& s = w.s;
  TilePlace place = w.place(t.begin);
  for (int64_t tile = t.begin; tile < t.end; tile++, w.advance(place)) {
    const int64_t y = place.row * 2 - s.pad_top, z = place.column * 2 - s.pad_left;
    const float* from = w.x + place.image * s.x_stride_n + y * s.x_stride_h + z * s.x_stride_w;
    float* out = to.from(0, tile - t.begin).data;
    if (y >= 0 && z >= 0 && y + 4 <= s.h && z + 4 <= s.w) {
      transform_tile(from, s.x_stride_h, s.x_stride_w, s.c, out, to.stride);
    } else {
      copy_patch(s, from, y, z, patch);
      transform_tile(patch, 4 * s.c, s.c, s.c, out, to.stride);
    }
  }
}

void winograd_products(const Positions& tiles, const float* filters, int64_t count, int64_t height, int64_t c,
                       int columns, const Positions& sums) {
  const int64_t blocks = ceil_div(height, kMaxRows), no_offset = 0;
  for (int64_t k = 0; k < count; k++) {
    for (int64_t i = 0; i < blocks; i++) {
      const Range rows = part_of(height, i, blocks);
      const int mr = static_cast<int>(rows.end - rows.begin);
      const float* a[kMaxRows];
      for (int r = 0; r < mr; r++) a[r] = tiles.from(k, rows.begin + r).data;
      micro_tile(mr, {a, &no_offset, 1, c, kPanel}, filters + k * c * kPanel, sums.from(k, rows.begin).data, kPanel,
                 columns, false);
    }
  }
}

void winograd_output(const Winograd& w, int64_t first, int64_t count, int64_t panel, const Positions& sums,
                     float* results) {
  const Range columns = w.columns(panel);
  for (int64_t i = 0; i < count; i++, results += 4 * kPanel) {
    for (int64_t n = 0; n < columns.end - columns.begin; n += W) {
      const float* at = sums.from(0, i).data + n;
      vec<float> top[4], bottom[4];
      HT_UNROLL_ALL
      for (int j = 0; j < 4; j++) {
        const float* m = at + j * sums.stride;
        const vec<float> b = load(m + 4 * sums.stride), c = load(m + 8 * sums.stride);
        top[j] = load(m) + b + c;
        bottom[j] = b - c - load(m + 12 * sums.stride);
      }
      vec<float> y[4] = {top[0] + top[1] + top[2], top[1] - top[2] - top[3], bottom[0] + bottom[1] + bottom[2],
                         bottom[1] - bottom[2] - bottom[3]};
      // 0 if all are finite, NaN if not.
      const vec<float> finite = y[0] * 0.0f + y[1] * 0.0f + (y[2] * 0.0f + y[3] * 0.0f);
      if (__builtin_expect(hany(finite != finite), 0)) {
        vec<float> direct[4];
        direct_tile(w, first + i, w.panel(panel) + n, direct);
        for (int k = 0; k < 4; k++) y[k] = select(y[k] - y[k] == vec<float>{}, y[k], direct[k]);
      }
      HT_UNROLL_ALL
      for (int k = 0; k < 4; k++) store(results + k * kPanel + n, y[k]);
    }
  }
}

}  // namespace ht
