"""Numbers that a run computes: .item() of a tensor, Python's arithmetic on it, and where it stands as a position.

In the Graph such a number is a scalar tensor. torch writes it as a symbol that no input binds, and the ops on it as
Python's operators. It can be computed with, and it can be an index; a size it cannot be.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Callable
from typing import Any

import torch
from torch.fx import Node

from hardtack.codegen.ir.expr import Expr
from hardtack.codegen.ir.types import DType
from hardtack.exporter.convert.builder import Builder
from hardtack.exporter.convert.table import Number, Value
from hardtack.exporter.errors import Refusal, ValueSize
from hardtack.exporter.sizes.shapes import VALUE_SIZE

ITEMS = frozenset({"aten._local_scalar_dense.default", "aten.item.default"})
"""Ops that make a Python number of a tensor."""

TAKES_POSITION = frozenset(
    {
        "aten.select.int",
        "aten.slice.Tensor",
        "aten.select_scatter.default",
        "aten.slice_scatter.default",
        "aten.roll.default",
    }
)
"""Ops whose integers may be numbers of the run: their convert functions read them as indices."""

_ARITHMETIC = {
    operator.add: "add",
    operator.sub: "sub",
    operator.mul: "mul",
    operator.floordiv: "floordiv",
    operator.mod: "remainder",
    torch.sym_max: "max",
    torch.sym_min: "min",
}
_COMPARISONS = {getattr(operator, name): name for name in ("eq", "ne", "lt", "le", "gt", "ge")}
_LOGICAL = {operator.and_: "and", operator.or_: "or"}
_ROUNDINGS = {math.floor: "floor", math.ceil: "ceil", math.trunc: "trunc", torch.sym_int: "trunc", round: "round"}


def item(b: Builder, x: Value) -> Number:
    """The only element of x as Python has it: an i64, an f64 or a bool."""
    dtype = DType.F64 if x.dtype.is_float or x.dtype.is_float8 else x.dtype if x.dtype is DType.BOOL else DType.I64
    return _number(b.to(b.reshape(x, ()), dtype))


def number_of(b: Builder, node: Node, operands: tuple[Any, ...]) -> Number:
    """The number that a node computes from others. Refusal for what is no number, but the size of something."""
    target: Any = node.target
    if str(target) in ITEMS:
        return item(b, operands[0])
    if "sym_ite" in str(getattr(target, "__name__", "")) and isinstance(operands[0], Number):
        dtype = _wider(operands[1:])
        return _number(b.where(operands[0], operands[1], operands[2], dtype))
    if not all(isinstance(o, (Number, bool, int, float, Expr)) for o in operands):
        raise ValueSize(VALUE_SIZE)
    if target in _COMPARISONS:
        dtype = _wider(operands)
        return _number(b.op(_COMPARISONS[target], *(b.cast(o, dtype) for o in operands)))
    if target in _ARITHMETIC:
        return _number(b.pw(_ARITHMETIC[target], *operands, dtype=_wider(operands)))
    if target in _LOGICAL:
        return _number(b.pw(_LOGICAL[target], *operands, dtype=DType.BOOL))
    return _number(_rarer(b, target, operands))


def _rarer(b: Builder, target: Callable[..., Any], operands: tuple[Any, ...]) -> Value:
    x, *rest = operands
    if target is operator.truediv:
        return b.pw("div", x, *rest, dtype=DType.F64)
    if target is torch.sym_float:
        return b.to(x, DType.F64)
    if target is torch.sym_not:
        return b.op("not", b.to(x, DType.BOOL))
    if target is operator.neg:
        return b.pw("neg", x, dtype=_wider(operands))
    if target in _ROUNDINGS:
        return b.to(b.pw(_ROUNDINGS[target], x, dtype=DType.F64), DType.I64)
    if target is operator.pow and not (isinstance(rest[0], int) and rest[0] < 0):
        return b.pw("pow", x, *rest, dtype=_wider(operands))
    raise Refusal("arithmetic on .item() that has no conversion: leave out .item() and compute with the tensor")


def _wider(operands: tuple[Any, ...]) -> DType:
    """f64 if any operand is a float, otherwise i64, as Python counts."""
    floating = any(o.dtype.is_float if isinstance(o, Value) else isinstance(o, float) for o in operands)
    return DType.F64 if floating else DType.I64


def _number(x: Value) -> Number:
    return Number(x.name, x.type)


def refuse_as_size(node: Node, args: tuple[Any, ...]) -> None:
    """ValueSize if a number of the run stands where an op wants an integer."""
    if not isinstance(node.target, torch._ops.OpOverload) or str(node.target) in TAKES_POSITION:
        return
    for given, stated in zip(args, node.target._schema.arguments, strict=False):
        parts = given if isinstance(given, list) else [given]
        if any(isinstance(p, Number) for p in parts) and "int" in str(stated.type):
            raise ValueSize(VALUE_SIZE)
