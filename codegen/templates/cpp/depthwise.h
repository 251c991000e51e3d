// Depthwise two-dimensional convolution (one input and one output channel a group) with fused epilogues.
//
// Vectors run over channels, so x is channels-last and weights are [kh][kw][c]. Row m of the epilogue (blocks.h)
// is output pixel (n * oh + y) * ow + x, column n the channel. Every sum runs over the filter rows, then its columns.
//
// Of int8 a sum is one of floats, too, which are whole numbers below 2^24 and so exact, and goes to the epilogue as int32. There
// are no products of neighbours that VPMADDWD and its like would add up: a channel is multiplied with its own filter only.
#ifndef HARDTACK_TEMPLATES_DEPTHWISE_H
#define HARDTACK_TEMPLATES_DEPTHWISE_H

#include "conv.h"
#include "transpose.h"

namespace ht {

// An x whose channels are not contiguous is first copied to the shared workspace, channels-last.
constexpr bool depthwise_packs_input(const ConvShape& s) { return s.c > 1 && s.x_stride_c != 1; }

namespace detail {

constexpr int kPixels = 8;             // output columns that a block computes at once: enough sums to hide an FMA
template <int KW, int SW>
constexpr int kWindow = (kPixels - 1) * SW + KW;  // input columns that a block reads
constexpr int64_t kChunkWeights = 4096;  // weights of a channel chunk, in elements: 16 KiB of floats

// Two channel vectors of bf16 are widened from one load: its even lanes by a shift, its odd ones by a mask, one operation
// a vector where widening in order takes two. Pays where a register holds two vectors' bf16 and sums enough are there.
#if defined(HT_AVX512)
template <class T>
constexpr bool kWidensPairs = same<T, bf16>;
#else
template <class T>
constexpr bool kWidensPairs = false;
#endif

// CV vectors of W channels each. Where CV is even and kWidensPairs<T>, vectors 2i and 2i + 1 hold the even and the odd
// channels of the 2W that they cover, until in_order. `count` lanes exist of a single vector, all of several.
template <class T, int CV>
HT_INLINE void load_channels(vec<float> (&to)[CV], const T* p, int count) {
  if constexpr (CV % 2 == 0 && kWidensPairs<T>) {
    for (int v = 0; v < CV; v += 2) {
      vec<uint32_t> both;
      __builtin_memcpy(&both, p + v * W, sizeof(both));
      to[v] = bit_copy<vec<float>>(both << 16);
      to[v + 1] = bit_copy<vec<float>>(both & 0xffff0000u);
    }
  } else if constexpr (same<T, int8_t>) {
    for (int v = 0; v < CV; v++) to[v] = __builtin_convertvector(load_n(p + v * W, count), vec<float>);
  } else {
    for (int v = 0; v < CV; v++) to[v] = load_n(p + v * W, count);
  }
}

// A sum as the epilogue takes it.
template <class T>
HT_INLINE vec<typename SumOf<T>::type> finished(vec<float> sum) {
  if constexpr (same<T, int8_t>) return __builtin_convertvector(sum, vec<int32_t>);
  else return sum;
}

template <class T, int CV>
HT_INLINE void in_order(vec<float> (&sums)[CV]) {
  if constexpr (CV % 2 == 0 && kWidensPairs<T>) {
    for (int v = 0; v < CV; v += 2) {
      const vec<float> even = sums[v], odd = sums[v + 1];
      sums[v] = interleave<0>(even, odd);
      sums[v + 1] = interleave<1>(even, odd);
    }
  }
}

// One output row: which filter rows it meets and where.
template <class T>
struct DepthwiseRow {
  const T* x;             // the input row under the first filter row that exists, column 0
  const T* w;             // that filter row
  int64_t taps;           // filter rows that exist
  int64_t x_step, w_step; // elements to the next filter row, in x and w
  int64_t m;              // output pixel of column 0
  int64_t before, behind; // filter rows above and below those that exist
};

// Positions t in [0, taps) with 0 <= at + t * step < size.
HT_INLINE Range existing_taps(int64_t at, int64_t step, int64_t taps, int64_t size) {
  const int64_t begin = at < 0 ? ceil_div(-at, step) : 0;
  const int64_t end = at < size ? least(taps, ceil_div(size - at, step)) : 0;
  return {least(begin, end), end};
}

template <class T, class Epi>
struct Depthwise {
  using Row = DepthwiseRow<T>;
  ConvShape s;
  int64_t x_stride_w;
  Epi epi;

  // Whether taps outside of the input add something.
  static constexpr bool kFills = same<T, int8_t>;

  // Sums of the taps of whole filter rows that lie outside of the input.
  template <int CV>
  HT_MEMBER void start(vec<float> (&acc)[CV], const Row& row, int64_t c, int count) const {
    for (int v = 0; v < CV; v++) acc[v] = vec<float>{};
    if constexpr (kFills) {
      if (row.before > 0) add_outside(acc, row.w - row.before * row.w_step + c, row.before * s.kw, count);
      if (row.behind > 0) add_outside(acc, row.w + row.taps * row.w_step + c, row.behind * s.kw, count);
    }
  }

