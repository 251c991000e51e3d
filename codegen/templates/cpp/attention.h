// Scaled dot product attention without a score matrix: out = softmax(scale * q k^T + mask) v.
//
// A task is a block of query rows of one head, or, where there are few queries, of all the heads that share a key head.
// It walks the keys in blocks of kKeyBlock. Keys are packed transposed, so that the GEMM microkernel gives a tile of
// scores; the softmax is kept as a running maximum and sum for each row, and the output so far is scaled down whenever
// the maximum grows (the online softmax of Milakov and Gimelshein, 2018). A row's arithmetic depends on the shapes alone,
// not on the number of threads.
//
// Scores, the softmax and sums are float. bf16 is multiplied by the target's instructions for pairs or tiles (half.h,
// tiles.h), for which weights are rounded to bf16; where there are none, and of f16, operands are packed as float.
//
// Keys and values may be codes with a scale for each row (attention_codes.h): those of a block become numbers of q's type
// before it is multiplied with, and none but its own are ever in memory.
//
// Rows that may attend to nothing give 0, as torch's kernels and its safe softmax do.
#ifndef HARDTACK_TEMPLATES_ATTENTION_H
#define HARDTACK_TEMPLATES_ATTENTION_H

#include "attention_codes.h"
#include "attention_products.h"
#include "attention_softmax.h"
#include "attention_task.h"

namespace ht {

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

// Keys of the block that some row of the tile sees.
template <class T>
HT_INLINE int64_t keys_used(const AttentionTask<T>& t, const KeyBlock& block, int64_t row, int mr) {
  int64_t used = 0;
  for (int r = 0; r < mr; r++) used = most(used, least(block.count, key_limit(t, row + r) - block.first));
  return used;
}

// Softmax of a tile's rows, whose weights are 0 behind those seen: up to `used`, and to the end of a tile of them.
template <class Weight, class T>
inline void soften_rows(const AttentionTask<T>& t, const KeyBlock& block, int64_t row, int mr, int64_t used) {
  const int64_t end = block.tiled ? ceil_div(used, kGrain) * kGrain : used;
  for (int r = 0; r < mr; r++) {
    const int64_t seen = most(0, least(used, key_limit(t, row + r) - block.first));
    float* const scores = t.scores + r * t.ld;
#if defined(HT_BF16_PAIRS)
    if constexpr (same<Weight, bf16>) {
      soften_pairs(t, row + r, block.first, seen, end, scores);
      continue;
    }
#endif
    soften_row(t, row + r, block.first, seen, end, scores);
  }
}

template <class T>
inline void attend_rows(const AttentionTask<T>& t, const KeyBlock& block, int64_t row, int mr, int64_t used) {
#if defined(HT_TILES)
  if constexpr (has_tiles<T>) {
    if (block.tiled) {
      Tiles tiles;
      tiles.configure(mr);
      score_rows(t, tiles, row, mr, used);
      soften_rows<bf16>(t, block, row, mr, used);
      add_values(t, block, tiles, row, mr, used);
      return tiles.release();
    }
  }
#endif
  score_rows(t, block, row, mr, used);
  if (multiplies_pairs<T> && block.values_packed) soften_rows<bf16>(t, block, row, mr, used);
  else soften_rows<float>(t, block, row, mr, used);
  add_values(t, block, row, mr, used);
}

template <class T, class Keys>
inline void attend(const Attention<T>& a, const Keys& keys_of, const AttentionPlan& plan, int64_t index, float* work,
                   AttentionTask<T>& t) {
  set_up(t, a, plan, index, work);
  int64_t keys = 0;
  for (int64_t r = 0; r < t.rows; r++) {
    t.peak[r] = -__builtin_inff();
    t.sum[r] = 0;
    keys = most(keys, key_limit(t, r));
  }
  for (int64_t first = 0; first < keys; first += kKeyBlock) {
    const KeyBlock block = key_block(t, first);
    keys_of.take(t, block, work);
    if (block.keys_packed) pack_keys(t, block);
    if (block.values_packed) pack_values(t, block);
    const int64_t height = block.tiled ? kBlockRows : kMaxRows;
    for (int64_t row = 0; row < t.rows; row += height) {
      const int mr = static_cast<int>(least(height, t.rows - row));
      const int64_t used = keys_used(t, block, row, mr);
      if (used > 0) attend_rows(t, block, row, mr, used);
    }
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

template <class T, class Keys, class Output>
HT_INLINE void attention(const HtKernelArgs* args, const Attention<T>& a, const Keys& keys, const Output& output) {
  if (a.batch == 0 || a.heads == 0 || a.tq == 0 || a.dv == 0) return;
  const AttentionPlan plan = attention_plan(a);
  parallel_for(args, a.batch * plan.units * plan.blocks, [&](int64_t index, int32_t worker) {
    AttentionTask<T> task;
    attend(a, keys, plan, index, reinterpret_cast<float*>(worker_workspace(args, worker)), task);
    emit_rows(task, output);
  });
}

}  // namespace detail

// Computes `a` and hands every W columns of a result row to `output` (StridedOutput, or a functor with its signature
// that fuses what follows). Workspace of a worker: attention_numel(tk, d, dv) floats, half_attention_numel(tk, d, dv) for
// 16-bit numbers.
template <class T, class Output>
HT_INLINE void attention(const HtKernelArgs* args, const Attention<T>& a, const Output& output) {
  detail::attention(args, a, detail::KeysInPlace<T>{}, output);
}

// The same with keys and values of codes; a.k and a.v are not read. Behind the workspace are key_numbers_numel(tk, d, dv)
// floats more.
template <class T, class Code, class Output>
HT_INLINE void attention(const HtKernelArgs* args, const Attention<T>& a, const RowCodes<Code>& k,
                         const RowCodes<Code>& v, const Output& output) {
  detail::attention(args, a, detail::KeysOfCodes<Code>{k, v}, output);
}

}  // namespace ht

#endif  // HARDTACK_TEMPLATES_ATTENTION_H
