"""Recurrences: one Graph op a layer and direction, always of f32. Those of the half types are computed in f32 and
rounded once at the end; recurrences of f64, and LSTMs with projections, are written out step by step.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from hardtack.codegen.ir.expr import int_value
from hardtack.codegen.ir.types import DType
from hardtack.exporter.convert.builder import Builder
from hardtack.exporter.convert.table import Result, Value, converts
from hardtack.exporter.errors import Refusal


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
    steps = int_value(x.shape[1 if batch_first and x.rank == 3 else 0])
    if steps == 0:
        raise Refusal(f"{kind} gets a sequence without a step, which eager refuses, too: give one step or more")
    directions = 2 if bidirectional else 1
    each = len(params) // (num_layers * directions)
    projected = each > (4 if has_biases else 2)
    written_out = projected or x.dtype is DType.F64
    if written_out and steps is None:
        what, instead = ("projections (proj_size)", "") if projected else ("f64", _IN_F32)
        raise Refusal(f"{kind} of {what} takes a fixed number of steps: leave that dimension static{instead}")
    dtype = x.dtype
    x, states, params = b.wide(x), [b.wide(s) for s in states], [b.wide(p) for p in params]
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
                y, *last = _written_out(b, kind, x, start, weights, has_biases, direction == 1)
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


_IN_F32 = ", or call .float() on the module and its inputs"


def _written_out(
    b: Builder, kind: str, x: Value, states: list[Value], weights: Sequence[Value], has_biases: bool, reverse: bool
) -> tuple[Value, ...]:
    """(h after each step [T, B, H or P], the states after the last)."""
    w_ih, w_hh, *rest = weights
    biases, projection = (rest[:2], rest[2:]) if has_biases else ([], rest)
    rows = b.reshape(x, (x.shape[0] * x.shape[1], x.shape[2]))
    given = _plus(b, b.matmul(rows, b.swap(w_ih, 0, 1)), biases[:1])
    given = b.reshape(given, (*x.shape[:2], given.shape[1]))
    steps = range(int_value(x.shape[0]) or 0)
    ys: list[Value] = []
    for step in reversed(steps) if reverse else steps:
        kept = _plus(b, b.matmul(states[0], b.swap(w_hh, 0, 1)), biases[1:])
        states = _CELLS[kind](b, b.select(given, 0, step), kept, states)
        if projection:
            states = [b.matmul(states[0], b.swap(projection[0], 0, 1)), *states[1:]]
        ys.append(b.unsqueeze(states[0], 0))
    return b.cat(ys[::-1] if reverse else ys, 0), *states


def _plus(b: Builder, x: Value, terms: Sequence[Value]) -> Value:
    for term in terms:
        x = b.pw("add", x, term)
    return x


def _gates(b: Builder, x: Value, count: int) -> list[Value]:
    """The equal parts of the last dim."""
    width = x.shape[1] // count
    return [b.slice(x, 1, width * k, width) for k in range(count)]


def _lstm_cell(b: Builder, given: Value, kept: Value, states: list[Value]) -> list[Value]:
    into, forget, new, out = _gates(b, b.pw("add", given, kept), 4)
    taken = b.pw("mul", b.pw("sigmoid", into), b.pw("tanh", new))
    c = b.pw("add", b.pw("mul", b.pw("sigmoid", forget), states[1]), taken)
    return [b.pw("mul", b.pw("sigmoid", out), b.pw("tanh", c)), c]


def _gru_cell(b: Builder, given: Value, kept: Value, states: list[Value]) -> list[Value]:
    (reset, update, new), (kept_reset, kept_update, kept_new) = _gates(b, given, 3), _gates(b, kept, 3)
    r, z = (b.pw("sigmoid", b.pw("add", *pair)) for pair in ((reset, kept_reset), (update, kept_update)))
    n = b.pw("tanh", b.pw("add", new, b.pw("mul", r, kept_new)))
    return [b.pw("add", n, b.pw("mul", z, b.pw("sub", states[0], n)))]


def _tanh_cell(b: Builder, given: Value, kept: Value, states: list[Value]) -> list[Value]:
    return [b.pw("tanh", b.pw("add", given, kept))]


def _relu_cell(b: Builder, given: Value, kept: Value, states: list[Value]) -> list[Value]:
    return [b.pw("max", 0.0, b.pw("add", given, kept), dtype=given.dtype)]


_CELLS = {"lstm": _lstm_cell, "gru": _gru_cell, "rnn_tanh": _tanh_cell, "rnn_relu": _relu_cell}
"""(builder, the input's part of the gates, the states' part, the states) -> the states after the step."""


@converts("aten.lstm.input")
def _lstm(b: Builder, x: Value, hx: Sequence[Value], params: Sequence[Value], *rest: Any) -> Result:
    return _layers(b, "lstm", x, hx, params, *rest)


@converts("aten.gru.input", cell="gru")
@converts("aten.rnn_tanh.input", cell="rnn_tanh")
@converts("aten.rnn_relu.input", cell="rnn_relu")
def _one_state(b: Builder, x: Value, hx: Value, params: Sequence[Value], *rest: Any, cell: str) -> Result:
    return _layers(b, cell, x, [hx], params, *rest)
