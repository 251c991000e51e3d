// The matrix multiplication microkernel that gemm.h and conv.h share.
//
// It multiplies up to kMaxRows rows, each given by pointers, with one panel of packed weights (of float here, of 16-bit
// numbers in half.h, of int8, summed as int32, in int8.h) and leaves the sums in a tile in memory. A panel holds kPanel
// columns: panel[k * kPanel + column]. The k axis is a list of taps of kc consecutive elements: a GEMM has one tap, a
// convolution one for each filter position, so that one microkernel serves both.
//
// Every sum runs over k in ascending order in one accumulator, whatever the blocking: results do not depend on how the
// work is cut, and a partial sum that is stored and taken up again loses nothing.
#ifndef HARDTACK_TEMPLATES_MICRO_H
#define HARDTACK_TEMPLATES_MICRO_H

#include "simd.h"
#include "workspace.h"

#if defined(__clang__)
#define HT_UNROLL_2 _Pragma("clang loop unroll_count(2)")
#define HT_UNROLL_NOT _Pragma("clang loop unroll(disable)")
#define HT_UNROLL_ALL _Pragma("clang loop unroll(full)")
#else
#define HT_UNROLL_2 _Pragma("GCC unroll 2")
#define HT_UNROLL_NOT _Pragma("GCC unroll 1")
#define HT_UNROLL_ALL _Pragma("GCC unroll 16")  // g++ needs it to keep the accumulators in registers
#endif

namespace ht {

// Rows of the tallest microkernel: with two vectors a row, the accumulators and operands fill the register file.
#if defined(HT_AVX512)
constexpr int kMaxRows = 12;
#else
constexpr int kMaxRows = 6;
#endif
static_assert(kMaxRows <= kMostRows, "workspaces have room for the tallest tile");

// Vectors of W columns that a microkernel of mr rows computes at once. Low tiles take a whole panel row, so that B
// streams through once; AVX2 has registers for 6 x 2 accumulators, NEON for 6 x 4.
constexpr int micro_vectors(int mr) {
#if defined(HT_AVX512)
  return mr <= kMaxRows ? 2 : 0;
#elif defined(HT_NEON)
  return mr <= 3 ? 8 : 4;
#else
  return mr <= 3 ? 4 : 2;
#endif
}

constexpr int kFewRows = 4;  // products of up to so many rows are bound by how fast B arrives

// What a tile is multiplied with: rows of A.
template <class A>
struct TapsOf {
  const A* const* rows;      // rows[t * mr + r]: the first element of row r under tap t
  const int64_t* b_offset;   // b_offset[t]: where tap t starts in a panel, in elements
  int64_t taps;
  int64_t kc;                // elements of a tap
  int64_t ldb;               // elements from one k to the next: kPanel for packed weights
  bool half_pair = false;    // of pairs: rows have only the even element of a tap's last one (half.h)
};
using MicroTaps = TapsOf<float>;

// What products of T are summed as. A tile has four bytes for each sum, whichever it is.
template <class T>
struct SumOf {
  using type = float;
};

// The sums of MR rows and NV * W columns, in registers.
template <int MR, int NV, class S>
struct SumsOf {
  vec<S> acc[MR][NV];

