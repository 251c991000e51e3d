// Matrix products with fused epilogues: against weights packed at export, and between two tensors.
// What an epilogue is: blocks.h.
#ifndef HARDTACK_TEMPLATES_GEMM_H
#define HARDTACK_TEMPLATES_GEMM_H

#include "blocks.h"
#include "pack.h"

namespace ht {

// Packed weights are [ceil(n / 32)][k][32] elements, bf16 in pairs of k (half.h), int8 in fours (int8.h); columns from n
// on are zero. The layout is the same on every CPU.
template <class T>
struct PackedGemm {
  using Element = T;
  using B = Packed<T>;
  static constexpr bool kOneInput = false;
  const T* a;
  int64_t lda;  // elements from one row to the next
  const B* b;
  int64_t k;

  struct Cursor {
    const T* at;
    int64_t kc;
  };
  HT_MEMBER Cursor start(int64_t, int64_t m, const KBlock& kb, void*) const { return {a + m * lda + kb.c, kb.kc}; }
  HT_MEMBER void rows(Cursor& cursor, int count, const T** out) const {
    for (int r = 0; r < count; r++) out[r] = cursor.at + r * lda;
    cursor.at += count * lda;
    prefetch_rows(cursor.at, lda, count, cursor.kc);
  }
  HT_MEMBER PanelView<B> panels(int64_t, Range p, const KBlock& kb, void*) const {
    const int64_t rows = packed_rows<T>(k);
    return {b + (p.begin * rows + packed_rows<T>(kb.c)) * kPanel, rows * kPanel, kPanel};
  }
  HT_MEMBER int64_t tap_offset(int64_t) const { return 0; }
  HT_MEMBER int64_t epilogue_batch(int64_t batch) const { return batch; }
  HT_MEMBER int64_t epilogue_row(int64_t m) const { return m; }
  HT_MEMBER int64_t epilogue_column(int64_t) const { return 0; }
  HT_MEMBER bool rows_stay() const { return true; }
  HT_MEMBER bool rows_follow() const { return true; }
  HT_MEMBER bool has_room() const { return false; }
  HT_MEMBER RowRun run_from(int64_t m, int count) const { return {m, count}; }
};

// acc[m, n] = sum over k of a[m * lda + k] * weights[k, n], to the epilogue as batch 0.
// Workspace of a worker: gemm_nbytes of cpu_workspace.py. As: what is known of a (ReadAs).
template <class Cut, class As = AsTheyAre, class T, class Epi>
int32_t gemm_packed(const HtKernelArgs* args, const T* a, int64_t lda, const T* b_panels, int64_t m, int64_t n,
                    int64_t k, const Epi& epi) {
  const PackedGemm<T> source = {a, lda, reinterpret_cast<const Packed<T>*>(b_panels), k};
  const typename ReadAs<As, PackedGemm<T>>::type read(source);
  return run_blocks<Cut>(args, read, epi, 1, m, n, {1, k});
}
template <class T, class Epi>
int32_t gemm_packed(const HtKernelArgs* args, const T* a, int64_t lda, const T* b_panels, int64_t m, int64_t n,
                    int64_t k, const Epi& epi) {
  return gemm_packed<MachineBlocks<T>>(args, a, lda, b_panels, m, n, k, epi);
}

// A batch of matrices, addressed by two batch indices and two matrix indices; strides in elements, any sign, 0 to
// broadcast.
template <class T>
struct MatrixBatch {
  const T* data;
  int64_t outer_stride, inner_stride;
  int64_t row_stride, column_stride;
};

// The batch index that the epilogue sees is outer index * inner + inner index.
struct DynamicShape {
  int64_t outer, inner;
  int64_t m, n, k;
};

template <class T, class Row>
struct PanelOf {
  using type = Packed<T>;
};
template <class T>
struct PanelOf<T, float> {
  using type = float;
};

template <class T, class Cut>
struct DynamicGemm {
  using Element = T;
  static constexpr bool kOneInput = false;
  // What B is packed as: float, or as constants are where an instruction multiplies some k at once.
  using Panel = typename PanelOf<T, Staged<T>>::type;
  DynamicShape shape;
  MatrixBatch<T> a, b;

