// The window of a unit of a convolution by tiles: the part of the input that the unit's taps read, copied once, so that a
// tile's rows lie at equal steps under every tap.
//
// A tile wants 16 rows as far from each other. Pixels of an image lie so, up to the end of their row and but for the edges,
// where taps read zeros; what does not is copied for each tap. In a window rows of zeros stand where the image ends, and
// product rows are counted over them, too: row m is output pixel (y, x) with m = (image * pitch_h + y) * pitch_w + x, and tap
// t of it lies shift(t) pixels behind its own place, whatever m is. Sums of rows that are no pixels go nowhere. One row of
// zeros serves as the end of an image row and the beginning of the next. Where outputs step over pixels, those that agree
// modulo the step are an image of their own, a phase.
#ifndef HARDTACK_TEMPLATES_CONV_WINDOW_H
#define HARDTACK_TEMPLATES_CONV_WINDOW_H

#include "blocks.h"
#include "conv_axis.h"

namespace ht {

// How product rows are counted, and what a window has. Zero without tiles.
struct ConvWindow {
  int64_t images, pitch_h, pitch_w;
  int64_t phases_h, phases_w;
  int64_t reach;  // pixels that the last tap lies behind the first one

  HT_MEMBER bool used() const { return pitch_w > 0; }
  HT_MEMBER int64_t phases() const { return phases_h * phases_w; }
};

namespace detail {

// How many rows or columns of a phase the last tap lies behind the first.
constexpr int64_t phase_reach(const ConvAxis& a) { return a.taps > 0 ? (a.taps - 1) * a.step / a.stride : 0; }

// From an output to the one in the next image row, or from an image's first row to the next one's.
constexpr int64_t pitch_of(const ConvAxis& a) {
  const int64_t reach = phase_reach(a), padding = -a.origin;
  const int64_t behind = a.outputs + reach - padding - a.size;  // zeros at the end
  const int64_t shared = a.stride == 1 ? most(0, least(padding, behind)) : 0;
  return a.outputs + reach - shared;
}

constexpr int64_t phases_of(const ConvAxis& a) { return least(a.stride, (a.taps - 1) * a.step + 1); }

}  // namespace detail

HT_INLINE ConvWindow conv_window(const ConvAxis& h, const ConvAxis& w, int64_t images) {
  const int64_t pitch_w = detail::pitch_of(w);
  return {images, detail::pitch_of(h), pitch_w, detail::phases_of(h), detail::phases_of(w),
          detail::phase_reach(h) * pitch_w + detail::phase_reach(w)};
}

// Product rows, those that are no pixels among them.
HT_INLINE int64_t window_rows(const ConvWindow& v, const ConvAxis& h, const ConvAxis& w) {
  return ((v.images - 1) * v.pitch_h + h.outputs - 1) * v.pitch_w + w.outputs;
}

// Elements from one pixel of a window to the next: whole grains, and not so that a tile's rows share a set of the cache.
constexpr int64_t window_pixel(int64_t numel) {
  const int64_t whole = ceil_div(numel, kGrain) * kGrain;
  return whole % 1024 == 0 ? whole + kGrain : whole;
}
// Bytes of the window of so many product rows.
HT_INLINE int64_t window_nbytes(const ConvWindow& v, int64_t rows, int64_t numel) {
  return v.phases() * (rows + v.reach) * window_pixel(numel) * 2;
}

// Whether copying windows, and multiplying rows that are no pixels, takes less time than copying rows for each tap: counted
// in cycles for a pixel of the output. panels: of a unit.
HT_INLINE bool window_pays(const ConvWindow& v, const ConvAxis& h, const ConvAxis& w, int64_t numel, int64_t panels) {
  constexpr int64_t kPlace = 2, kCopy = 4, kMultiply = 2;  // of a row; of a grain of it; of a grain by a panel
  constexpr int64_t kHalfRows = kBlockRows / 2, kParts = 64;
  const int64_t grains = ceil_div(numel, kGrain), taps = h.taps * w.taps;
  const int64_t product = taps * grains * panels * kMultiply * kParts;
  // Of the rows of a tap: all whose channels are no whole grains, else those of tiles that meet an end of an image row.
  int64_t copied = kParts;
  if (numel % kGrain == 0) {
    const int64_t meeting = w.outputs % kHalfRows == 0 ? kParts * kHalfRows * (w.taps - 1) / (w.taps * w.outputs)
                                                       : 2 * kParts * kHalfRows / w.outputs;
    copied = least(kParts, meeting);
  }
  const int64_t by_rows = taps * copied * (kPlace + grains * kCopy) + product;
  // All rows, in 64ths of those that are pixels; a window's overlap with the next unit's.
  const int64_t all = kParts * v.pitch_w * v.pitch_h / (w.outputs * h.outputs);
  const int64_t copies = v.phases() * all * (kChunkRows + v.reach) / kChunkRows;
  return copies * (kPlace + grains * kCopy) + all * (product / kParts) < by_rows;
}

#if defined(HT_TILES)
namespace detail {

// A pixel's elements, zeros up to its pitch.
HT_INLINE void copy_pixel(bf16x2* to, const bf16* from, int64_t numel, int64_t pixel) {
  for (int64_t k = 0; k < pixel; k += kGrain, to += kTilePairs) stage_grain(to, from + k, numel - k);
}

// One row of a phase, pixels [begin, end) of it, of which pixel x is the input's x * step + first, if it has that.
struct PhaseRow {
  const bf16* from;  // the input's pixel 0
  int64_t begin, end, step, first, size, stride;
};
inline void copy_phase_row(bf16x2* to, const PhaseRow& r, int64_t numel, int64_t pixel) {
  const int64_t left = least(r.end, most(r.begin, ceil_div(-r.first, r.step)));
  const int64_t right = least(r.end, most(left, ceil_div(r.size - r.first, r.step)));
  const int64_t pairs = pixel / 2, width = r.step * r.stride;
  __builtin_memset(to, 0, static_cast<uint64_t>((left - r.begin) * pixel * 2));
  to += (left - r.begin) * pairs;
  const bf16* from = r.from + (left * r.step + r.first) * r.stride;
  if (numel == pixel && width == pixel) {
    __builtin_memcpy(to, from, static_cast<uint64_t>((right - left) * pixel * 2));
    to += (right - left) * pairs;
  } else {
    for (int64_t x = left; x < right; x++, to += pairs, from += width) copy_pixel(to, from, numel, pixel);
  }
  __builtin_memset(to, 0, static_cast<uint64_t>((r.end - right) * pixel * 2));
}

}  // namespace detail
#endif

}  // namespace ht

#endif  // HARDTACK_TEMPLATES_CONV_WINDOW_H
