// Two-dimensional convolution with fused epilogues, as an implicit matrix product: no im2col buffer. A 1-D convolution
// has h = kh = oh = 1. Transposed convolution: conv_transposed.h; one channel per group: depthwise.h.
//
// Row m of the product is output pixel (n * oh + y) * ow + x; column is the output channel. The epilogue (blocks.h)
// sees batch 0, that m, and the channel over all groups. Weights are packed at export as
// [groups][ceil(oc / groups / 32)][kh][kw][c / groups][32] elements, zero-padded; the layout is the same on every CPU. Of bf16
// each tap is in pairs of channels (half.h), of int8 in fours (int8.h); taps that are laid side by side (conv_merges_taps) are
// one, with kw * c channels.
#ifndef HARDTACK_TEMPLATES_CONV_H
#define HARDTACK_TEMPLATES_CONV_H

#include "blocks.h"
#include "conv_window.h"
#include "pack.h"

namespace ht {

// Extents and strides in elements. The bottom and right padding follow from oh and ow.
struct ConvShape {
  int64_t n, h, w, c;                          // input
  int64_t oh, ow, oc;                          // output
  int64_t kh, kw;                              // filter
  int64_t stride_h, stride_w;
  int64_t pad_top, pad_left;
  int64_t dilation_h, dilation_w;
  int64_t groups;
  int64_t x_stride_n, x_stride_h, x_stride_w, x_stride_c;
  int64_t fill = 0;                            // what padding adds; 0 but of int8
};

// What taps outside the input read: as long as the longest part of a tap that is worked on at once.
template <class T>
inline constexpr T kZeros[kMostDepth] = {};
// The same where padding adds another number: `outside`, which has to stay as long as it is read.
template <class T>
struct Outside {
  const T* taps;
  explicit Outside(int64_t) : taps(kZeros<T>) {}
};
template <>
struct Outside<int8_t> {
  int8_t own[kMostDepth];
  const int8_t* taps;
  explicit Outside(int64_t fill) : taps(fill == 0 ? kZeros<int8_t> : own) {
    if (fill != 0) __builtin_memset(own, static_cast<int>(fill), sizeof(own));
  }
};

template <class T>
struct ConvSource {
  using Element = T;
  static constexpr bool kOneInput = true;
  const T* x;
  const T* outside;                            // what a tap outside of x reads
  int64_t stride_n, stride_h, stride_w;        // of x; its channels are contiguous
  ConvAxis h, w;
  int64_t tap_numel;                           // elements of a tap
  const Packed<T>* panels_data;
  int64_t panels_per_group, depth, filter_w;   // depth: rows of a panel, of pairs for bf16, of fours for int8
  int64_t oc_per_group;
  bool linear;                                 // row m of the product is x + m * stride_w
  bool packed;                                 // x is a copy that a kernel has made
  ConvWindow window;                           // where rows are read from one
  int64_t oh, ow, out_y, out_x, out_step_h, out_step_w;  // output pixel of (q_h, q_w); steps of 1 without phases

  // The next output pixel: its column, and where its first tap lies in the input.
  struct Cursor {
    const T* image;              // of the group and the part of the taps
    int64_t taps;
    int64_t qw, qh, y, z;
    Range interior_y, interior_z;
    int64_t shift_y[kMaxTaps], shift_z[kMaxTaps], shift[kMaxTaps];  // to the other taps
  };

  HT_MEMBER Cursor start(int64_t group, int64_t m, const KBlock& kb, void*) const {
    Cursor c;
    c.image = x + group * tap_numel + kb.c;
    c.taps = kb.taps;
    if (linear) {
      c.image += m * stride_w;
      return c;
    }
    c.qw = m % w.outputs;
    c.qh = m / w.outputs % h.outputs;
    c.image += m / w.outputs / h.outputs * stride_n;
    c.y = c.qh * h.stride + h.origin;
    c.z = c.qw * w.stride + w.origin;
    c.interior_y = h.interior();
    c.interior_z = w.interior();
    for (int64_t t = 0; t < kb.taps; t++) {
      c.shift_y[t] = (kb.tap + t) / w.taps * h.step;
      c.shift_z[t] = (kb.tap + t) % w.taps * w.step;
      c.shift[t] = c.shift_y[t] * stride_h + c.shift_z[t] * stride_w;
    }
    return c;
  }

