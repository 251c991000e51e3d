"""Recurrences: one Graph op a layer and direction, always of f32. Those of the half types are computed in f32 and
rounded once at the end; a plain recurrence of f64 is written out step by step.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from hardtack.codegen.ir.expr import int_value
from hardtack.codegen.ir.types import DType
from hardtack.export.build import Builder
from hardtack.export.errors import Refusal
from hardtack.export.table import Result, Value, converts


def _layers(
    b: Builder,
    kind: str,
    x: Value,
    states: Sequence[Value],
    params: Sequence[Value],
    has_biases: bool,
    num_layers: int,
    dropout: float,
    train: bool,
    bidirectional: bool,
    batch_first: bool,
) -> Result:
    """states: [layers * directions, B, H] each. Returns (y, final states...)."""
    if train and dropout:
        raise Refusal(f"{kind} with active dropout: call .eval() on the module before exporting")
    steps = x.shape[1 if batch_first and x.rank == 3 else 0]
    written_out = x.dtype is DType.F64 and kind in _PLAIN and int_value(steps) is not None
    if x.dtype is DType.F64 and not written_out:
        raise Refusal(f"{kind} of f64: it is computed in f32; call .float() on the module and its inputs")
    dtype = x.dtype
    x, states, params = b.wide(x), [b.wide(s) for s in states], [b.wide(p) for p in params]
    directions = 2 if bidirectional else 1
    each = 4 if has_biases else 2
    if len(params) != each * num_layers * directions:
        raise Refusal(f"{kind} with projections (proj_size)")
    unbatched = x.rank == 2
    if unbatched:
        x, states = b.unsqueeze(x, 1), [b.unsqueeze(s, 1) for s in states]
    elif batch_first:
        x = b.swap(x, 0, 1)
    b.require("le", 1, x.shape[0], f"{kind} needs a step")
    finals: list[list[Value]] = [[] for _ in states]
    for layer in range(num_layers):
        ys: list[Value] = []
        for direction in range(directions):
            at = layer * directions + direction
            start = [b.select(s, 0, at) for s in states]
            weights = params[at * each : (at + 1) * each]
            if written_out:
                y, *last = _written_out(b, _PLAIN[kind], x, start[0], weights, direction == 1)
            else:
                y, *last = b.multi(kind, x, *start, *weights, reverse=direction == 1, has_bias=has_biases)
            ys.append(y)
            for kept, value in zip(finals, last, strict=True):
                kept.append(b.unsqueeze(value, 0))
        x = b.cat(ys, 2)
    x, outs = b.to(x, dtype), [b.to(b.cat(f, 0), dtype) for f in finals]
    if unbatched:
        return (b.reshape(x, (x.shape[0], x.shape[2])), *(b.reshape(o, (o.shape[0], o.shape[2])) for o in outs))
    return (b.swap(x, 0, 1) if batch_first else x, *outs)


_PLAIN = {"rnn_tanh": "tanh", "rnn_relu": "relu"}


def _written_out(
    b: Builder, activation: str, x: Value, h: Value, weights: Sequence[Value], reverse: bool
) -> tuple[Value, Value]:
    """(h after each step [T, B, H], h after the last)."""
    w_ih, w_hh, *biases = weights
    steps = range(int_value(x.shape[0]) or 0)
    ys: list[Value] = []
    for step in reversed(steps) if reverse else steps:
        total = b.matmul(b.select(x, 0, step), b.swap(w_ih, 0, 1))
        for term in (b.matmul(h, b.swap(w_hh, 0, 1)), *biases):
            total = b.pw("add", total, term)
        h = b.pw("tanh", total) if activation == "tanh" else b.pw("max", 0.0, total, dtype=total.dtype)
        ys.append(b.unsqueeze(h, 0))
    return b.cat(ys[::-1] if reverse else ys, 0), h


@converts("aten.lstm.input")
def _lstm(b: Builder, x: Value, hx: Sequence[Value], params: Sequence[Value], *rest: Any) -> Result:
    return _layers(b, "lstm", x, hx, params, *rest)


@converts("aten.gru.input", "aten.rnn_tanh.input", "aten.rnn_relu.input")
def _one_state(b: Builder, x: Value, hx: Value, params: Sequence[Value], *rest: Any) -> Result:
    return _layers(b, b.origin.op.split(".")[1], x, [hx], params, *rest)
