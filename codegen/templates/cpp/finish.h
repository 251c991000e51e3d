// How the sums of a tile come to the epilogue (blocks.h): from the worker's workspace, row by row, or as the microkernel
// ends, from its registers.
//
// Where k is short, storing sums and loading them again is a fifth of a tile's time, and the stores stand in the queue in
// front of the results'. A microkernel with an epilogue is compiled for each kernel: this is for tiles of the full height
// and for short epilogues only, of which two dozen copies cost little.
#ifndef HARDTACK_TEMPLATES_FINISH_H
#define HARDTACK_TEMPLATES_FINISH_H

#include "micro.h"

namespace ht {

// The most operations for an element (Epi::kOperations) of an epilogue that microkernels end with.
constexpr int kShortEpilogue = 16;

// Where a tile begins, as its source counts.
struct TileAt {
  int64_t batch, m, n;
};

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

namespace detail {

// Vectors of the microkernel of the full height.
constexpr int kTallVectors = micro_vectors(kMaxRows);

// The same of sums in registers: NV vectors a row, of which the last has `last` columns.
template <int NV, class Source, class Epi>
HT_INLINE void finish_sums(const Source& source, const Epi& epi, const TileAt& at, int last,
                           const Sums<kMaxRows, NV>& sums) {
  const int64_t batch = source.epilogue_batch(at.batch), n = source.epilogue_column(at.batch) + at.n;
  HT_UNROLL_ALL
  for (int r = 0; r < kMaxRows; r++) {
    const int64_t out = source.epilogue_row(at.m + r);
    const auto row = epi.row(batch, out);
    HT_UNROLL_ALL
    for (int v = 0; v < NV; v++) epi(row, out, n + v * W, v < NV - 1 ? W : last, sums.acc[r][v]);
  }
}

// As micro, of a tile's last k block. `last` as above.
template <int NV, class Source, class Epi, class A, class B>
__attribute__((noinline)) void micro_finish(const Source& source, const Epi& shared_epi, const TileAt& at, int last,
                                            const TapsOf<A>& s, const B* b, const float* tile, int64_t ld,
                                            bool resume) {
  Sums<kMaxRows, NV> sums;
  sums.start(tile, ld, resume);
  multiply_taps(sums, s, b);
  const Epi epi = shared_epi;  // as in run_unit
  if (last == W) return finish_sums(source, epi, at, W, sums);
  if (last > W) __builtin_unreachable();
  finish_sums(source, epi, at, last, sums);
}

}  // namespace detail

// Whether so many columns of a panel can be finished from registers: all with AVX-512, whose parts of vectors are masked
// and take no longer; elsewhere whole vectors, all of a microkernel's or half.
constexpr bool ends_in_registers(int columns) {
#if defined(HT_AVX512)
  static_cast<void>(columns);
  return true;
#else
  return columns % (detail::kTallVectors / 2 * W) == 0;
#endif
}

// A tile's last k block, kMaxRows rows times the first `columns` columns of a panel, to the epilogue; resume: with the
// sums in `tile`.
template <class Source, class Epi, class A, class B>
HT_INLINE void finish_tile(const Source& source, const Epi& epi, const TileAt& at, int columns, const TapsOf<A>& s,
                           const B* b, const float* tile, int64_t ld, bool resume) {
  constexpr int NV = detail::kTallVectors;
  for (int c = 0; c < columns; c += NV * W) {
    const TileAt here = {at.batch, at.m, at.n + c};
    const int left = columns - c, last = static_cast<int>(least(W, (left - 1) % W + 1));
    if (left > NV / 2 * W)
      detail::micro_finish<NV>(source, epi, here, left < NV * W ? last : W, s, b + c, tile + c, ld, resume);
    else
      detail::micro_finish<NV / 2>(source, epi, here, last, s, b + c, tile + c, ld, resume);
  }
}

}  // namespace ht

#endif  // HARDTACK_TEMPLATES_FINISH_H