  HT_MEMBER void rows(Cursor& c, int count, const T** out) const {
    if (linear) {
      for (int r = 0; r < count; r++) out[r] = c.image + r * stride_w;
      c.image += count * stride_w;
      prefetch_rows(c.image, stride_w, count, tap_numel);
    } else {
      window_rows(c, count, out);
    }
  }

  // Where the first tap of the next image row of outputs lies; moves the cursor to it, and at the end to the next image.
  HT_MEMBER int64_t next_image_row(Cursor& c, int64_t y) const {
    if (++c.qh < h.outputs) return y + h.stride;
    c.qh = 0;
    c.image += stride_n;
    return h.origin;
  }

  // The next n rows, where all are pixels of one image row and no tap of theirs leaves the input: the first one's first tap,
  // and how far it is to the next one's. Else nothing, and the cursor stays.
  struct EvenRows {
    const T* first;
    int64_t step;
  };
  HT_MEMBER EvenRows next_even_rows(Cursor& c, int n) const {
    if (linear) return {};
    const int64_t last = c.z + (n - 1) * w.stride, step = w.stride * stride_w;
    const bool inside = c.qw + n <= w.outputs && c.interior_y.begin <= c.y && c.y < c.interior_y.end &&
                        c.interior_z.begin <= c.z && last < c.interior_z.end;
    if (!inside || step % static_cast<int64_t>(detail::kSetDistance / sizeof(T)) == 0) return {};
    const EvenRows found = {c.image + c.y * stride_h + c.z * stride_w, step};
    c.qw += n;
    c.z += n * w.stride;
    if (c.qw == w.outputs) {
      c.qw = 0;
      c.z = w.origin;
      c.y = next_image_row(c, c.y);
    }
    return found;
  }

  // Not inlined: one copy serves every tile. The cursor is worked on in a copy, which the stores to `out` cannot alias.
  __attribute__((noinline)) void window_rows(Cursor& cursor, int count, const T** out) const {
    int64_t qw = cursor.qw, y = cursor.y, z = cursor.z;
    const int64_t taps = cursor.taps, step_h = stride_h, step_w = stride_w, columns = w.outputs, next_z = w.stride;
    const Range inner_z = cursor.interior_z;
    const int64_t* shift = cursor.shift;
    bool inner_y = cursor.interior_y.begin <= y && y < cursor.interior_y.end;
    const T* row = cursor.image + y * step_h;
    for (int r = 0; r < count; r++) {
      const T* first = row + z * step_w;
      if (inner_y && inner_z.begin <= z && z < inner_z.end) {
        const T** to = out + r;
        for (int64_t t = 0; t < taps; t++, to += count) *to = first + shift[t];
      } else {
        edge_taps(cursor, y, z, first, count, out + r);
      }
      z += next_z;
      if (++qw < columns) continue;
      qw = 0;
      z = w.origin;
      y = next_image_row(cursor, y);
      inner_y = cursor.interior_y.begin <= y && y < cursor.interior_y.end;
      row = cursor.image + y * step_h;
    }
    cursor.qw = qw;
    cursor.y = y;
    cursor.z = z;
  }