  // Those of `taps` taps of the filter, from w on.
  template <int CV>
  HT_MEMBER void add_outside(vec<float> (&acc)[CV], const T* w, int64_t taps, int count) const {
    const vec<float> x = bcast(static_cast<float>(s.fill));
    for (int64_t j = 0; j < taps; j++) {
      vec<float> wv[CV];
      load_channels(wv, w + j * s.c, count);
      for (int v = 0; v < CV; v++) acc[v] = fma(x, wv[v], acc[v]);
    }
  }

  // Sums of CV channel vectors of one pixel, any filter. `count` lanes of the last vector exist.
  template <int CV>
  HT_MEMBER void pixel(const Row& row, const typename Epi::Row& out, int64_t column, int64_t c,
                       int count) const {
    vec<float> acc[CV];
    start(acc, row, c, count);
    const int64_t z = column * s.stride_w - s.pad_left;
    const Range taps = existing_taps(z, s.dilation_w, s.kw, s.w);
    for (int64_t i = 0; i < row.taps; i++) {
      const T* x = row.x + i * row.x_step + z * x_stride_w + c;
      const T* w = row.w + i * row.w_step + c;
      for (int64_t j = taps.begin; j < taps.end; j++) {
        vec<float> xv[CV], wv[CV];
        load_channels(xv, x + j * s.dilation_w * x_stride_w, count);
        load_channels(wv, w + j * s.c, count);
        for (int v = 0; v < CV; v++) acc[v] = fma(xv[v], wv[v], acc[v]);
      }
      if constexpr (kFills) {
        add_outside(acc, w, taps.begin, count);
        add_outside(acc, w + taps.end * s.c, s.kw - taps.end, count);
      }
    }
    in_order<T>(acc);
    for (int v = 0; v < CV; v++) epi(out, row.m + column, c + v * W, count, finished<T>(acc[v]));
  }

  __attribute__((noinline)) void pixels(Row row, Range columns, Range channels) const {
    const Depthwise own = *this;  // that stores through the epilogue's pointers cannot change
    for (int64_t q = columns.begin; q < columns.end; q++) {
      const auto out = own.epi.row(0, row.m + q);
      int64_t c = channels.begin;
      for (; c + 4 * W <= channels.end; c += 4 * W) own.template pixel<4>(row, out, q, c, W);
      for (; c + W <= channels.end; c += W) own.template pixel<1>(row, out, q, c, W);
      if (c < channels.end) own.template pixel<1>(row, out, q, c, static_cast<int>(channels.end - c));
    }
  }

  // kPixels neighbouring output columns, CV channel vectors: every input vector is loaded once for all the columns that
  // use it. At an EDGE, bit t of `inside` tells whether input column t of the window exists, and `columns` outputs do.
  template <int KW, int SW, int CV, bool EDGE>
  HT_MEMBER void block(const Row& row, const typename Epi::Row* out, int64_t column, int64_t c, int count,
                       uint32_t inside, int columns) const {
    vec<float> acc[kPixels][CV];
    start(acc[0], row, c, count);
    HT_UNROLL_ALL
    for (int q = 1; q < kPixels; q++)
      for (int v = 0; v < CV; v++) acc[q][v] = acc[0][v];
    const T* x = row.x + (column * SW - s.pad_left) * x_stride_w + c;
    const T* w = row.w + c;
    for (int64_t i = 0; i < row.taps; i++, x += row.x_step, w += row.w_step) {
      vec<float> filter[KW][CV];
      HT_UNROLL_ALL
      for (int j = 0; j < KW; j++) load_channels(filter[j], w + j * s.c, count);
      HT_UNROLL_ALL
      for (int t = 0; t < kWindow<KW, SW>; t++) {
        vec<float> xt[CV];
        if (!EDGE || (inside >> t & 1) != 0) {
          load_channels(xt, x + t * x_stride_w, count);
        } else if constexpr (kFills) {
          for (int v = 0; v < CV; v++) xt[v] = bcast(static_cast<float>(s.fill));
        } else {
          continue;
        }
        HT_UNROLL_ALL
        for (int q = 0; q < kPixels; q++) {
          const int j = t - q * SW;
          if (j < 0 || j >= KW) continue;
          for (int v = 0; v < CV; v++) acc[q][v] = fma(xt[v], filter[j][v], acc[q][v]);
        }
      }
    }
    HT_UNROLL_ALL
    for (int q = 0; q < kPixels; q++) {
      if (EDGE && q >= columns) continue;
      in_order<T>(acc[q]);
      for (int v = 0; v < CV; v++) epi(out[q], row.m + column + q, c + v * W, count, finished<T>(acc[q][v]));
    }
  }

  // Whole vectors of channels from `c` on; returns the first channel that is left.
  template <int KW, int SW, bool EDGE>
  HT_MEMBER int64_t vectors(const Row& row, const typename Epi::Row* out, int64_t column, int64_t c, int64_t end,
                            uint32_t inside, int columns) const {
    if constexpr (kWidensPairs<T>) {
      for (; c + 2 * W <= end; c += 2 * W) block<KW, SW, 2, EDGE>(row, out, column, c, W, inside, columns);
    }
    for (; c + W <= end; c += W) block<KW, SW, 1, EDGE>(row, out, column, c, W, inside, columns);
    return c;
  }

