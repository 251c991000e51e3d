"""recurrent.h against torch.nn.LSTM, GRU and RNN."""

from __future__ import annotations

import functools

import pytest
import torch

from hardtack.codegen.machine.machine import Cpu
from tests.templates.conftest import all_targets
from tests.templates.cpu_kernels import Library, load_library

SOURCE = """
#include "recurrent.h"

extern "C" int32_t %(name)s(const HtKernelArgs* args) {
  const int64_t* n = args->ints;
  void* const* b = args->buffers;
  ht::Recurrent a = {};
  a.kind = ht::CellKind::%(kind)s;
  a.steps = n[0], a.batch = n[1], a.hidden = n[2], a.reverse = n[3] != 0;
  a.projected = static_cast<const float*>(b[0]), a.projected_strides[0] = n[4], a.projected_strides[1] = n[5];
  a.weights = static_cast<const float*>(b[1]);
  a.bias_n = static_cast<const float*>(b[2]);
  a.h0 = static_cast<const float*>(b[3]), a.h0_stride = n[2];
  a.c0 = static_cast<const float*>(b[4]), a.c0_stride = n[2];
  a.y = static_cast<float*>(b[5]), a.y_strides[0] = n[6], a.y_strides[1] = n[7];
  a.c = static_cast<float*>(b[6]), a.c_stride = n[2];
  a.h = static_cast<float*>(b[7]), a.h_stride = n[2];
  ht::recurrent<ht::CellKind::%(kind)s>(args, a);
  return HT_KERNEL_OK;
}
"""
KINDS = {"LSTM": "kLstm", "GRU": "kGru", "RNN_TANH": "kTanh", "RNN_RELU": "kRelu"}


@functools.cache
def library(target: Cpu) -> Library:
    return load_library({kind: SOURCE % {"name": kind, "kind": KINDS[kind]} for kind in KINDS}, target)


def pack(weight: torch.Tensor, gates: int) -> torch.Tensor:
    """[gates * hidden, hidden] to the layout in recurrent.h."""
    hidden = weight.shape[1]
    blocks = -(-hidden // 32)
    padded = torch.zeros(gates, blocks * 32, hidden)
    padded[:, :hidden] = weight.reshape(gates, hidden, hidden)
    return padded.reshape(gates, blocks, 32, hidden).permute(1, 0, 3, 2).contiguous()


def run(
    target: Cpu,
    layer: torch.nn.RNNBase,
    x: torch.Tensor,
    states: list[torch.Tensor] | None,
    direction: int,
    nworkers: int,
) -> list[torch.Tensor]:
    """y, h and, for an LSTM, c of one direction."""
    kind, hidden = layer.mode, layer.hidden_size
    gates = {"LSTM": 4, "GRU": 3}.get(kind, 1)
    suffix = "_reverse" if direction else ""
    w_ih, w_hh, b_ih, b_hh = (
        getattr(layer, f"{name}_l0{suffix}").detach() for name in ("weight_ih", "weight_hh", "bias_ih", "bias_hh")
    )
    folded = b_hh.clone()
    if kind == "GRU":
        folded[2 * hidden :] = 0
    projected = (x @ w_ih.T + b_ih + folded).contiguous()
    steps, batch, _ = x.shape
    directions = 2 if layer.bidirectional else 1
    y = torch.full((steps, batch, directions, hidden), 9.0)
    h, c = torch.full((batch, hidden), 9.0), torch.full((batch, hidden), 9.0)
    first = [None, None] if states is None else [state[direction].contiguous() for state in states]
    ints = [steps, batch, hidden, direction, *projected.stride()[:2], *y.stride()[:2]]
    bias_n = b_hh[2 * hidden :].contiguous() if kind == "GRU" else None
    h0, c0 = [*first, None][:2]
    buffers = [projected, pack(w_hh, gates), bias_n, h0, c0, y[:, :, direction], c, h]
    assert library(target).call(kind, buffers, ints, nworkers=nworkers) == 0
    return [y[:, :, direction], h, *([c] if kind == "LSTM" else [])]


CASES = [  # steps, batch, hidden
    (1, 1, 1),
    (7, 3, 33),
    (5, 1, 256),  # one row, split by units
    (6, 30, 64),
    (4, 2, 300),
    (0, 2, 8),
]


@pytest.mark.sweep(over="target")
@pytest.mark.parametrize("target", all_targets())
@pytest.mark.parametrize("kind", sorted(KINDS))
@pytest.mark.parametrize("case", CASES, ids=str)
@pytest.mark.parametrize("given", [False, True], ids=["zeros", "states"])
def test_matches_torch(target: Cpu, kind: str, case: tuple[int, int, int], given: bool) -> None:
    steps, batch, hidden = case
    torch.manual_seed(steps + hidden)
    name, _, nonlinearity = kind.partition("_")
    more = {"nonlinearity": nonlinearity.lower()} if nonlinearity else {}
    layer = getattr(torch.nn, name)(10, hidden, bidirectional=True, **more).eval()
    x = torch.randn(steps, batch, 10)
    states = [torch.randn(2, batch, hidden) for _ in range(2 if kind == "LSTM" else 1)] if given else None
    for direction in (0, 1):
        got = run(target, layer, x, states, direction, nworkers=1)
        if steps == 0:  # which torch refuses: the states pass through
            expected = [s[direction] for s in states] if states else [torch.zeros(batch, hidden)] * (len(got) - 1)
            for mine, theirs in zip(got[1:], expected, strict=True):
                assert torch.equal(mine, theirs)
            continue
        with torch.no_grad():
            double = layer.double()
            wide = None if states is None else [s.double() for s in states]
            y, last = double(x.double(), tuple(wide) if wide and kind == "LSTM" else (wide[0] if wide else None))
            layer.float()
        last = list(last) if kind == "LSTM" else [last]
        want = [y.float().reshape(steps, batch, 2, hidden)[:, :, direction], *[s[direction].float() for s in last]]
        for mine, theirs in zip(got, want, strict=True):
            torch.testing.assert_close(mine, theirs, rtol=1e-5, atol=2e-6)
        for mine, again in zip(got, run(target, layer, x, states, direction, nworkers=2), strict=True):
            assert torch.equal(mine, again)
