// How the sums of a tile come to the epilogue (blocks.h): from the worker's workspace, row by row, or as the microkernel
// ends, from its registers.
//
// Where k is short, storing sums and loading them again is a fifth of a tile's time, and the stores stand in the queue in
// front of the results'. A microkernel with an epilogue is compiled for each kernel: this is for tiles of the full height
// and for short epilogues only, of which three dozen copies cost little. Where k is long it would gain nothing.
#ifndef HARDTACK_TEMPLATES_FINISH_H
#define HARDTACK_TEMPLATES_FINISH_H

#include "half.h"
#include "micro.h"
#include "tiles.h"

namespace ht {

// The most operations for an element (Epi::kOperations) of an epilogue that microkernels end with; those of int32 make floats of
// sums first, and codes of floats.
template <class S>
constexpr int kShortEpilogue = same<S, int32_t> ? 24 : 16;

constexpr int64_t kFinishK = 256;  // the longest k whose sums stay in registers

// Where a tile begins.
struct TileAt {
  int64_t batch, m, n;
};

// One row of sums, columns [n, n + width), to the epilogue.
template <class Epi, class Row, class S>
HT_INLINE void finish_row(const Epi& epi, const Row& row, int64_t m, int64_t n, int64_t width, const S* sums) {
  int64_t j = 0;
  for (; j + W <= width; j += W) epi(row, m, n + j, W, load(sums + j));
  if (j < width) epi(row, m, n + j, static_cast<int>(width - j), load(sums + j));
}

// Hands a tile of `count` rows from m on, columns [n.begin, n.end), to the epilogue.
template <class Source, class Epi, class S>
HT_INLINE void finish_rows(const Source& source, const Epi& epi, int64_t batch, int64_t m, int count, Range n,
                           const S* tile, int64_t ld) {
  const int64_t n0 = source.epilogue_column(batch) + n.begin, width = n.end - n.begin;
  for (int r = 0; r < count; r++) {
    const int64_t out = source.epilogue_row(m + r);
    finish_row(epi, epi.row(source.epilogue_batch(batch), out), out, n0, width, tile + r * ld);
  }
}

// So many product rows from some row on whose places in the result follow each other from `out` on; -1: they have none.
struct RowRun {
  int64_t out;
  int count;
};

// Rows of a block of tiles whose places follow each other, from m on: columns [n, n + width). Not inlined: the loop of tiles
// around it keeps its registers.
template <class Epi, class S>
__attribute__((noinline)) void finish_part(const Epi& shared_epi, int64_t batch, int64_t m, int64_t n, int count,
                                           int width, const S* tile, int64_t ld) {
  const Epi epi = shared_epi;  // as in run_unit
  for (int r = 0; r < count; r++) finish_row(epi, epi.row(batch, m + r), m + r, n, width, tile + r * ld);
}

// The same of a whole panel: a loop over a row's vectors would take as long as they do.
template <class Epi, class S>
__attribute__((noinline)) void finish_panel(const Epi& shared_epi, int64_t batch, int64_t m, int64_t n, int count,
                                            const S* tile, int64_t ld) {
  const Epi epi = shared_epi;
  for (int r = 0; r < count; r++, tile += ld) {
    const auto row = epi.row(batch, m + r);
    HT_UNROLL_ALL
    for (int v = 0; v < kPanel; v += W) epi(row, m + r, n + v, W, load(tile + v));
  }
}

namespace detail {

// Vectors of the microkernel of the full height.
constexpr int kTallVectors = micro_vectors(kMaxRows);

// As micro, of all of k; the epilogue gets the sums, of S. NV vectors a row, of which the last has `last` columns.
template <int NV, class S, class Epi, class A, class B>
__attribute__((noinline)) void micro_finish(const Epi& shared_epi, const TileAt& shared_at, int last,
                                            const TapsOf<A>& s, const B* b) {
  Sums<kMaxRows, NV, S> sums;
  sums.clear();
  multiply_taps(sums, s, b);
  sums.complete();
  const Epi epi = shared_epi;  // as in run_unit
  const TileAt at = shared_at;
  HT_UNROLL_ALL
  for (int r = 0; r < kMaxRows; r++) {
    const int64_t m = at.m + r;
    const auto row = epi.row(at.batch, m);
    HT_UNROLL_ALL
    for (int v = 0; v < NV - 1; v++) epi(row, m, at.n + v * W, W, sums.acc[r][v]);
#if defined(HT_AVX512)
    epi.part(row, m, at.n + (NV - 1) * W, last, sums.acc[r][NV - 1]);  // masked: code for whole ones would gain 1%
#else
    static_cast<void>(last);
    epi(row, m, at.n + (NV - 1) * W, W, sums.acc[r][NV - 1]);
#endif
  }
}

}  // namespace detail

// Whether T is multiplied by microkernels in tiles of the full height, and as what is summed, which 16 bits may not be.
#if defined(HT_TILES)
template <class T>
constexpr bool kTallTiles = same<T, float>;
#else
template <class T>
constexpr bool kTallTiles = same<T, float> || reads_pairs_in_place<T> || same<typename SumOf<T>::type, int32_t>;
#endif

// Whether microkernels are compiled that end with the epilogue.
template <class T, class Epi>
constexpr bool kFinishesSums =
    kTallTiles<T> && !Epi::kOneRow && Epi::kOperations <= kShortEpilogue<typename SumOf<T>::type>;

// Whether microkernels can finish so many columns of a panel: any with AVX-512, whose parts of vectors are masked and take
// no longer; elsewhere whole vectors, all of a microkernel's or half.
constexpr bool ends_in_registers(int columns) {
#if defined(HT_AVX512)
  static_cast<void>(columns);
  return true;
#else
  return columns % (detail::kTallVectors / 2 * W) == 0;
#endif
}

// kMaxRows rows times the first `columns` columns of a panel, to the epilogue.
template <class Source, class Epi, class A, class B>
HT_INLINE void finish_tile(const Source& source, const Epi& epi, const TileAt& at, int columns, const TapsOf<A>& s,
                           const B* b) {
  using S = typename SumOf<typename Source::Element>::type;
  constexpr int NV = detail::kTallVectors;
  const int64_t batch = source.epilogue_batch(at.batch), m = source.epilogue_row(at.m);
  const int64_t n = source.epilogue_column(at.batch) + at.n;
  for (int c = 0; c < columns; c += NV * W) {
    const TileAt here = {batch, m, n + c};
    const int left = columns - c, last = (left - 1) % W + 1;
    if (left > NV / 2 * W) detail::micro_finish<NV, S>(epi, here, left < NV * W ? last : W, s, b + c);
    else detail::micro_finish<NV / 2, S>(epi, here, last, s, b + c);
  }
}

}  // namespace ht

#endif  // HARDTACK_TEMPLATES_FINISH_H