  // The taps of one pixel, at out[t * count], of which some lie outside the input.
  HT_MEMBER void edge_taps(const Cursor& cursor, int64_t y, int64_t z, const T* first, int count,
                           const T** out) const {
    for (int64_t t = 0; t < cursor.taps; t++) {
      const int64_t ty = y + cursor.shift_y[t], tz = z + cursor.shift_z[t];
      const bool exists = ty >= 0 && ty < h.size && tz >= 0 && tz < w.size;
      out[t * count] = exists ? first + cursor.shift[t] : outside;
    }
  }

#if defined(HT_TILES)
  // The window of product rows `m` of a group, to be read by tile_rows.
  void copy_window(int64_t group, Range m, bf16x2* to) const {
    const int64_t pixel = window_pixel(tap_numel), rows = m.end - m.begin + window.reach;
    for (int64_t phase = 0; phase < window.phases(); phase++, to += rows * pixel / 2)
      copy_phase(group, phase, {m.begin, m.begin + rows}, to);
  }
  void copy_phase(int64_t group, int64_t phase, Range m, bf16x2* to) const {
    const int64_t pixel = window_pixel(tap_numel);
    const int64_t top = phase / window.phases_w + h.origin, first = phase % window.phases_w + w.origin;
    for (int64_t at = m.begin; at < m.end;) {
      const int64_t row = at / window.pitch_w, column = at % window.pitch_w;
      const int64_t end = least(window.pitch_w, column + m.end - at), image = row / window.pitch_h;
      const int64_t y = row % window.pitch_h * h.stride + top;
      const bool exists = image < window.images && y >= 0 && y < h.size;
      const T* from = exists ? x + group * tap_numel + image * stride_n + y * stride_h : x;
      detail::copy_phase_row(to, {from, column, end, w.stride, first, exists ? w.size : 0, stride_w}, tap_numel, pixel);
      to += (end - column) * pixel / 2;
      at += end - column;
    }
  }
  // Where a tap's rows lie in the window of so many rows, from its row `first` on.
  HT_MEMBER TapRows tile_rows(const bf16x2* copy, int64_t rows, int64_t first, int64_t tap, int64_t c) const {
    const int64_t pixel = window_pixel(tap_numel), down = tap / w.taps * h.step, right = tap % w.taps * w.step;
    const int64_t phase = down % h.stride * window.phases_w + right % w.stride;
    const int64_t place = phase * (rows + window.reach) + first + down / h.stride * window.pitch_w + right / w.stride;
    return tap_rows(copy + (place * pixel + c) / 2, pixel / 2);
  }
#endif

