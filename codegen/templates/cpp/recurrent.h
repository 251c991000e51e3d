// LSTM, GRU and plain recurrences over time, for one layer and one direction, for float.
//
// The products of the inputs with their weights, for all steps, come from a GEMM before; what is left is, step by step,
// the product of the hidden state with the recurrent weights and the gates. The recurrent weights are packed in blocks of
// kPanel hidden units with one panel for each gate, so that a tile has all the gates of its units:
//
//   packed[(block * gates + gate) * hidden * kPanel + k * kPanel + j] = W_hh[gate * hidden + block * kPanel + j][k]
//
// with 0 for units past the last; gates in torch's order (LSTM: i, f, g, o; GRU: r, z, n; else one); ceil(hidden / 32) blocks.
// The result does not depend on how the work is split.
#ifndef HARDTACK_TEMPLATES_RECURRENT_H
#define HARDTACK_TEMPLATES_RECURRENT_H

#include "micro.h"
#include "parallel.h"
#include "simd.h"
#include "vmath_exp.h"

namespace ht {

enum class CellKind { kLstm, kGru, kTanh, kRelu };

// Strides in elements; the last axis of every tensor is dense. No workspace is used.
struct Recurrent {
  CellKind kind;
  int64_t steps, batch, hidden;
  bool reverse;               // from the last step to the first
  const float* projected;     // [steps, batch, gates * hidden]: x W_ih^T + b_ih, and for all gates but GRU's n + b_hh
  int64_t projected_strides[2];  // step, batch
  const float* weights;       // packed as above
  const float* bias_n;        // GRU: b_hh of the n gate [hidden], or null; LSTM: null
  const float* h0;            // [batch, hidden], or null for zeros
  int64_t h0_stride;
  const float* c0;            // LSTM: [batch, hidden], or null for zeros
  int64_t c0_stride;
  float* y;                   // [steps, batch, hidden]: h after each step
  int64_t y_strides[2];       // step, batch
  float* c;                   // LSTM: [batch, hidden]: c after the last step; holds c meanwhile. May be c0.
  int64_t c_stride;
  float* h;                   // [batch, hidden]: h after the last step, or null
  int64_t h_stride;
};

namespace detail {

constexpr int kLstmGates = 4, kGruGates = 3;

constexpr int gates_of(CellKind kind) {
  return kind == CellKind::kLstm ? kLstmGates : kind == CellKind::kGru ? kGruGates : 1;
}

HT_INLINE int64_t time_of(const Recurrent& a, int64_t step) { return a.reverse ? a.steps - 1 - step : step; }

// h before step `step` for row `row`; null for zeros
HT_INLINE const float* hidden_row(const Recurrent& a, int64_t step, int64_t row) {
  if (step == 0) return a.h0 == nullptr ? nullptr : a.h0 + row * a.h0_stride;
  return a.y + time_of(a, step - 1) * a.y_strides[0] + row * a.y_strides[1];
}

// Tail lanes are computed and not stored; they hold zeros or finite values, so they raise nothing and cost nothing.
struct CellRow {
  const float* x;     // projected, this unit
  const float* tile;  // h W_hh^T: one panel a gate
  const float* h;     // before; null for zeros
  const float* c;     // before; null for zeros
  float* c_out;
  float* y;
};

HT_INLINE void lstm_units(const Recurrent& a, const CellRow& r, int lane0, int64_t unit, int n) {
  const int64_t hidden = a.hidden;
  vec<float> gate[kLstmGates];
  for (int g = 0; g < kLstmGates; g++)
    gate[g] = load_n(r.x + g * hidden + unit, n) + load(r.tile + g * kPanel + lane0);
  const vec<float> c = r.c == nullptr ? vec<float>{} : load_n(r.c + unit, n);
  const vec<float> next = vsigmoid(gate[1]) * c + vsigmoid(gate[0]) * vtanh(gate[2]);
  store_n(r.c_out + unit, next, n);
  store_n(r.y + unit, vsigmoid(gate[3]) * vtanh(next), n);
}

HT_INLINE void gru_units(const Recurrent& a, const CellRow& r, int lane0, int64_t unit, int n) {
  const int64_t hidden = a.hidden;
  const vec<float> bias = a.bias_n == nullptr ? vec<float>{} : load_n(a.bias_n + unit, n);
  const vec<float> reset = vsigmoid(load_n(r.x + unit, n) + load(r.tile + lane0));
  const vec<float> update = vsigmoid(load_n(r.x + hidden + unit, n) + load(r.tile + kPanel + lane0));
  const vec<float> from_h = load(r.tile + 2 * kPanel + lane0) + bias;
  const vec<float> fresh = vtanh(fma(reset, from_h, load_n(r.x + 2 * hidden + unit, n)));
  const vec<float> h = r.h == nullptr ? vec<float>{} : load_n(r.h + unit, n);
  store_n(r.y + unit, fma(update, h - fresh, fresh), n);
}

// h' = tanh(x + h W_hh^T), or the positive part of it, which keeps NaN.
template <CellKind kind>
HT_INLINE void plain_units(const CellRow& r, int lane0, int64_t unit, int n) {
  const vec<float> sum = load_n(r.x + unit, n) + load(r.tile + lane0), zero = {};
  if constexpr (kind == CellKind::kTanh) store_n(r.y + unit, vtanh(sum), n);
  else store_n(r.y + unit, sum < zero ? zero : sum, n);
}

// One step for rows [row, row + mr) and the units of one block.
template <CellKind kind>
__attribute__((noinline)) void cell_tile(const Recurrent& a, int64_t step, int64_t row, int mr, int64_t block) {
  constexpr int gates = gates_of(kind);
  constexpr int64_t ld = gates * kPanel;
  alignas(64) float tile[kMaxRows * ld];
  const float* h[kMaxRows];
  for (int r = 0; r < mr; r++) h[r] = hidden_row(a, step, row + r);
  const bool zeros = h[0] == nullptr;
  const int64_t none = 0;
  const MicroTaps taps = {h, &none, 1, zeros ? 0 : a.hidden, kPanel};
  const float* weights = a.weights + block * gates * a.hidden * kPanel;
  for (int g = 0; g < gates; g++)
    micro_tile(mr, taps, weights + g * a.hidden * kPanel, tile + g * kPanel, ld, kPanel, false);
  const int64_t time = time_of(a, step);
  for (int r = 0; r < mr; r++) {
    const int64_t at = row + r;
    CellRow cell = {a.projected + time * a.projected_strides[0] + at * a.projected_strides[1], tile + r * ld, h[r],
                    nullptr, nullptr, a.y + time * a.y_strides[0] + at * a.y_strides[1]};
    if (kind == CellKind::kLstm) {
      cell.c_out = a.c + at * a.c_stride;
      cell.c = step > 0 ? cell.c_out : (a.c0 == nullptr ? nullptr : a.c0 + at * a.c0_stride);
    }
    for (int lane0 = 0; lane0 < kPanel; lane0 += W) {
      const int64_t unit = block * kPanel + lane0, left = a.hidden - unit;
      if (left <= 0) break;
      const int n = static_cast<int>(left < W ? left : W);
      if constexpr (kind == CellKind::kLstm) lstm_units(a, cell, lane0, unit, n);
      else if constexpr (kind == CellKind::kGru) gru_units(a, cell, lane0, unit, n);
      else plain_units<kind>(cell, lane0, unit, n);
    }
  }
}

template <CellKind kind>
void cell_range(const Recurrent& a, int64_t step, Range rows, Range blocks) {
  const int64_t tiles = ceil_div(rows.end - rows.begin, kMaxRows);  // of nearly equal heights
  for (int64_t block = blocks.begin; block < blocks.end; block++) {
    for (int64_t i = 0; i < tiles; i++) {
      const Range tile = part_of(rows.end - rows.begin, i, tiles);
      cell_tile<kind>(a, step, rows.begin + tile.begin, static_cast<int>(tile.end - tile.begin), block);
    }
  }
}

HT_INLINE void copy_rows(const float* from, int64_t from_stride, float* to, int64_t to_stride, int64_t rows,
                         int64_t columns) {
  for (int64_t r = 0; r < rows; r++) {
    for (int64_t c = 0; c < columns; c++) to[r * to_stride + c] = from == nullptr ? 0.0f : from[r * from_stride + c];
  }
}

// The states after the last step. Without steps they are the first ones.
HT_INLINE void final_states(const Recurrent& a) {
  if (a.h != nullptr) {
    const bool any = a.steps > 0;
    const float* last = any ? a.y + time_of(a, a.steps - 1) * a.y_strides[0] : a.h0;
    copy_rows(last, any ? a.y_strides[1] : a.h0_stride, a.h, a.h_stride, a.batch, a.hidden);
  }
  if (a.steps == 0 && a.kind == CellKind::kLstm && a.c != a.c0) {
    copy_rows(a.c0, a.c0_stride, a.c, a.c_stride, a.batch, a.hidden);
  }
}

}  // namespace detail

template <CellKind kind>
HT_INLINE void recurrent(const HtKernelArgs* args, const Recurrent& a) {
  constexpr int gates = detail::gates_of(kind);
  const int64_t blocks = ceil_div(a.hidden, kPanel), workers = args->parallel->nworkers;
  const int64_t weights = gates * a.hidden * a.hidden;
  const bool large = weights * a.batch >= kWakeProducts;
  const bool rows_pay = a.batch >= workers && (weights * 4 <= kPrivateNbytes || a.batch >= 4 * kMaxRows * workers);
  if (large && !rows_pay) {
    const int64_t tasks = least(blocks, workers);
    for (int64_t step = 0; step < a.steps; step++) {
      parallel_for(args, tasks, [&](int64_t index, int32_t) {
        detail::cell_range<kind>(a, step, {0, a.batch}, part_of(blocks, index, tasks));
      });
    }
  } else {
    const int64_t tasks = rows_pay ? least(a.batch, workers) : 1;
    parallel_for(args, tasks, [&](int64_t index, int32_t) {
      const Range rows = part_of(a.batch, index, tasks);
      for (int64_t step = 0; step < a.steps; step++) detail::cell_range<kind>(a, step, rows, {0, blocks});
    });
  }
  detail::final_states(a);
}

}  // namespace ht

#endif  // HARDTACK_TEMPLATES_RECURRENT_H
