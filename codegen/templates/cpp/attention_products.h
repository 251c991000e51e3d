// The two products of attention, of a tile of query rows with a block of keys: scores, and weights times values.
//
// Keys and values are packed as the microkernels want B (micro.h, half.h): keys transposed, values as they lie. A few
// rows do not outweigh that, and read them in place. Weights of packed pairs are bf16, those of the others float.
#ifndef HARDTACK_TEMPLATES_ATTENTION_PRODUCTS_H
#define HARDTACK_TEMPLATES_ATTENTION_PRODUCTS_H

#include "attention_task.h"
#include "pack.h"
#include "transpose.h"

namespace ht {
namespace detail {

constexpr int kDotRows = 3;  // up to so many rows, keys are read in place and packing does not pay

// Up to so many rows, values of whole panels are read in place: one tile of rows reads every value once.
template <class T>
constexpr int64_t value_rows = multiplies_pairs<T> ? kFewRows : kMaxRows;

// A run of keys, and how it is multiplied with.
struct KeyBlock {
  int64_t first, count;
  bool keys_packed, values_packed;
  bool tiled;
};

template <class T>
HT_INLINE KeyBlock key_block(const AttentionTask<T>& t, int64_t first) {
  return {first, least(kKeyBlock, t.a->tk - first), t.rows > kDotRows, t.rows > value_rows<T> || t.a->dv % kPanel != 0,
          has_tiles<T> && t.rows > kFewRows};
}

// W elements of a key from i on.
template <class T>
HT_INLINE vec<float> whole_key_elements(const T* key, int64_t i) {
  if constexpr (multiplies_pairs<T>) {
    return bit_copy<vec<float>>(load_pairs(reinterpret_cast<const bf16x2*>(key + 2 * i)));
  } else {
    return load(key + i);
  }
}

// The same where a key may end, as they are packed; those past d numbers are zero.
template <class T>
HT_INLINE vec<float> key_elements(const T* key, int64_t i, int64_t d) {
  if constexpr (multiplies_pairs<T>) {
    return bit_copy<vec<float>>(load_pairs_n(key + 2 * i, d - 2 * i));
  } else {
    return d - i >= W ? load(key + i) : load_n(key + i, static_cast<int>(d - i));
  }
}

// kt[panel][i][lane] = element i of key first + panel * kPanel + lane; lanes past the last key are 0.
template <class T>
inline void pack_keys(const AttentionTask<T>& t, const KeyBlock& block) {
  const int64_t d = t.a->d, numel = staged_numel<T>(d), stride = t.k_stride, count = block.count;
  for (int64_t j = 0; j < count; j += W) {
    Staged<T>* to = t.kt + j / kPanel * kPanel * numel + j % kPanel;
    const int lanes = static_cast<int>(least(W, count - j));
    for (int64_t i = 0; i < numel; i += W) {
      const int64_t n = least(W, numel - i);
      vec<float> tile[W];
      HT_UNROLL_ALL
      for (int r = 0; r < W; r++)
        tile[r] = r < lanes ? key_elements(t.k + (j + r) * stride, i, d) : vec<float>{};
      transpose(tile);
      if (n == W) {
        HT_UNROLL_ALL
        for (int r = 0; r < W; r++) __builtin_memcpy(to + (i + r) * kPanel, &tile[r], sizeof(tile[r]));
      } else {
        for (int r = 0; r < n; r++) __builtin_memcpy(to + (i + r) * kPanel, &tile[r], sizeof(tile[r]));
      }
    }
  }
  // The rest of the last panel: its scores are not used, but they must not be NaN times nothing.
  for (int64_t j = ceil_div(count, W) * W; j % kPanel != 0; j += W) {
    Staged<T>* to = t.kt + j / kPanel * kPanel * numel + j % kPanel;
    for (int64_t i = 0; i < numel; i++) __builtin_memset(to + i * kPanel, 0, W * sizeof(*to));
  }
}

// vp[panel][key][lane] = v[first + key][panel * kPanel + lane], in pairs of keys where pairs are multiplied; lanes past
// dv are 0.
template <class T>
inline void pack_values(const AttentionTask<T>& t, const KeyBlock& block) {
  const int64_t stride = t.v_stride, rows = staged_numel<T>(block.count);
  const T* from = t.v;
  if constexpr (multiplies_pairs<T>) {
    for (int64_t c = 0; c < t.columns; c += kPanel)
      pack_panel(t.vp + c * rows, from + c, stride, 1, block.count, least(kPanel, t.a->dv - c));
  } else {
    // By vectors: the general copy is 1 or 2% of the whole slower, a call for each row.
    for (int64_t c = 0; c < t.columns; c += W) {
      float* to = t.vp + c / kPanel * kPanel * rows + c % kPanel;
      const int n = static_cast<int>(most(0, least(W, t.a->dv - c)));
      for (int64_t j = 0; j < rows; j++)
        store(to + j * kPanel, n == W ? load(from + j * stride + c) : load_n(from + j * stride + c, n));
    }
  }
}

// acc + n elements of a query times those of a key, lane by lane.
HT_INLINE vec<float> add_products(vec<float> acc, const float* q, vec<float> key, int n) {
  return fma(n == W ? load(q) : load_n(q, n), key, acc);
}
#if defined(HT_BF16_PAIRS)
HT_INLINE vec<float> add_products(vec<float> acc, const bf16x2* q, vec<float> key, int n) {
  const vec<uint32_t> pairs = load_pairs_n(&q->even, 2 * n);
  return dot_pair(acc, pairs, bit_copy<vec<uint32_t>>(key));
}
#endif

// Scores of MR rows with the first `used` keys of the block, in place.
template <int MR, class T>
inline void score_dots(const AttentionTask<T>& t, int64_t used) {
  const int64_t d = t.a->d, stride = t.k_stride, numel = staged_numel<T>(d);
  const int64_t whole = (multiplies_pairs<T> ? d / 2 : d) / W * W;
  const int left = static_cast<int>(numel - whole);
  const T* keys = t.k;
  for (int64_t j = 0; j < used; j++, keys += stride) {
    vec<float> acc[MR] = {};
    for (int64_t i = 0; i < whole; i += W) {
      const vec<float> key = whole_key_elements(keys, i);
      for (int r = 0; r < MR; r++) acc[r] = add_products(acc[r], t.row[r].q + i, key, W);
    }
    if (left > 0) {
      const vec<float> key = key_elements(keys, whole, d);
      for (int r = 0; r < MR; r++) acc[r] = add_products(acc[r], t.row[r].q + whole, key, left);
    }
    for (int r = 0; r < MR; r++) t.scores[r * t.ld + j] = hsum(acc[r]);
  }
}

// scores[r * ld + j] = row r of the tile . key j, for the first `used` keys of the block; whole panels are written.
template <class T>
inline void score_rows(const AttentionTask<T>& t, const KeyBlock& block, int64_t row, int mr, int64_t used) {
  if (!block.keys_packed) {
    if (mr == 1) return score_dots<1>(t, used);
    if (mr == 2) return score_dots<2>(t, used);
    return score_dots<kDotRows>(t, used);
  }
  const Staged<T>* q[kMaxRows];
  for (int r = 0; r < mr; r++) q[r] = t.row[row + r].q;
  const int64_t zero = 0, numel = staged_numel<T>(t.a->d);
  const TapsOf<Staged<T>> taps = {q, &zero, 1, numel, kPanel};
  for (int64_t j = 0; j < used; j += kPanel) {
    const int columns = static_cast<int>(least(kPanel, used - j));
    micro_tile(mr, taps, t.kt + j * numel, t.scores + j, t.ld, columns, false);
  }
}

// o[row..] += the tile's weights times the first `used` values of the block, by panels at `values`.
template <class T, class A, class B>
inline void add_panels(const AttentionTask<T>& t, const KeyBlock& block, int64_t row, int mr, int64_t used,
                       const B* values, int64_t panel_step, int64_t ldb) {
  const A* w[kMaxRows];
  for (int r = 0; r < mr; r++) w[r] = reinterpret_cast<const A*>(t.scores + r * t.ld);
  const int64_t zero = 0;
  const TapsOf<A> taps = {w, &zero, 1, same<A, float> ? used : staged_numel<T>(used), ldb};
  for (int64_t c = 0; c < t.a->dv; c += kPanel, values += panel_step) {
    const int columns = static_cast<int>(least(kPanel, t.a->dv - c));
    micro_tile(mr, taps, values, t.o + row * t.columns + c, t.columns, columns, block.first > 0);
  }
}

template <class T>
inline void add_values(const AttentionTask<T>& t, const KeyBlock& block, int64_t row, int mr, int64_t used) {
  const int64_t numel = staged_numel<T>(block.count);
  if (block.values_packed) return add_panels<T, Staged<T>>(t, block, row, mr, used, t.vp, numel * kPanel, kPanel);
  add_panels<T, float>(t, block, row, mr, used, t.v, kPanel, t.v_stride);
}

#if defined(HT_TILES)
// Both by tiles: up to kBlockRows rows.
inline void score_rows(const AttentionTask<bf16>& t, Tiles& tiles, int64_t row, int count, int64_t used) {
  const int64_t zero = 0, pairs = staged_numel<bf16>(t.a->d);
  const TapRows rows = tap_rows(t.row[row].q, query_step<bf16>(t.a->d));
  const TileTaps taps = {&zero, 1, pairs};
  Ahead nothing;
  for (int64_t j = 0; j < used; j += kPanel) {
    const int columns = static_cast<int>(least(kPanel, used - j));
    tile_block(tiles, count, &rows, taps, t.kt + j * pairs, t.scores + j, t.ld, columns, false, nothing);
  }
}

inline void add_values(const AttentionTask<bf16>& t, const KeyBlock& block, Tiles& tiles, int64_t row, int count,
                       int64_t used) {
  const int64_t zero = 0, pairs = staged_numel<bf16>(block.count);
  const TapRows rows = tap_rows(reinterpret_cast<const bf16x2*>(t.scores), t.ld);
  const TileTaps taps = {&zero, 1, staged_numel<bf16>(used)};
  Ahead nothing;
  for (int64_t c = 0; c < t.a->dv; c += kPanel) {
    const int columns = static_cast<int>(least(kPanel, t.a->dv - c));
    float* o = t.o + row * t.columns + c;
    tile_block(tiles, count, &rows, taps, t.vp + c * pairs, o, t.columns, columns, block.first > 0, nothing);
  }
}
#endif

}  // namespace detail
}  // namespace ht

#endif  // HARDTACK_TEMPLATES_ATTENTION_PRODUCTS_H
