// What attention is given (Attention), how its rows fall into tasks, and what a task has. What it does: attention.h.
#ifndef HARDTACK_TEMPLATES_ATTENTION_TASK_H
#define HARDTACK_TEMPLATES_ATTENTION_TASK_H

#include "half.h"
#include "parallel.h"
#include "tiles.h"
#include "workspace.h"

namespace ht {

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

namespace detail {

// How products are computed, which the type and the target decide: numbers that are multiplied as float; pairs of bf16;
// or tiles of them, where a task has rows enough.
template <class T>
constexpr bool multiplies_pairs = same<Staged<T>, bf16x2>;
#if defined(HT_TILES)
template <class T>
constexpr bool has_tiles = multiplies_pairs<T>;
constexpr int64_t kRowGrain = kTileRows;
#else
template <class T>
constexpr bool has_tiles = false;
constexpr int64_t kRowGrain = kMaxRows;
#endif
static_assert(kKeyBlock % kPanel == 0 && kQueryBlock % kRowGrain == 0 && kQueryBlock % kMaxRows == 0,
              "blocks are whole tiles");

// Elements of a key or query of d numbers, staged.
template <class T>
constexpr int64_t staged_numel(int64_t d) {
  return multiplies_pairs<T> ? packed_rows<T>(d) : d;
}
// From one staged query to the next: whole tiles, where there are any.
template <class T>
constexpr int64_t query_step(int64_t d) {
  return has_tiles<T> ? ceil_div(d, kGrain) * (kGrain / 2) : staged_numel<T>(d);
}

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
  constexpr int64_t grain = has_tiles<T> ? kRowGrain : kMaxRows;
  AttentionPlan p;
  p.shared = a.heads != a.kv_heads && a.tq < kMaxRows;
  p.units = p.shared ? a.kv_heads : a.heads;
  p.rows = p.shared ? a.heads / a.kv_heads * a.tq : a.tq;
  p.blocks = ceil_div(p.rows, kQueryBlock);
  const int64_t even = ceil_div(p.rows, most(1, p.blocks));
  p.block = least(kQueryBlock, ceil_div(even, grain) * grain);
  return p;
}

// One row of queries: which one, and where it lies.
template <class T>
struct QueryRow {
  const Staged<T>* q;
  const char* mask;  // for key 0
  int64_t head, query;
};

template <class T>
struct AttentionTask {
  const Attention<T>* a;
  int64_t batch, kv_head;
  const T *k, *v;              // of the block's first key, and from one key to the next
  int64_t k_stride, v_stride;
  int64_t rows;
  QueryRow<T> row[kQueryBlock];
  Staged<T> *kt, *vp;              // packed keys and values
  float *o, *peak, *sum, *scores;  // output, running maximum and sum, scores of a tile of rows
  int64_t ld;                      // from one row of scores to the next
  int64_t columns;                 // ceil32(dv)
};

template <class T>
HT_INLINE int64_t key_limit(const AttentionTask<T>& t, int64_t row) {
  const Attention<T>& a = *t.a;
  const int64_t seen = t.row[row].query + 1;
  return a.causal && seen < a.tk ? seen : a.tk;
}

// A query as it is multiplied: in place, or staged at `copy`, the rest of its last tile zero.
template <class T>
HT_INLINE const Staged<T>* query_row(const T* q, Staged<T>* copy, int64_t d) {
  if constexpr (same<T, float>) {
    return q;
  } else if constexpr (multiplies_pairs<T>) {
    stage_row(copy, q, d);
    for (int64_t i = staged_numel<T>(d); i < query_step<T>(d); i++) copy[i] = bf16x2{};
  } else {
    copy_row(copy, q, d);
  }
  return copy;
}

// Where the parts of a worker's workspace lie, one behind the other, and queries of 16-bit numbers behind them.
template <class T>
HT_INLINE Staged<T>* lay_out(AttentionTask<T>& t, float* work) {
  const Attention<T>& a = *t.a;
  float* values = work + packed_keys_numel(a.tk, a.d);
  t.kt = reinterpret_cast<Staged<T>*>(work);
  t.vp = reinterpret_cast<Staged<T>*>(values);
  t.o = values + packed_values_numel(a.tk, a.dv);
  t.peak = t.o + query_rows_numel(a.dv);
  t.sum = t.peak + kQueryBlock;
  t.scores = t.sum + kQueryBlock;
  t.ld = least(kKeyBlock, panels_of(a.tk) * kPanel);
  t.columns = panels_of(a.dv) * kPanel;
  return reinterpret_cast<Staged<T>*>(t.scores + (same<T, float> ? scores_numel(a.tk) : half_scores_numel(a.tk)));
}

template <class T>
inline void set_up(AttentionTask<T>& t, const Attention<T>& a, const AttentionPlan& plan, int64_t index, float* work) {
  t.a = &a;
  const int64_t block = index % plan.blocks, unit = index / plan.blocks % plan.units;
  t.batch = index / plan.blocks / plan.units;
  const int64_t group = a.heads / a.kv_heads;
  t.kv_head = plan.shared ? unit : unit / group;
  const int64_t first = block * plan.block;
  t.rows = most(0, least(plan.block, plan.rows - first));
  const int64_t mask_nbytes = a.mask_kind == MaskKind::kAdd ? static_cast<int64_t>(sizeof(T))
                             : a.mask_kind == MaskKind::kAddFloat ? 4 : 1;
  Staged<T>* const queries = lay_out(t, work);
  for (int64_t r = 0; r < t.rows; r++) {
    const int64_t head = plan.shared ? unit * group + (first + r) / a.tq : unit;
    const int64_t query = plan.shared ? (first + r) % a.tq : first + r;
    const int64_t at = t.batch * a.mask_strides[0] + head * a.mask_strides[1] + query * a.mask_strides[2];
    const T* q = a.q + t.batch * a.q_strides[0] + head * a.q_strides[1] + query * a.q_strides[2];
    t.row[r] = {query_row<T>(q, queries + r * query_step<T>(a.d), a.d),
                a.mask_kind == MaskKind::kNone ? nullptr : static_cast<const char*>(a.mask) + at * mask_nbytes, head,
                query};
  }
}

}  // namespace detail

}  // namespace ht

#endif  // HARDTACK_TEMPLATES_ATTENTION_TASK_H
