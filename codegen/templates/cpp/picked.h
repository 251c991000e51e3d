// Products of rows with some of many weights that are packed at export as gemm.h has it, one behind the other: each matrix
// of a batch with the weight that its index names, or runs of rows with one weight after the other. Weights are read where
// they lie.
#ifndef HARDTACK_TEMPLATES_PICKED_H
#define HARDTACK_TEMPLATES_PICKED_H

#include "gemm.h"
#include "loops.h"

namespace ht {

// Matrix i of a batch times weight picks[i]; an index below zero counts from the end. Each lies inside.
template <class T, class Index>
struct PickedGemm : PackedGemm<T> {
  using typename PackedGemm<T>::B;
  using typename PackedGemm<T>::Cursor;
  int64_t matrix_stride;  // elements from one matrix of the batch to the next
  int64_t weight_stride;  // elements from one weight to the next
  const Index* picks;
  int64_t count;

  HT_MEMBER Cursor start(int64_t batch, int64_t m, const KBlock& kb, void*) const {
    return {this->a + batch * matrix_stride + m * this->lda + kb.c, kb.kc};
  }
  HT_MEMBER PanelView<B> panels(int64_t batch, Range p, const KBlock& kb, void*) const {
    const int64_t pick = picks[batch], rows = packed_rows<T>(this->k);
    const B* weight = reinterpret_cast<const B*>(reinterpret_cast<const T*>(this->b) +
                                                 (pick < 0 ? pick + count : pick) * weight_stride);
    return {weight + (p.begin * rows + packed_rows<T>(kb.c)) * kPanel, rows * kPanel, kPanel};
  }
};

// acc[i, m, n] = sum over k of a[i, m, k] * weights[picks[i], k, n], to the epilogue as batch i.
// Workspace of a worker: gemm_nbytes of cpu_workspace.py.
template <class T, class Index, class Epi>
int32_t gemm_picked(const HtKernelArgs* args, const T* a, int64_t matrix_stride, int64_t lda, const T* weights,
                    int64_t weight_stride, const Index* picks, int64_t batch, int64_t count, int64_t m, int64_t n,
                    int64_t k, const Epi& epi) {
  for (int64_t i = 0; i < batch; i++)
    if (picks[i] < -count || picks[i] >= count) return HT_KERNEL_INDEX_OUT_OF_RANGE;
  const PickedGemm<T, Index> source = {
      {a, lda, reinterpret_cast<const Packed<T>*>(weights), k}, matrix_stride, weight_stride, picks, count};
  return run_blocks<MachineBlocks<T>>(args, source, epi, batch, m, n, {1, k});
}

// Rows from `first` on.
template <class T>
struct RowsGemm : PackedGemm<T> {
  int64_t first;
  HT_MEMBER int64_t epilogue_row(int64_t m) const { return first + m; }
  HT_MEMBER RowRun run_from(int64_t m, int count) const { return {first + m, count}; }
};

// acc[m, n] = sum over k of a[m, k] * weights[g, k, n] of the first g with m < ends[g], to the epilogue as batch 0; 0 where
// there is none. Ends that do not ascend, and such beyond the rows, end no later than there are rows.
template <class T, class Index, class Epi>
int32_t gemm_grouped(const HtKernelArgs* args, const T* a, int64_t lda, const T* weights, int64_t weight_stride,
                     const Index* ends, int64_t groups, int64_t m, int64_t n, int64_t k, const Epi& epi) {
  int64_t first = 0;
  for (int64_t g = 0; g < groups; g++) {
    const int64_t end = least(ends[g], m);
    if (end <= first) continue;
    const RowsGemm<T> source = {
        {a + first * lda, lda, reinterpret_cast<const Packed<T>*>(weights + g * weight_stride), k}, first};
    run_blocks<MachineBlocks<T>>(args, source, epi, 1, end - first, n, {1, k});
    first = end;
  }
  if (first == m) return HT_KERNEL_OK;
  const RowsGemm<T> rest = {{a, 0, reinterpret_cast<const Packed<T>*>(weights), 0}, first};
  return run_blocks<MachineBlocks<T>>(args, rest, epi, 1, m - first, n, {1, 0});
}

}  // namespace ht

#endif  // HARDTACK_TEMPLATES_PICKED_H