  HT_MEMBER PanelView<Packed<T>> panels(int64_t group, Range p, const KBlock& kb, void*) const {
    const int64_t row = (group * panels_per_group + p.begin) * depth + packed_rows<T>(kb.c);
    return {panels_data + row * kPanel, depth * kPanel, kPanel};
  }
  HT_MEMBER int64_t tap_offset(int64_t tap) const {
    const int64_t i = h.first_tap + tap / w.taps * h.tap_step, j = w.first_tap + tap % w.taps * w.tap_step;
    return (i * filter_w + j) * packed_rows<T>(tap_numel) * kPanel;
  }
  HT_MEMBER int64_t epilogue_batch(int64_t) const { return 0; }
  HT_MEMBER bool rows_stay() const { return true; }
  HT_MEMBER bool has_room() const { return packed; }
  HT_MEMBER bool rows_follow() const { return out_step_h == 1 && out_step_w == 1 && !window.used(); }
  HT_MEMBER RowRun run_from(int64_t m, int count) const {
    if (window.used()) return run_of_window(m, count);
    return {epilogue_row(m), rows_follow() ? count : 1};
  }
  // Of a window: to the end of an image row, or of what is none.
  HT_MEMBER RowRun run_of_window(int64_t m, int count) const {
    const auto at = static_cast<uint32_t>(m), width = static_cast<uint32_t>(window.pitch_w);
    const uint32_t row = at / width, column = at % width, height = static_cast<uint32_t>(window.pitch_h);
    const int64_t x = column, y = row % height, image = row / height;
    if (x >= ow || y >= oh) return {-1, static_cast<int>(least(count, window.pitch_w - x))};
    return {(image * oh + y) * ow + x, static_cast<int>(least(count, ow - x))};
  }
  HT_MEMBER int64_t epilogue_row(int64_t m) const {
    if (rows_follow()) return m;
    const int64_t qw = m % w.outputs, qh = m / w.outputs % h.outputs, image = m / w.outputs / h.outputs;
    return (image * oh + out_y + qh * out_step_h) * ow + out_x + qw * out_step_w;
  }
  HT_MEMBER int64_t epilogue_column(int64_t group) const { return group * oc_per_group; }
};

// Whether the taps of a filter row are laid side by side, as one tap: where one would be too short to keep the microkernel
// busy, or channels that are packed `ks` at once would leave a gap in each.
constexpr bool conv_merges_taps(const ConvShape& s, int64_t ks) {
  return s.groups == 1 && s.dilation_w == 1 && s.kw > 1 && (s.c < kShortTap || s.c % ks != 0);
}

// Whether the input is first copied, padded and channels-last, into the shared workspace: when its channels are not
// contiguous, and when taps are laid side by side.
constexpr bool conv_packs_input(const ConvShape& s, int64_t ks) {
  return (s.c > 1 && s.x_stride_c != 1) || conv_merges_taps(s, ks);
}

namespace detail {

// Copies pixels of x, channels-last and contiguous, to `to`: `count` of them, `from` on.
template <class T>
inline void copy_pixels(T* to, const T* from, const ConvShape& s, int64_t count) {
  if (s.c == 1) return copy_matrix(to, 1, from, 1, s.x_stride_w, 1, count);
  if (s.x_stride_c == 1 && s.x_stride_w == s.c) return copy_matrix(to, 1, from, 1, 1, 1, count * s.c);
  copy_matrix(to, s.c, from, s.x_stride_w, s.x_stride_c, count, s.c);
}

template <class T>
inline void pad_pixels(T* to, const ConvShape& s, int64_t count) {
  if constexpr (same<T, int8_t>) __builtin_memset(to, static_cast<int>(s.fill), static_cast<size_t>(count * s.c));
  else clear(to, count * s.c);
}

// to[n][y][x][c]: the part of the padded input that some window covers.
template <class T>
inline void pack_conv_input(const HtKernelArgs* args, const ConvShape& s, const T* x, T* to) {
  const int64_t height = window_extent(s.oh, s.stride_h, s.kh, s.dilation_h);
  const int64_t width = window_extent(s.ow, s.stride_w, s.kw, s.dilation_w);
  const int64_t left = least(s.pad_left, width), used = most(0, least(s.w, width - left));
  const int64_t rows_per_task = most(1, 16384 / most(1, width * s.c));
  const int64_t tasks = ceil_div(height, rows_per_task);
  parallel_for(args, s.n * tasks, [&](int64_t task, int32_t) {
    const int64_t image = task / tasks, first = task % tasks * rows_per_task;
    for (int64_t row = first; row < least(height, first + rows_per_task); row++) {
      T* out = to + (image * height + row) * width * s.c;
      const int64_t y = row - s.pad_top;
      if (y < 0 || y >= s.h) {
        pad_pixels(out, s, width);
        continue;
      }
      pad_pixels(out, s, left);
      copy_pixels(out + left * s.c, x + image * s.x_stride_n + y * s.x_stride_h, s, used);
      pad_pixels(out + (left + used) * s.c, s, width - left - used);
    }
  });
}

template <class T>
HT_INLINE ConvSource<T> conv_source(const ConvShape& s, const T* x, const T* panels) {
  ConvSource<T> v = {};
  v.x = x;
  v.outside = kZeros<T>;
  v.stride_n = s.x_stride_n;
  v.stride_h = s.x_stride_h;
  v.stride_w = s.x_stride_w;
  v.h = {s.oh, s.h, s.stride_h, s.kh, 0, 1, -s.pad_top, s.dilation_h};
  v.w = {s.ow, s.w, s.stride_w, s.kw, 0, 1, -s.pad_left, s.dilation_w};
  v.tap_numel = s.c / s.groups;
  v.panels_data = reinterpret_cast<const Packed<T>*>(panels);
  v.oc_per_group = s.oc / s.groups;
  v.panels_per_group = panels_of(v.oc_per_group);
  v.depth = s.kh * s.kw * packed_rows<T>(v.tap_numel);
  v.filter_w = s.kw;
  v.oh = s.oh;
  v.ow = s.ow;
  v.out_step_h = v.out_step_w = 1;
  return v;
}

// Turns the source to a packed copy of its input.
template <class T>
HT_INLINE void use_packed_input(ConvSource<T>& v, const ConvShape& s, const T* packed) {
  v.x = packed;
  v.packed = true;
  v.h.size = window_extent(s.oh, s.stride_h, s.kh, s.dilation_h);
  v.w.size = window_extent(s.ow, s.stride_w, s.kw, s.dilation_w);
  v.h.origin = v.w.origin = 0;
  v.stride_w = s.c;
  v.stride_h = v.w.size * s.c;
  v.stride_n = v.h.size * v.stride_h;
  const bool even = s.c % PackedOf<T>::ks == 0;
  if (s.groups == 1 && s.dilation_w == 1 && (even || conv_merges_taps(s, PackedOf<T>::ks))) {
    v.w.taps = 1;
    v.tap_numel *= s.kw;
    v.filter_w = 1;
    v.depth = s.kh * packed_rows<T>(v.tap_numel);
  }
}

// The window that a product of m rows reads: by tiles, if it fits where rows are staged, and if it pays; else none.
template <class Cut, class T>
HT_INLINE ConvWindow window_of(const ConvSource<T>& v, int64_t images, int64_t m) {
  if constexpr (block_rows<T>(kChunkRows, 1) != kBlockRows || !same<T, bf16>) return {};
  const int64_t taps = v.h.taps * v.w.taps;
  if (taps == 1 || v.tap_numel == 0 || m <= kFewRows) return {};
  const ConvWindow window = conv_window(v.h, v.w, images);
  const int64_t rows = window_rows(window, v.h, v.w), room = staged_numel(rows, Cut::depth) * 4;
  if (rows >= int64_t{1} << 31 || window_nbytes(window, least(rows, Cut::rows), v.tap_numel) > room) return {};
  const int64_t panels = chunk_panels<Cut>(v.oc_per_group, taps * v.tap_numel);
  return window_pays(window, v.h, v.w, v.tap_numel, panels) ? window : ConvWindow{};
}

}  // namespace detail

// acc[m, channel] = sum over kh, kw, c of input times weight, to the epilogue.
// Shared workspace, if conv_packs_input: conv_input_nbytes of cpu_workspace.py, for the window_extent of the height and of the
// width.
// Workspace of a worker: gemm_nbytes of cpu_workspace.py. As: what is known of x (ReadAs); of padding it holds, too.
template <class Cut, class As = AsTheyAre, class T, class Epi>
int32_t conv2d(const HtKernelArgs* args, const ConvShape& s, const T* x, const T* panels, const Epi& epi) {
  if (s.n == 0 || s.oh == 0 || s.ow == 0 || s.oc == 0) return HT_KERNEL_OK;
  ConvSource<T> source = detail::conv_source(s, x, panels);
  const Outside<T> outside(s.fill);
  source.outside = outside.taps;
  if (conv_packs_input(s, PackedOf<T>::ks)) {
    T* packed = static_cast<T*>(args->shared_workspace);
    detail::pack_conv_input(args, s, x, packed);
    detail::use_packed_input(source, s, packed);
  }
  const bool pointwise = source.h.taps * source.w.taps == 1 && source.h.origin == 0 && source.w.origin == 0 &&
                         s.stride_h == 1 && s.stride_w == 1 && source.h.size == s.oh && source.w.size == s.ow;
  source.linear = pointwise && (s.oh == 1 || source.stride_h == s.ow * source.stride_w) &&
                  (s.n == 1 || source.stride_n == s.oh * s.ow * source.stride_w);
  const KAxis k = {source.h.taps * source.w.taps, source.tap_numel};
  int64_t m = s.n * s.oh * s.ow;
  source.window = detail::window_of<Cut>(source, s.n, m);
  if (source.window.used()) m = window_rows(source.window, source.h, source.w);
  const typename ReadAs<As, ConvSource<T>>::type read(source);
  return run_blocks<Cut>(args, read, epi, s.groups, m, source.oc_per_group, k);
}
template <class T, class Epi>
int32_t conv2d(const HtKernelArgs* args, const ConvShape& s, const T* x, const T* panels, const Epi& epi) {
  return conv2d<MachineBlocks<T>>(args, s, x, panels, epi);
}

}  // namespace ht

#endif  // HARDTACK_TEMPLATES_CONV_H
