// Transposed two-dimensional convolution with fused epilogues. Output pixels whose coordinates agree modulo the stride
// meet the same filter positions, so each such phase is an ordinary product over just those positions.
#ifndef HARDTACK_TEMPLATES_CONV_TRANSPOSED_H
#define HARDTACK_TEMPLATES_CONV_TRANSPOSED_H

#include "conv.h"

namespace ht {

// In ConvShape, stride, padding and dilation are those of torch.nn.functional.conv_transpose2d; output_padding is in oh
// and ow. Weights are packed as for conv2d, with oc / groups columns and c / groups rows for every filter position:
// weight[c, o, i, j] of torch is column o, row c, filter position (i, j).

constexpr bool conv_transposed_packs_input(const ConvShape& s) { return s.c > 1 && s.x_stride_c != 1; }

namespace detail {

// Output phase + q * stride meets filter position t where phase + pad - t * dilation is a multiple of the stride, and
// reads input q + (phase + pad - t * dilation) / stride there.
HT_INLINE ConvAxis transposed_axis(int64_t phase, int64_t outputs, int64_t size, int64_t stride, int64_t pad,
                                   int64_t dilation, int64_t taps) {
  ConvAxis a = {};
  a.outputs = ceil_div(outputs - phase, stride);
  a.size = size;
  a.stride = 1;
  int64_t first = 0;
  while (first < taps && first < stride && (phase + pad - first * dilation) % stride != 0) first++;
  if (first == taps || first == stride) return a;  // no position contributes: only the epilogue's work is left
  int64_t period = 1;
  while (period * dilation % stride != 0) period++;
  a.taps = ceil_div(taps - first, period);
  a.first_tap = first;
  a.tap_step = period;
  a.origin = (phase + pad - first * dilation) / stride;
  a.step = -(period * dilation / stride);
  return a;
}

}  // namespace detail

// Shared workspace, if conv_transposed_packs_input: n * h * w * c elements
// Workspace of a worker: gemm_nbytes of cpu_workspace.py.
template <class T, class Epi>
int32_t conv_transposed2d(const HtKernelArgs* args, const ConvShape& s, const T* x, const T* panels, const Epi& epi) {
  if (s.n == 0 || s.oh == 0 || s.ow == 0 || s.oc == 0) return HT_KERNEL_OK;
  ConvSource<T> source = detail::conv_source(s, x, panels);
  if (conv_transposed_packs_input(s)) {
    T* packed = static_cast<T*>(args->shared_workspace);
    parallel_for(args, s.n * s.h, [&](int64_t row, int32_t) {
      const T* from = x + row / s.h * s.x_stride_n + row % s.h * s.x_stride_h;
      detail::copy_pixels(packed + row * s.w * s.c, from, s, s.w);
    });
    source.x = packed;
    source.stride_w = s.c;
    source.stride_h = s.w * s.c;
    source.stride_n = s.h * s.w * s.c;
  }
  source.out_step_h = s.stride_h;
  source.out_step_w = s.stride_w;
  for (source.out_y = 0; source.out_y < least(s.stride_h, s.oh); source.out_y++) {
    for (source.out_x = 0; source.out_x < least(s.stride_w, s.ow); source.out_x++) {
      source.h = detail::transposed_axis(source.out_y, s.oh, s.h, s.stride_h, s.pad_top, s.dilation_h, s.kh);
      source.w = detail::transposed_axis(source.out_x, s.ow, s.w, s.stride_w, s.pad_left, s.dilation_w, s.kw);
      const KAxis k = {source.h.taps * source.w.taps, source.tap_numel};
      const int64_t m = s.n * source.h.outputs * source.w.outputs;
      run_blocks<MachineBlocks<T>>(args, source, epi, s.groups, m, source.oc_per_group, k);
    }
  }
  return HT_KERNEL_OK;
}

}  // namespace ht

#endif  // HARDTACK_TEMPLATES_CONV_TRANSPOSED_H
