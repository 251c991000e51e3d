// Matrix products with fused epilogues: against weights packed at export, and between two tensors.
// What an epilogue is: blocks.h.
#ifndef HARDTACK_TEMPLATES_GEMM_H
#define HARDTACK_TEMPLATES_GEMM_H

#include "blocks.h"
#include "pack.h"

namespace ht {

// Packed weights are [ceil(n / 32)][k][32] floats; columns from n on are zero. The layout is the same on every CPU.
struct PackedGemm {
  const float* a;
  int64_t lda;  // elements from one row to the next
  const float* b;
  int64_t k;

  struct Cursor {
    const float* at;
    int64_t kc;
  };
  HT_MEMBER Cursor start(int64_t, int64_t m, const KBlock& kb, float*) const { return {a + m * lda + kb.c, kb.kc}; }
  HT_MEMBER void rows(Cursor& cursor, int count, const float** out) const {
    for (int r = 0; r < count; r++) out[r] = cursor.at + r * lda;
    cursor.at += count * lda;
    prefetch_rows(cursor.at, lda, count, cursor.kc);
  }
  HT_MEMBER PanelView panels(int64_t, Range p, const KBlock& kb, float*) const {
    return {b + (p.begin * k + kb.c) * kPanel, k * kPanel, kPanel};
  }
  HT_MEMBER int64_t tap_offset(int64_t) const { return 0; }
  HT_MEMBER int64_t epilogue_batch(int64_t batch) const { return batch; }
  HT_MEMBER int64_t epilogue_row(int64_t m) const { return m; }
  HT_MEMBER int64_t epilogue_column(int64_t) const { return 0; }
};

// acc[m, n] = sum over k of a[m * lda + k] * weights[k, n], to the epilogue as batch 0.
// Workspace of a worker: tile_numel(m, n) floats
template <class Epi>
int32_t gemm_packed(const HtKernelArgs* args, const float* a, int64_t lda, const float* b_panels, int64_t m, int64_t n,
                    int64_t k, const Epi& epi) {
  return run_blocks(args, PackedGemm{a, lda, b_panels, k}, epi, 1, m, n, {1, k});
}

// A batch of matrices, addressed by two batch indices and two matrix indices; strides in elements, any sign, 0 to
// broadcast.
struct MatrixBatch {
  const float* data;
  int64_t outer_stride, inner_stride;
  int64_t row_stride, column_stride;
};

// The batch index that the epilogue sees is outer index * inner + inner index.
struct DynamicShape {
  int64_t outer, inner;
  int64_t m, n, k;
};

struct DynamicGemm {
  DynamicShape shape;
  MatrixBatch a, b;

  HT_MEMBER const float* matrix(const MatrixBatch& x, int64_t batch) const {
    return x.data + batch / shape.inner * x.outer_stride + batch % shape.inner * x.inner_stride;
  }
  // B can be read in place when its rows are contiguous and each is read once.
  HT_MEMBER bool b_in_place() const { return b.column_stride == 1 && shape.m <= kMaxRows && shape.n % kPanel == 0; }

  // The scratch holds the rows of A, when they have to be copied, then the panels of B.
  struct Cursor {
    const float* at;
    int64_t kc;
    float* copy;
  };
  HT_MEMBER Cursor start(int64_t batch, int64_t m, const KBlock& kb, float* scratch) const {
    return {matrix(a, batch) + m * a.row_stride + kb.c * a.column_stride, kb.kc, scratch};
  }
  HT_MEMBER void rows(Cursor& cursor, int count, const float** out) const {
    const bool copies = a.column_stride != 1;
    if (copies) copy_matrix(cursor.copy, cursor.kc, cursor.at, a.row_stride, a.column_stride, count, cursor.kc);
    for (int r = 0; r < count; r++) out[r] = copies ? cursor.copy + r * cursor.kc : cursor.at + r * a.row_stride;
    cursor.at += count * a.row_stride;
  }
  HT_MEMBER PanelView panels(int64_t batch, Range p, const KBlock& kb, float* scratch) const {
    const float* from = matrix(b, batch) + kb.c * b.row_stride;
    if (b_in_place()) return {from + p.begin * kPanel, kPanel, b.row_stride};
    float* packed = scratch + copied_rows_numel(shape.k);
    for (int64_t i = p.begin; i < p.end; i++) {
      const int64_t columns = least(kPanel, shape.n - i * kPanel);
      pack_panel(packed + (i - p.begin) * kb.kc * kPanel, from + i * kPanel * b.column_stride, b.row_stride,
                 b.column_stride, kb.kc, columns);
    }
    return {packed, kb.kc * kPanel, kPanel};
  }
  HT_MEMBER int64_t tap_offset(int64_t) const { return 0; }
  HT_MEMBER int64_t epilogue_batch(int64_t batch) const { return batch; }
  HT_MEMBER int64_t epilogue_row(int64_t m) const { return m; }
  HT_MEMBER int64_t epilogue_column(int64_t) const { return 0; }
};

// acc[batch, m, n] = sum over k of a[batch, m, k] * b[batch, k, n]. A unit's part of B is packed by the worker that
// needs it, at most once for kChunkRows rows.
// Workspace of a worker: tile_numel(m, n) + copied_rows_numel(k) + packed_panels_numel(n, k) floats
template <class Epi>
int32_t gemm_dynamic(const HtKernelArgs* args, const DynamicShape& shape, const MatrixBatch& a, const MatrixBatch& b,
                     const Epi& epi) {
  const DynamicGemm source = {shape, a, b};
  return run_blocks(args, source, epi, shape.outer * shape.inner, shape.m, shape.n, {1, shape.k});
}

}  // namespace ht

#endif  // HARDTACK_TEMPLATES_GEMM_H
