// Scaled dot product attention without a score matrix: out = softmax(scale * q k^T + mask) v, computed in float. Of 16-bit
// numbers, keys and values are packed as float, and a task has a copy of its queries.
//
// A task is a block of query rows of one head, or, where there are few queries, of all the heads that share a key head.
// It walks the keys in blocks of kKeyBlock. Keys are packed transposed, so that the GEMM microkernel gives a tile of
// scores; the softmax is kept as a running maximum and sum for each row, and the output so far is scaled down whenever
// the maximum grows (the online softmax of Milakov and Gimelshein, 2018). A row's arithmetic depends on the shapes alone,
// not on the number of threads.
//
// Rows that may attend to nothing give 0, as torch's kernels and its safe softmax do.
#ifndef HARDTACK_TEMPLATES_ATTENTION_H
#define HARDTACK_TEMPLATES_ATTENTION_H

#include "half.h"
#include "micro.h"
#include "parallel.h"
#include "simd.h"
#include "transpose.h"
#include "vmath_exp.h"
#include "workspace.h"

namespace ht {

constexpr int kDotRows = 3;  // up to so many rows, keys are read in place and packing does not pay
static_assert(kKeyBlock % kPanel == 0 && kQueryBlock % kMaxRows == 0, "blocks are whole tiles");

enum class MaskKind { kNone, kAdd, kKeep, kAddFloat };  // kAdd: added, of q's type; kAddFloat: of float; kKeep: bool bytes, false excludes the key

// q [batch, heads, tq, d], k [batch, kv_heads, tk, d], v [batch, kv_heads, tk, dv]: strides in elements for all but the
// last axis, which is dense. The mask is broadcast by strides of 0. heads is a multiple of kv_heads.
template <class T>
struct Attention {
  int64_t batch, heads, kv_heads, tq, tk, d, dv;
  const T* q;
  int64_t q_strides[3];
  const T* k;
  int64_t k_strides[3];
  const T* v;
  int64_t v_strides[3];
  MaskKind mask_kind;
  const void* mask;
  int64_t mask_strides[4];
  bool causal;  // key j is seen by query i when j <= i, as torch's is_causal (top left)
  float scale;
};

// Writes to a tensor with strides for batch, head and query, dense in its last axis.
template <class T>
struct StridedOutput {
  T* out;
  int64_t strides[3];
  HT_MEMBER void operator()(int64_t batch, int64_t head, int64_t query, int64_t column, vec<float> value, int n) const {
    store_n(out + batch * strides[0] + head * strides[1] + query * strides[2] + column, value, n);
  }
};

template <class T>
HT_INLINE StridedOutput<T> strided_output(T* out, int64_t batch, int64_t head, int64_t query) {
  return {out, {batch, head, query}};
}

namespace detail {

// How the rows of a batch element fall into tasks.
struct AttentionPlan {
  bool shared;       // a unit is all heads of one key head, otherwise one head
  int64_t units;     // of a batch element
  int64_t rows;      // of a unit
  int64_t blocks;    // of a unit
  int64_t block;     // rows of a block
};

template <class T>
HT_INLINE AttentionPlan attention_plan(const Attention<T>& a) {
  AttentionPlan p;
  p.shared = a.heads != a.kv_heads && a.tq < kMaxRows;
  p.units = p.shared ? a.kv_heads : a.heads;
  p.rows = p.shared ? a.heads / a.kv_heads * a.tq : a.tq;
  p.blocks = (p.rows + kQueryBlock - 1) / kQueryBlock;
  const int64_t even = (p.rows + p.blocks - 1) / (p.blocks > 0 ? p.blocks : 1);
  p.block = (even + kMaxRows - 1) / kMaxRows * kMaxRows;
  if (p.block > kQueryBlock) p.block = kQueryBlock;
  return p;
}

// One row of queries: which one, and where it lies.
struct QueryRow {
  const float* q;
  const char* mask;  // for key 0
  int64_t head, query;
};

template <class T>
struct AttentionTask {
  const Attention<T>* a;
  int64_t batch, kv_head;
  const T *k, *v;  // for key 0
  int64_t rows;
  QueryRow row[kQueryBlock];
  float *kt, *vp, *p, *o, *peak, *sum;  // packed keys and values, scores, output, running maximum and sum
  int64_t columns;                      // ceil32(dv)
};

template <class T>
HT_INLINE int64_t key_limit(const AttentionTask<T>& t, int64_t row) {
  const Attention<T>& a = *t.a;
  const int64_t seen = t.row[row].query + 1;
  return a.causal && seen < a.tk ? seen : a.tk;
}

// A query as float: in place, or copied.
HT_INLINE const float* query_row(const float* q, float*, int64_t) { return q; }
template <class T>
HT_INLINE const float* query_row(const T* q, float* copy, int64_t d) {
  copy_row(copy, q, d);
  return copy;
}

template <class T>
inline void set_up(AttentionTask<T>& t, const Attention<T>& a, const AttentionPlan& plan, int64_t index, float* work) {
  t.a = &a;
  const int64_t block = index % plan.blocks, unit = index / plan.blocks % plan.units;
  t.batch = index / plan.blocks / plan.units;
  const int64_t group = a.heads / a.kv_heads;
  t.kv_head = plan.shared ? unit : unit / group;
  t.k = a.k + t.batch * a.k_strides[0] + t.kv_head * a.k_strides[1];
  t.v = a.v + t.batch * a.v_strides[0] + t.kv_head * a.v_strides[1];
  const int64_t first = block * plan.block;
  const int64_t left = plan.rows - first;
  t.rows = left < plan.block ? (left < 0 ? 0 : left) : plan.block;
  const int64_t mask_nbytes = a.mask_kind == MaskKind::kAdd ? static_cast<int64_t>(sizeof(T))
                             : a.mask_kind == MaskKind::kAddFloat ? 4 : 1;
  float* queries = work + attention_numel(a.tk, a.d, a.dv);  // of 16-bit numbers
  for (int64_t r = 0; r < t.rows; r++) {
    const int64_t head = plan.shared ? unit * group + (first + r) / a.tq : unit;
    const int64_t query = plan.shared ? (first + r) % a.tq : first + r;
    const int64_t at = t.batch * a.mask_strides[0] + head * a.mask_strides[1] + query * a.mask_strides[2];
    const T* q = a.q + t.batch * a.q_strides[0] + head * a.q_strides[1] + query * a.q_strides[2];
    t.row[r] = {query_row(q, queries + r * a.d, a.d),
                a.mask_kind == MaskKind::kNone ? nullptr : static_cast<const char*>(a.mask) + at * mask_nbytes, head,
                query};
  }
  t.columns = panels_of(a.dv) * kPanel;
  t.kt = work;
  t.vp = t.kt + packed_keys_numel(a.tk, a.d);
  t.p = t.vp + packed_values_numel(a.tk, a.dv);
  t.o = t.p + scores_numel(a.tk);
  t.peak = t.o + query_rows_numel(a.dv);
  t.sum = t.peak + kQueryBlock;
}

// kt[panel][i][lane] = k[first + panel * kPanel + lane][i]; lanes past the last key are 0.
template <class T>
inline void pack_keys(const AttentionTask<T>& t, int64_t first, int64_t count) {
  const int64_t d = t.a->d, stride = t.a->k_strides[2];
  for (int64_t j = 0; j < count; j += W) {
    float* to = t.kt + j / kPanel * kPanel * d + j % kPanel;
    const int lanes = static_cast<int>(count - j < W ? count - j : W);
    for (int64_t i = 0; i < d; i += W) {
      const int n = static_cast<int>(d - i < W ? d - i : W);
      vec<float> tile[W];
#pragma GCC unroll 16
      for (int r = 0; r < W; r++) {
        const T* from = t.k + (first + j + r) * stride + i;
        tile[r] = r < lanes ? (n == W ? load(from) : load_n(from, n)) : vec<float>{};
      }
      transpose(tile);
      if (n == W) {
#pragma GCC unroll 16
        for (int r = 0; r < W; r++) store(to + (i + r) * kPanel, tile[r]);
      } else {
        for (int r = 0; r < n; r++) store(to + (i + r) * kPanel, tile[r]);
      }
    }
  }
  // The rest of the last panel: its scores are not used, but they must not be NaN times nothing.
  for (int64_t j = (count + W - 1) / W * W; j % kPanel != 0; j += W) {
    float* to = t.kt + j / kPanel * kPanel * d + j % kPanel;
    for (int64_t i = 0; i < d; i++) store(to + i * kPanel, vec<float>{});
  }
}

// vp[panel][key][lane] = v[first + key][panel * kPanel + lane]; lanes past dv are 0.
template <class T>
inline void pack_values(const AttentionTask<T>& t, int64_t first, int64_t count) {
  const int64_t dv = t.a->dv, stride = t.a->v_strides[2];
  for (int64_t c = 0; c < t.columns; c += W) {
    float* to = t.vp + c / kPanel * kPanel * count + c % kPanel;
    const T* from = t.v + first * stride + c;
    const int64_t left = dv - c;
    const int n = static_cast<int>(left < 0 ? 0 : (left < W ? left : W));
    for (int64_t j = 0; j < count; j++) store(to + j * kPanel, n == W ? load(from + j * stride)
                                                                     : load_n(from + j * stride, n));
  }
}

// scores[r * ld + j] = q[row + r] . k[first + j] for j < count
template <class T>
inline void score_tile(const AttentionTask<T>& t, int64_t row, int mr, int64_t count, float* scores, int64_t ld) {
  const float* q[kMaxRows];
  for (int r = 0; r < mr; r++) q[r] = t.row[row + r].q;
  const int64_t zero = 0;
  const MicroTaps taps = {q, &zero, 1, t.a->d, kPanel};
  for (int64_t j = 0; j < count; j += kPanel) {
    const int64_t left = count - j;
    micro_tile(mr, taps, t.kt + j * t.a->d, scores + j, ld, static_cast<int>(left < kPanel ? left : kPanel), false);
  }
}

// The same for a few rows, without packed keys.
template <int MR, class T>
inline void score_dots(const AttentionTask<T>& t, int64_t row, int64_t first, int64_t count, float* scores, int64_t ld) {
  const int64_t d = t.a->d, whole = d / W * W;
  const int n = static_cast<int>(d - whole);
  const T* k = t.k + first * t.a->k_strides[2];
  for (int64_t j = 0; j < count; j++, k += t.a->k_strides[2]) {
    vec<float> acc[MR] = {};
    for (int64_t i = 0; i < whole; i += W) {
      const vec<float> kv = load(k + i);
      for (int r = 0; r < MR; r++) acc[r] = fma(load(t.row[row + r].q + i), kv, acc[r]);
    }
    if (n > 0) {
      const vec<float> kv = load_n(k + whole, n);
      for (int r = 0; r < MR; r++) acc[r] = fma(load_n(t.row[row + r].q + whole, n), kv, acc[r]);
    }
    for (int r = 0; r < MR; r++) scores[r * ld + j] = hsum(acc[r]);
  }
}

template <class T>
HT_INLINE vec<float> masked(const Attention<T>& a, const char* mask, int64_t key, vec<float> s, int n) {
  const int64_t stride = a.mask_strides[3];
  if (a.mask_kind == MaskKind::kAdd) {
    const T* m = reinterpret_cast<const T*>(mask) + key * stride;
    return s + (stride == 1 ? load_n(m, n) : load_strided(m, stride, n));
  }
  if (a.mask_kind == MaskKind::kAddFloat) {
    const float* m = reinterpret_cast<const float*>(mask) + key * stride;
    return s + (stride == 1 ? load_n(m, n) : load_strided(m, stride, n));
  }
  if (a.mask_kind == MaskKind::kKeep) {
    const uint8_t* m = reinterpret_cast<const uint8_t*>(mask) + key * stride;
    const vmask keep = mask_of(stride == 1 ? load_n(m, n) : load_strided(m, stride, n));
    return select(keep, s, bcast(-__builtin_inff()));
  }
  return s;
}

// Turns a row of raw scores into weights e^(score - maximum), 0 from `seen` on, and brings the row's running maximum,
// sum and output up to date. `seen` keys of the block are visible; `count` weights are written.
template <class T>
inline void soften_row(const AttentionTask<T>& t, int64_t row, int64_t first, int64_t seen, int64_t count, float* s) {
  const Attention<T>& a = *t.a;
  const vec<float> scale = bcast(a.scale), none = bcast(-__builtin_inff());
  vec<float> peak = none;
  for (int64_t j = 0; j < seen; j += W) {
    const int n = static_cast<int>(seen - j < W ? seen - j : W);
    vec<float> x = masked(a, t.row[row].mask, first + j, load(s + j) * scale, n);
    if (n < W) x = select(first_n(n), x, none);
    store(s + j, x);
    peak = vmax(peak, x);
  }
  const float before = t.peak[row], here = hmax(peak);
  const float now = (before > here || before != before) ? before : here;
  // Nothing seen yet: any finite reference does, the weights are all e^-infinity.
  const vec<float> reference = bcast(now == -__builtin_inff() ? 0.0f : now);
  vec<float> sum{};
  int64_t j = 0;
  for (; j < seen; j += W) {
    const vec<float> w = vexp_nonpositive(load(s + j) - reference);
    store(s + j, w);
    sum += w;
  }
  for (; j < count; j += W) store(s + j, vec<float>{});
  float* o = t.o + row * t.columns;
  if (first > 0 && before != now) {
    const vec<float> factor = vexp_nonpositive(bcast(before) - reference);
    t.sum[row] *= factor[0];
    for (int64_t c = 0; c < t.columns; c += W) store(o + c, load(o + c) * factor);
  }
  t.sum[row] += hsum(sum);
  t.peak[row] = now;
}

// o[row..] += weights . v
template <class T>
inline void add_values(const AttentionTask<T>& t, int64_t row, int mr, int64_t first, int64_t count, const float* weights,
                       int64_t ld, bool packed) {
  const float* w[kMaxRows];
  for (int r = 0; r < mr; r++) w[r] = weights + r * ld;
  const int64_t zero = 0;
  const int64_t stride = t.a->v_strides[2];
  // A block of `keys` keys is packed as panels of keys x kPanel, of which the first `count` rows are used here.
  const MicroTaps taps = {w, &zero, 1, count, packed ? kPanel : stride};
  const int64_t left = t.a->tk - first;
  const int64_t keys = left < kKeyBlock ? left : kKeyBlock;
  for (int64_t c = 0; c < t.columns; c += kPanel) {
    const int64_t left_columns = t.a->dv - c;
    const int n = static_cast<int>(left_columns < kPanel ? left_columns : kPanel);
    float* out = t.o + row * t.columns + c;
    if (packed) micro_tile(mr, taps, t.vp + c * keys, out, t.columns, n, first > 0);
    else micro_tile(mr, taps, t.v + first * stride + c, out, t.columns, n, first > 0);
  }
}

template <class T>
inline void key_block(const AttentionTask<T>& t, int64_t first, int64_t count) {
  const int64_t ld = t.a->tk < kKeyBlock ? (t.a->tk + kPanel - 1) / kPanel * kPanel : kKeyBlock;
  const bool in_place = t.rows <= kDotRows;
  // One tile of rows reads every value once: packing would only add a copy, unless the last panel must be filled up.
  const bool values_packed = t.rows > kMaxRows || t.a->dv % kPanel != 0;
  if (!in_place) pack_keys(t, first, count);
  if (values_packed) pack_values(t, first, count);
  for (int64_t row = 0; row < t.rows; row += kMaxRows) {
    const int64_t left = t.rows - row;
    const int mr = static_cast<int>(left < kMaxRows ? left : kMaxRows);
    int64_t used = 0;  // keys of this block that some row of the tile sees
    for (int r = 0; r < mr; r++) {
      const int64_t seen = key_limit(t, row + r) - first;
      if (seen > used) used = seen < count ? seen : count;
    }
    if (used == 0) continue;
    if (!in_place) {
      score_tile(t, row, mr, used, t.p, ld);
    } else if (mr == 1) {
      score_dots<1>(t, row, first, used, t.p, ld);
    } else if (mr == 2) {
      score_dots<2>(t, row, first, used, t.p, ld);
    } else {
      score_dots<3>(t, row, first, used, t.p, ld);
    }
    for (int r = 0; r < mr; r++) {
      const int64_t seen = key_limit(t, row + r) - first;
      soften_row(t, row + r, first, seen < 0 ? 0 : (seen < used ? seen : used), used, t.p + r * ld);
    }
    add_values(t, row, mr, first, used, t.p, ld, values_packed);
  }
}

template <class T>
inline void attend(const Attention<T>& a, const AttentionPlan& plan, int64_t index, float* work, AttentionTask<T>& t) {
  set_up(t, a, plan, index, work);
  int64_t keys = 0;
  for (int64_t r = 0; r < t.rows; r++) {
    t.peak[r] = -__builtin_inff();
    t.sum[r] = 0;
    const int64_t limit = key_limit(t, r);
    if (limit > keys) keys = limit;
  }
  for (int64_t first = 0; first < keys; first += kKeyBlock) {
    const int64_t left = t.a->tk - first;
    key_block(t, first, left < kKeyBlock ? left : kKeyBlock);
  }
}

template <class T, class Output>
HT_INLINE void emit_rows(const AttentionTask<T>& t, const Output& output) {
  const int64_t dv = t.a->dv;
  for (int64_t r = 0; r < t.rows; r++) {
    const bool empty = t.sum[r] == 0;
    const vec<float> factor = bcast(1.0f / t.sum[r]);
    for (int64_t c = 0; c < dv; c += W) {
      const int n = static_cast<int>(dv - c < W ? dv - c : W);
      const vec<float> value = empty ? vec<float>{} : load(t.o + r * t.columns + c) * factor;
      output(t.batch, t.row[r].head, t.row[r].query, c, value, n);
    }
  }
}

}  // namespace detail

// Computes `a` and hands every W columns of a result row to `output` (StridedOutput, or a functor with its signature
// that fuses what follows). Workspace of a worker: the parts that set_up lays out one behind
// the other, kQueryBlock floats for each of the last two; for 16-bit numbers kQueryBlock * d floats more
template <class T, class Output>
HT_INLINE void attention(const HtKernelArgs* args, const Attention<T>& a, const Output& output) {
  if (a.batch == 0 || a.heads == 0 || a.tq == 0 || a.dv == 0) return;
  const detail::AttentionPlan plan = detail::attention_plan(a);
  parallel_for(args, a.batch * plan.units * plan.blocks, [&](int64_t index, int32_t worker) {
    detail::AttentionTask<T> task;
    detail::attend(a, plan, index, reinterpret_cast<float*>(worker_workspace(args, worker)), task);
    detail::emit_rows(task, output);
  });
}

}  // namespace ht

#endif  // HARDTACK_TEMPLATES_ATTENTION_H