  static constexpr int64_t copied_numel(int64_t k) {
    return same<T, float> ? copied_rows_numel(k, Cut::depth) : copied_halves_numel(k, Cut::depth);
  }
  HT_MEMBER const T* matrix(const MatrixBatch<T>& x, int64_t batch) const {
    return x.data + batch / shape.inner * x.outer_stride + batch % shape.inner * x.inner_stride;
  }
  // B can be read in place when its rows are contiguous, and is where packing costs more than it saves: where it is walked
  // a few times only, and where all of it stays in a core's own cache. Panels that end behind B's last column are packed.
  HT_MEMBER bool b_in_place(Range p) const {
    if (b.column_stride != 1 || p.end * kPanel > shape.n) return false;
    if (Cut::right != Right::kBySize) return Cut::right == Right::kInPlace;
    constexpr int64_t walks = kPanel / (micro_vectors(kMaxRows) * W);  // of a tile of rows
    return shape.m <= 8 / walks * kMaxRows || shape.k * shape.n * 4 <= kSecondLevelNbytes;
  }

  // The scratch holds the rows of A, when they have to be copied, then the panels of B.
  struct Cursor {
    const T* at;
    int64_t kc;
    T* copy;
  };
  HT_MEMBER Cursor start(int64_t batch, int64_t m, const KBlock& kb, void* scratch) const {
    return {matrix(a, batch) + m * a.row_stride + kb.c * a.column_stride, kb.kc, static_cast<T*>(scratch)};
  }
  HT_MEMBER void rows(Cursor& cursor, int count, const T** out) const {
    const bool copies = a.column_stride != 1;
    if (copies) copy_matrix(cursor.copy, cursor.kc, cursor.at, a.row_stride, a.column_stride, count, cursor.kc);
    for (int r = 0; r < count; r++) out[r] = copies ? cursor.copy + r * cursor.kc : cursor.at + r * a.row_stride;
    cursor.at += count * a.row_stride;
  }
  HT_MEMBER PanelView<Panel> panels(int64_t batch, Range p, const KBlock& kb, void* scratch) const {
    const T* from = matrix(b, batch) + kb.c * b.row_stride;
    if constexpr (same<T, float>) {
      if (b_in_place(p)) return {from + p.begin * kPanel, kPanel, b.row_stride};
    }
    Panel* packed = reinterpret_cast<Panel*>(static_cast<float*>(scratch) + copied_numel(shape.k));
    const int64_t numel = (same<Panel, float> ? kb.kc : packed_rows<T>(kb.kc)) * kPanel;
    for (int64_t i = p.begin; i < p.end; i++) {
      const int64_t columns = least(kPanel, shape.n - i * kPanel);
      pack_panel(packed + (i - p.begin) * numel, from + i * kPanel * b.column_stride, b.row_stride, b.column_stride,
                 kb.kc, columns);
    }
    return {packed, numel, kPanel};
  }
  HT_MEMBER int64_t tap_offset(int64_t) const { return 0; }
  HT_MEMBER int64_t epilogue_batch(int64_t batch) const { return batch; }
  HT_MEMBER int64_t epilogue_row(int64_t m) const { return m; }
  HT_MEMBER int64_t epilogue_column(int64_t) const { return 0; }
  HT_MEMBER bool rows_stay() const { return a.column_stride == 1; }
  HT_MEMBER bool rows_follow() const { return true; }
  HT_MEMBER RowRun run_from(int64_t m, int count) const { return {m, count}; }
};

// acc[batch, m, n] = sum over k of a[batch, m, k] * b[batch, k, n]. A unit's part of B is packed by the worker that
// needs it, at most once for Cut::rows rows.
// Workspace of a worker: gemm_dynamic_nbytes of cpu_workspace.py.
template <class Cut, class T, class Epi>
int32_t gemm_dynamic(const HtKernelArgs* args, const DynamicShape& shape, const MatrixBatch<T>& a,
                     const MatrixBatch<T>& b, const Epi& epi) {
  const DynamicGemm<T, Cut> source = {shape, a, b};
  return run_blocks<Cut>(args, source, epi, shape.outer * shape.inner, shape.m, shape.n, {1, shape.k});
}
template <class T, class Epi>
int32_t gemm_dynamic(const HtKernelArgs* args, const DynamicShape& shape, const MatrixBatch<T>& a,
                     const MatrixBatch<T>& b, const Epi& epi) {
  return gemm_dynamic<MachineBlocks<T>>(args, shape, a, b, epi);
}

}  // namespace ht

#endif  // HARDTACK_TEMPLATES_GEMM_H
