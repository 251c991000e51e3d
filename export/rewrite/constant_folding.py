"""Ops on constants only, computed while the model is exported."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import replace

import torch

from hardtack.codegen.ir import expr as ex
from hardtack.codegen.ir.constants import ConstantStore, Recipe, View
from hardtack.codegen.ir.expr import Expr
from hardtack.codegen.ir.graph import Constant, Graph, Op, Operand, TensorType, uses
from hardtack.codegen.ir.graph_ops import View as Viewed
from hardtack.codegen.ir.graph_ops import facts
from hardtack.codegen.ir.types import DType
from hardtack.codegen.ops import SCALAR_OPS
from hardtack.exporter.constants import load_tensor, store_tensor
from hardtack.exporter.reference import run_op

_GROWTH = 4
_FREE_NBYTES = 1 << 20
_SOURCES = ("full", "iota")
_NEVER = ("assert", "cond", "while")


def _nbytes(t: TensorType) -> int | None:
    """Bytes of a tensor of constant shape, else None; also where a dimension beside the symbolic one is 0."""
    sizes = [ex.int_value(s) for s in t.shape]
    return None if None in sizes else math.prod(s or 0 for s in sizes) * t.dtype.nbytes


def fold(graph: Graph, store: ConstantStore) -> Graph:
    """Every op whose operands are constants or literals computed now, except where that makes a constant much larger.

    An op is folded if its results take at most four times the bytes of its operands, or at most 1 MiB. `full` and
    `iota` are not results worth keeping: they are folded only as operands of other folded ops. So are constants of half
    types in f32 for scalar ops, which convert as they load.
    """
    known = {c.name: c for c in graph.constants}
    pending: dict[str, Op] = {}  # full, iota and casts to f32, by output
    kept: list[Op] = []
    scalar, weights = _read_by_scalar_ops(graph), _read_as_weights(graph)
    for op in graph.ops:
        if op.outputs[0:1] and op.outputs[0] in weights and _widens_bytes(op, graph, known):
            kept.append(op)
            continue
        if (op.kind in _SOURCES and _is_static(op, graph)) or (_widens(op, graph, known) and op.outputs[0] in scalar):
            pending[op.outputs[0]] = op
            kept.append(op)
            continue
        if not _foldable(op, graph, known, pending):
            kept.append(op)
            continue
        operands = _operands(op, graph, store, known, pending)
        used = [c for x in op.inputs if (c := _behind(x, known, pending)) is not None]
        tensors = tuple(sorted({t for c in used for t in c.tensors}))
        values = run_op(op, operands, tuple(graph.types[o] for o in op.outputs), {})
        for name, value in zip(op.outputs, values, strict=True):
            recipe = _moved(op, used[0], operands[0], value) if used else None
            known[name] = Constant(name, store_tensor(store, value), tensors, recipe)
    return replace(graph, ops=tuple(kept), constants=tuple(known.values()))


def _read_by_scalar_ops(graph: Graph) -> set[str]:
    """The values that nothing but scalar ops reads."""
    others = {x for op in graph.ops if op.kind not in SCALAR_OPS for x in uses(op)}
    others |= {*graph.outputs, *(s.final for s in graph.states if s.final is not None)}
    return set(graph.types) - others


def _read_as_weights(graph: Graph) -> set[str]:
    """The values that nothing but products reads, as their second operand, a matrix, or views for these."""
    found = set(graph.types) - {*graph.outputs, *(s.final for s in graph.states if s.final is not None)}
    for op in reversed(graph.ops):
        moves = facts(op).view is Viewed.STRIDED and op.outputs[0] in found
        weight = op.inputs[1] if op.kind == "matmul" and _is_matrix(graph.type_of(op.inputs[1])) else None
        for x in uses(op):
            if not moves and not (x == weight and x != op.inputs[0]):
                found.discard(x)
    return found


def _is_matrix(t: TensorType) -> bool:
    """Of two dimensions, but for others of size 1."""
    return len(t.shape) >= 2 and all(ex.int_value(n) == 1 for n in t.shape[:-2])


def _widens_bytes(op: Op, graph: Graph, known: Mapping[str, Constant]) -> bool:
    """True for a constant of 8 bits in f32."""
    if op.kind != "cast" or op.inputs[0] not in known or op.attr("dtype") is not DType.F32:
        return False
    return graph.type_of(op.inputs[0]).dtype is DType.I8


def _widens(op: Op, graph: Graph, known: Mapping[str, Constant]) -> bool:
    """True for a constant of a half type in f32."""
    return (
        op.kind == "cast"
        and op.inputs[0] in known
        and graph.type_of(op.inputs[0]).dtype.is_half
        and op.attr("dtype") is DType.F32
    )


def _behind(x: Operand, known: Mapping[str, Constant], pending: Mapping[str, Op]) -> Constant | None:
    """The constant that an operand is, or is converted from."""
    if isinstance(x, str) and x in pending and pending[x].kind == "cast":
        x = pending[x].inputs[0]
    return known.get(x) if isinstance(x, str) else None


def _moved(op: Op, source: Constant, operand: object, value: torch.Tensor) -> Recipe | None:
    """The recipe of what an op made by moving elements of one constant, found in the strides that torch gave it."""
    if facts(op).view is not Viewed.STRIDED or source.recipe is None or not isinstance(operand, torch.Tensor):
        return None
    if value.numel() and value.untyped_storage().data_ptr() != operand.untyped_storage().data_ptr():
        return source.recipe if op.kind == "reshape" else None
    if value.is_contiguous() and value.numel() == operand.numel():
        return source.recipe
    view = View(int(value.storage_offset()), tuple(value.shape), tuple(value.stride()))
    return replace(source.recipe, views=(*source.recipe.views, view))


def _is_static(op: Op, graph: Graph) -> bool:
    symbolic = any(isinstance(x, (str, Expr)) for x in op.inputs)
    return not symbolic and all(_nbytes(graph.types[o]) is not None for o in op.outputs)


def _foldable(op: Op, graph: Graph, known: Mapping[str, Constant], pending: Mapping[str, Op]) -> bool:
    names = [x for x in op.inputs if isinstance(x, str)]
    if op.kind in _NEVER or not names or any(isinstance(x, Expr) for x in op.inputs):
        return False
    if any(n not in known and n not in pending for n in names) or _has_symbols(op):
        return False
    sizes = [_nbytes(graph.types[o]) for o in op.outputs]
    if any(s is None for s in sizes):
        return False
    total = sum(s for s in sizes if s is not None)
    operands = sum(_nbytes(graph.types[n]) or 0 for n in names)
    return total <= _FREE_NBYTES or total <= _GROWTH * operands


def _has_symbols(op: Op) -> bool:
    def symbolic(v: object) -> bool:
        if isinstance(v, tuple):
            return any(map(symbolic, v))
        return isinstance(v, Expr) and ex.int_value(v) is None

    return any(symbolic(v) for _, v in op.attrs)


def _operands(
    op: Op, graph: Graph, store: ConstantStore, known: Mapping[str, Constant], pending: Mapping[str, Op]
) -> tuple[Operand | torch.Tensor, ...]:
    def value(name: str) -> torch.Tensor:
        if name in known:
            return load_tensor(store, known[name].key)
        made = pending[name]
        inputs = tuple(value(x) if isinstance(x, str) else x for x in made.inputs)
        return run_op(made, inputs, (graph.types[name],), {})[0]

    return tuple(value(x) if isinstance(x, str) else x for x in op.inputs)