  HT_MEMBER void clear() {
    HT_UNROLL_ALL
    for (int r = 0; r < MR; r++)
      HT_UNROLL_ALL
      for (int v = 0; v < NV; v++) acc[r][v] = vec<S>{};
  }
  HT_MEMBER void start(const S* tile, int64_t ld, bool resume) {
    clear();
    if (!resume) return;
    HT_UNROLL_ALL
    for (int r = 0; r < MR; r++)
      HT_UNROLL_ALL
      for (int v = 0; v < NV; v++) acc[r][v] = load(tile + r * ld + v * W);
  }
  HT_MEMBER void complete() {}  // behind the last product: int8.h has sums that are too large until then
  HT_MEMBER void finish(S* tile, int64_t ld) const {
    HT_UNROLL_ALL
    for (int r = 0; r < MR; r++)
      HT_UNROLL_ALL
      for (int v = 0; v < NV; v++) store(tile + r * ld + v * W, acc[r][v]);
  }
};
template <int MR, int NV, class S = float>
struct Sums : SumsOf<MR, NV, S> {};

// Elements of a column of B that are asked for ahead of their use: kAhead of k.
template <class B>
constexpr int64_t kElementsAhead = kAhead;

// k that an element of B has: one, or some that are neighbours.
template <class B>
constexpr int64_t kDepthOf = 1;

// Asks for the lines of NV * W columns at b: hardware prefetchers end at pages, of which a panel row is a part.
template <int NV, class B>
HT_INLINE void prefetch_columns(const B* b) {
  constexpr int step = 64 / (static_cast<int>(sizeof(B)) * W);  // vectors in a line
  HT_UNROLL_ALL
  for (int v = 0; v < NV; v += step > 0 ? step : 1) __builtin_prefetch(b + v * W);
}

// One k: the sums take a[r][k] times the columns at b. B is float, or a type that is loaded as float; half.h has those of
// which an element stands for two k.
template <int MR, int NV, class B>
HT_INLINE void multiply_step(Sums<MR, NV>& sums, const float* const (&a)[MR], int64_t k, const B* b) {
  vec<float> bv[NV];
  HT_UNROLL_ALL
  for (int v = 0; v < NV; v++) bv[v] = load(b + v * W);
  HT_UNROLL_ALL
  for (int r = 0; r < MR; r++) {
    const vec<float> x = bcast(a[r][k]);
    HT_UNROLL_ALL
    for (int v = 0; v < NV; v++) sums.acc[r][v] = fma(x, bv[v], sums.acc[r][v]);
  }
}

// The last element of rows that lie in pairs and are odd: half.h. Other rows have none.
template <int MR, int NV, class S, class A, class B>
HT_INLINE void multiply_half_pair(Sums<MR, NV, S>&, const A* const (&)[MR], int64_t, const B*) {}

// Adds the products of all taps, k by k. kc and ldb count what an element of B has: one k, a pair, or four. Small steps are taken
// two at once; with large ones that would gain nothing, and the code be a third longer.
template <int MR, int NV, class S, class A, class B>
HT_INLINE void multiply_taps(Sums<MR, NV, S>& sums, const TapsOf<A>& s, const B* b_panel) {
  const int64_t kc = s.kc - (s.half_pair ? 1 : 0), ldb = s.ldb, ahead = kElementsAhead<B> * s.ldb;
  for (int64_t t = 0; t < s.taps; t++) {
    const A* a[MR];
    HT_UNROLL_ALL
    for (int r = 0; r < MR; r++) a[r] = s.rows[t * MR + r];
    const B* b = b_panel + s.b_offset[t];
    const auto step = [&](int64_t k) {
      multiply_step(sums, a, k, b);
      prefetch_columns<NV>(b + ahead);
      b += ldb;
    };
    if constexpr (MR * NV <= 12) {
      HT_UNROLL_2
      for (int64_t k = 0; k < kc; k++) step(k);
    } else {
      HT_UNROLL_NOT
      for (int64_t k = 0; k < kc; k++) step(k);
    }
    if (s.half_pair) multiply_half_pair(sums, a, kc, b);
  }
}

// tile[r * ld + c] (+)= sum over taps and k of row r times column c, for MR rows and NV * W columns.
template <int MR, int NV, class A, class B, class S>
__attribute__((noinline)) void micro(const TapsOf<A>& s, const B* b_panel, S* tile, int64_t ld, bool resume) {
  Sums<MR, NV, S> sums;
  sums.start(tile, ld, resume);
  multiply_taps(sums, s, b_panel);
  sums.complete();
  sums.finish(tile, ld);
}

// The first `columns` columns (1..kPanel) of an MR-row tile, in as many microkernels as the registers ask for. Whole
// vectors are written: up to kPanel columns of the tile.
template <int MR, class A, class B, class S>
HT_INLINE void micro_columns(const TapsOf<A>& s, const B* b, S* tile, int64_t ld, int columns, bool resume) {
  constexpr int NV = micro_vectors(MR);
  int c = 0;
  for (; c + NV / 2 * W < columns; c += NV * W) micro<MR, NV>(s, b + c, tile + c, ld, resume);
  if (c < columns) micro<MR, NV / 2>(s, b + c, tile + c, ld, resume);
}

// body(Height<mr>) for a height known at run time, 1..kMaxRows.
template <int MR>
struct Height {
  static constexpr int value = MR;
};
template <class Body>
HT_INLINE void with_height(int mr, const Body& body) {
  switch (mr) {
    case 1: return body(Height<1>{});
    case 2: return body(Height<2>{});
    case 3: return body(Height<3>{});
    case 4: return body(Height<4>{});
    case 5: return body(Height<5>{});
    case 6: return body(Height<6>{});
#if defined(HT_AVX512)
    case 7: return body(Height<7>{});
    case 8: return body(Height<8>{});
    case 9: return body(Height<9>{});
    case 10: return body(Height<10>{});
    case 11: return body(Height<11>{});
    case 12: return body(Height<12>{});
#endif
  }
}

template <class A, class B, class S>
HT_INLINE void micro_rows(int mr, const TapsOf<A>& s, const B* b, S* tile, int64_t ld, int columns, bool resume) {
  with_height(mr, [&](auto height) { micro_columns<decltype(height)::value>(s, b, tile, ld, columns, resume); });
}

// The same for a height known at run time, 1..kMaxRows. It is defined in micro.cpp, which the toolchain adds to every
// library whose kernels include this header: compiled once, not once a kernel.
void micro_tile(int mr, const MicroTaps& s, const float* b, float* tile, int64_t ld, int columns, bool resume);

}  // namespace ht

#endif  // HARDTACK_TEMPLATES_MICRO_H