  // A whole output row in blocks of kPixels columns.
  template <int KW, int SW>
  __attribute__((noinline)) void blocks(Row row, Range channels) const {
    const Depthwise own = *this;  // that stores through the epilogue's pointers cannot change
    for (int64_t q = 0; q < own.s.ow; q += kPixels) {
      const int columns = static_cast<int>(least(kPixels, own.s.ow - q));
      typename Epi::Row out[kPixels];
      uint32_t inside = 0;
      for (int i = 0; i < columns; i++) out[i] = own.epi.row(0, row.m + q + i);
      for (int t = 0; t < kWindow<KW, SW>; t++) {
        const int64_t at = q * SW - own.s.pad_left + t;
        inside |= static_cast<uint32_t>(at >= 0 && at < own.s.w) << t;
      }
      int64_t c = channels.begin;
      if (columns == kPixels && inside == (uint32_t{1} << kWindow<KW, SW>) - 1) {
        c = own.template vectors<KW, SW, false>(row, out, q, c, channels.end, inside, columns);
      } else {
        c = own.template vectors<KW, SW, true>(row, out, q, c, channels.end, inside, columns);
      }
      const int rest = static_cast<int>(channels.end - c);
      if (rest > 0) own.template block<KW, SW, 1, true>(row, out, q, c, rest, inside, columns);
    }
  }

  // Output row r = n * oh + y.
  template <int KW, int SW>
  void row(const T* x, int64_t stride_n, int64_t stride_h, const T* w, int64_t r, Range channels) const {
    const int64_t y = r % s.oh * s.stride_h - s.pad_top;
    const Range taps = existing_taps(y, s.dilation_h, s.kh, s.h);
    const int64_t x_step = s.dilation_h * stride_h, w_step = s.kw * s.c;
    const Row at = {x + r / s.oh * stride_n + y * stride_h + taps.begin * x_step, w + taps.begin * w_step,
                    taps.end - taps.begin, x_step, w_step, r * s.ow, taps.begin, s.kh - taps.end};
    if constexpr (KW == 0) {
      pixels(at, {0, s.ow}, channels);
    } else {
      blocks<KW, SW>(at, channels);
    }
  }
};

}  // namespace detail

// KW and SW, when not 0, are s.kw and s.stride_w, known when the kernel is compiled; dilation_w is then 1. Worth it for
// 3 and 5 with strides 1 and 2. Shared workspace, if depthwise_packs_input: n * h * w * c elements; none for workers.
template <int KW = 0, int SW = 0, class T, class Epi>
int32_t depthwise2d(const HtKernelArgs* args, const ConvShape& s, const T* x, const T* weights, const Epi& epi) {
  static_assert((KW == 0) == (SW == 0), "give both the filter's width and the stride, or neither");
  if (s.n == 0 || s.oh == 0 || s.ow == 0 || s.c == 0) return HT_KERNEL_OK;
  int64_t stride_n = s.x_stride_n, stride_h = s.x_stride_h, stride_w = s.x_stride_w;
  if (depthwise_packs_input(s)) {
    T* packed = static_cast<T*>(args->shared_workspace);
    parallel_for(args, s.n * s.h, [&](int64_t row, int32_t) {
      const T* from = x + row / s.h * s.x_stride_n + row % s.h * s.x_stride_h;
      detail::copy_pixels(packed + row * s.w * s.c, from, s, s.w);
    });
    x = packed;
    stride_w = s.c;
    stride_h = s.w * s.c;
    stride_n = s.h * stride_h;
  }
  // Channels in chunks whose weights stay in the first-level cache, rows in runs.
  const int64_t rows = s.n * s.oh, vectors = ceil_div(s.c, W);
  const bool serial = rows * s.ow * s.c * s.kh * s.kw < kSerialWork;
  const int64_t wanted = serial ? 1 : 4 * args->parallel->nworkers;
  const int64_t fitting = ceil_div(vectors, most(4, detail::kChunkWeights / W / most(1, s.kh * s.kw)));
  const int64_t chunks = most(fitting, least(vectors, ceil_div(wanted, rows)));
  const int64_t runs = least(rows, ceil_div(wanted, chunks));
  const detail::Depthwise<T, Epi> depthwise = {s, stride_w, epi};
  const auto body = [&](int64_t task, int32_t) {
    const Range r = part_of(rows, task / chunks, runs), v = part_of(vectors, task % chunks, chunks);
    const Range channels = {v.begin * W, least(s.c, v.end * W)};
    for (int64_t i = r.begin; i < r.end; i++) {
      depthwise.template row<KW, SW>(x, stride_n, stride_h, weights, i, channels);
    }
  };
  if (serial) {
    for (int64_t task = 0; task < runs * chunks; task++) body(task, 0);
  } else {
    parallel_for(args, runs * chunks, body);
  }
  return HT_KERNEL_OK;
}

}  // namespace ht

#endif  // HARDTACK_TEMPLATES_DEPTHWISE_H
