"""Zeros padded around a convolution's input become its own padding, also where steps in between make these zeros.

    conv(f(pad(x)))   becomes   conv(f(x)), padded

where f is done to each number by itself, with literals, and gives 0 for what pad adds: a quantisation, an activation.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch

from hardtack.codegen.ir.graph import Graph, Lit, Op, Operand, TensorType, make_attrs, uses
from hardtack.codegen.ops import INT_DIVISIONS, SCALAR_OPS
from hardtack.exporter.dtypes import TORCH_DTYPE
from hardtack.exporter.reference import run_op
from hardtack.exporter.rewrite.edit import Edit, Facts


def fold_padding(graph: Graph) -> Graph:
    """Convolutions without a pad of constants in front that they add themselves."""
    facts, edit = Facts(graph), Edit(graph)
    for op in graph.ops:
        pad, steps = _padded(facts, op)
        if pad is None or not _is_zero(facts, pad.inputs[1], steps):
            edit.keep(op)
            continue
        found = pad.inputs[0]
        for step in steps:
            inputs = (x if isinstance(x, Lit) else found for x in step.inputs)
            found = edit.emit(step.kind, *inputs, like=step, attrs=step.attrs)
        pairs = zip(op.tuple_attr("padding"), pad.tuple_attr("lo")[2:], pad.tuple_attr("hi")[2:], strict=True)
        attrs = dict(op.attrs) | {"padding": tuple((a + x, b + y) for (a, b), x, y in pairs)}
        out = edit.emit("conv", found, *op.inputs[1:], like=op, attrs=make_attrs(**attrs))
        edit.renamed[op.outputs[0]] = out
    return edit.done()


def _padded(facts: Facts, op: Op) -> tuple[Op | None, list[Op]]:
    """The pad of spatial dimensions that a convolution reads, and the steps behind it, the first one first."""
    steps: list[Op] = []
    if op.kind != "conv" or op.attr("transposed"):
        return None, steps
    value = op.value(0)
    while (made := facts.producer.get(value)) is not None and _is_step(made) and facts.used_once(value):
        steps.insert(0, made)
        (value,) = uses(made)
    pad = facts.made_by(value, "pad")
    if pad is None or pad.attr("mode") != "constant":
        return None, steps
    lo, hi = pad.tuple_attr("lo"), pad.tuple_attr("hi")
    plain = all(isinstance(w, int) and w >= 0 for w in (*lo, *hi)) and not any((*lo[:2], *hi[:2]))
    return (pad if plain else None), steps


def _is_step(op: Op) -> bool:
    """Whether an op is done to each element of one value by itself, and fails for none."""
    plain = op.kind in SCALAR_OPS and op.kind not in INT_DIVISIONS
    return plain and all(isinstance(x, (str, Lit)) for x in op.inputs) and len(list(uses(op))) == 1


def _is_zero(facts: Facts, padded: Operand, steps: Sequence[Op]) -> bool:
    """Whether steps make 0 of what is padded."""
    if not isinstance(padded, Lit):
        return False
    number = torch.tensor(padded.value, dtype=TORCH_DTYPE[padded.dtype])
    for step in steps:
        args = [x if isinstance(x, Lit) else number for x in step.inputs]
        (number,) = run_op(step, args, (TensorType(facts.graph.type_of(step.outputs[0]).dtype, ()),), {})
    return bool(number == 0)
