// Where attention finds a block of keys and values: as they lie, or made of codes with a scale for each row.
#ifndef HARDTACK_TEMPLATES_ATTENTION_CODES_H
#define HARDTACK_TEMPLATES_ATTENTION_CODES_H

#include "attention_products.h"
#include "codes.h"

namespace ht {

// Codes [batch, kv_heads, tk, numel], dense in their last axis, and a scale for each row of them: strides in elements. A
// number is its code as float times the scale, rounded to the type of the queries.
template <class Code>
struct RowCodes {
  const Code* codes;
  int64_t strides[3];
  const float* scales;
  int64_t scale_strides[3];
};

namespace detail {

template <class T>
struct KeysInPlace {
  HT_MEMBER void take(AttentionTask<T>& t, const KeyBlock& block, float*) const {
    const Attention<T>& a = *t.a;
    t.k_stride = a.k_strides[2], t.v_stride = a.v_strides[2];
    t.k = a.k + t.batch * a.k_strides[0] + t.kv_head * a.k_strides[1] + block.first * t.k_stride;
    t.v = a.v + t.batch * a.v_strides[0] + t.kv_head * a.v_strides[1] + block.first * t.v_stride;
  }
};

// The numbers of `count` rows from `first` on, one row behind the other.
template <class T, class Code>
inline void numbers_of_rows(T* to, const RowCodes<Code>& rows, const AttentionTask<T>& t, const KeyBlock& block,
                            int64_t numel) {
  const Code* from =
      rows.codes + t.batch * rows.strides[0] + t.kv_head * rows.strides[1] + block.first * rows.strides[2];
  const float* scale = rows.scales + t.batch * rows.scale_strides[0] + t.kv_head * rows.scale_strides[1] +
                       block.first * rows.scale_strides[2];
  const int64_t whole = numel / W * W;
  const int rest = static_cast<int>(numel - whole);
  for (int64_t j = 0; j < block.count; j++, from += rows.strides[2], scale += rows.scale_strides[2], to += numel) {
    const vec<float> factor = bcast(*scale);
    for (int64_t i = 0; i < whole; i += W) store(to + i, load_codes(from + i, 0, 0) * factor);
    if (rest > 0) {
      Code last[W] = {};
      __builtin_memcpy(last, from + whole, static_cast<size_t>(rest) * sizeof(Code));
      store_n(to + whole, load_codes(last, 0, 0) * factor, rest);
    }
  }
}

template <class Code>
struct KeysOfCodes {
  RowCodes<Code> k, v;

  // The block's numbers lie behind all else in the workspace.
  template <class T>
  HT_MEMBER void take(AttentionTask<T>& t, const KeyBlock& block, float* work) const {
    const int64_t tk = t.a->tk, d = t.a->d, dv = t.a->dv;
    T* const keys =
        reinterpret_cast<T*>(work + (same<T, float> ? attention_numel(tk, d, dv) : half_attention_numel(tk, d, dv)));
    T* const values = keys + block.count * d;
    numbers_of_rows(keys, k, t, block, d);
    numbers_of_rows(values, v, t, block, dv);
    t.k = keys, t.k_stride = d;
    t.v = values, t.v_stride = dv;
  }
};

}  // namespace detail

}  // namespace ht

#endif  // HARDTACK_TEMPLATES_ATTENTION_CODES_H
