"""Which values follow from whole numbers alone: positions, masks, one-hot rows, triangles of ones. Products of them are
arithmetic that has to come out exactly, or angles, of which the fraction of a turn counts: 16 bits hold neither."""

from __future__ import annotations

from collections.abc import Sequence

import torch

from hardtack.codegen.ir.constants import ConstantStore
from hardtack.codegen.ir.graph import Graph, Op, uses
from hardtack.codegen.ir.types import DType
from hardtack.exporter.constants import load_tensor

_BYTES = (DType.I8, DType.U8)
"""Whole numbers that are pixels or quantised values, which bf16 and f16 hold: no positions."""
_GLANCE = 1024
"""Elements of a constant that are looked at first: most weights have a fraction there."""


def counted_values(graph: Graph, store: ConstantStore, given: Sequence[bool] | None = None) -> set[str]:
    """The values of a graph that no fraction of an input, weight or state has gone into. given: for each input whether
    it is one; None: those of a whole-number dtype are."""
    flags = given or [_is_count(graph.types[i.name].dtype) for i in graph.inputs]
    found = {i.name for i, flag in zip(graph.inputs, flags, strict=True) if flag}
    plain = [c for c in graph.constants if c.quantized is None]  # codes as float are whole numbers, and weights
    found |= {c.name for c in plain if _holds_counts(graph.types[c.name].dtype, store, c.key)}
    found |= {s.name for s in graph.states if _is_count(graph.types[s.name].dtype)}
    for op in graph.ops:
        follows = op.kind not in ("cond", "while") and all(x in found for x in uses(op))
        found |= {o for o in op.outputs if follows or _is_count(graph.types[o].dtype)}
    return found


def counted_operands(op: Op, name: str, store: ConstantStore, counted: set[str]) -> list[bool]:
    """For each input of the graph `name` inside of a cond or while, whether it is such a value in every turn."""
    graph = op.attr_of(name, Graph)
    flags = [not isinstance(x, str) or x in counted for x in op.inputs[len(op.inputs) - len(graph.inputs) :]]
    if op.kind == "cond":
        return flags
    body = op.attr_of("body", Graph)
    while True:  # until no turn makes a carried value of anything else
        inside = counted_values(body, store, flags)
        behind = [f and o in inside for f, o in zip(flags, body.outputs, strict=False)]
        if behind == flags[: len(behind)]:
            return flags
        flags[: len(behind)] = behind


def _is_count(dtype: DType) -> bool:
    return not (dtype.is_float or dtype.is_float8 or dtype in _BYTES)


def _holds_counts(dtype: DType, store: ConstantStore, key: str) -> bool:
    if not dtype.is_float:
        return _is_count(dtype)
    elements = load_tensor(store, key).flatten()
    # nothing but zeros is a weight before training
    return _all_whole(elements[:_GLANCE]) and _all_whole(elements) and bool(elements.any())


def _all_whole(t: torch.Tensor) -> bool:
    return bool((t == t.floor()).all())
