"""Floating-point numbers that torch computed from sizes (`1 / sqrt(x.size(1))`) as scalars of the Graph."""

from __future__ import annotations

import sympy
import torch
from torch.utils._sympy import functions as sf

from hardtack.codegen.ir.expr import int_value
from hardtack.codegen.ir.types import DType
from hardtack.exporter.convert.builder import Builder
from hardtack.exporter.convert.table import Number, Value
from hardtack.exporter.errors import Refusal
from hardtack.exporter.sizes.shapes import Sizes, sympy_of

_UNARY = {"sqrt": "sqrt", "exp": "exp", "log": "log", "log2": "log2", "cos": "cos", "sin": "sin", "tanh": "tanh"}
_BINARY = {
    sf.IntTrueDiv: "div",
    sf.FloatTrueDiv: "div",
    sf.FloatPow: "pow",
}


def float_scalar(b: Builder, sizes: Sizes, value: torch.SymFloat) -> float | Number:
    """A float, or an f64 number computed from sizes during the run."""
    found = _scalar(b, sizes, sympy_of(value))
    return Number(found.name, found.type) if isinstance(found, Value) else found


def _scalar(b: Builder, sizes: Sizes, e: sympy.Basic) -> float | Value:
    if e.is_number:
        return float(e)
    if isinstance(e, sf.ToFloat) or e.is_integer:
        size = sizes.of(e.args[0] if isinstance(e, sf.ToFloat) else e)
        constant = int_value(size)
        return float(constant) if constant is not None else b.tensor(b.cast(size, DType.F64))
    if isinstance(e, sf.IntTrueDiv):
        for a in e.args:
            sizes.limit_to_floats(a)  # Python rounds the quotient of two ints once
    if type(e) in _BINARY:
        return b.pw(_BINARY[type(e)], *(_operand(b, sizes, a) for a in e.args), dtype=DType.F64)
    if isinstance(e, (sympy.Add, sympy.Mul)):
        kind = "add" if isinstance(e, sympy.Add) else "mul"
        total = _operand(b, sizes, e.args[0])
        for a in e.args[1:]:
            total = b.pw(kind, total, _operand(b, sizes, a), dtype=DType.F64)
        return total
    name = type(e).__name__.removeprefix("OpaqueUnaryFn_")
    if name in _UNARY:
        return b.pw(_UNARY[name], _operand(b, sizes, e.args[0]), dtype=DType.F64)
    if isinstance(e, sympy.Pow) and e.args[1] == sympy.Rational(1, 2):
        return b.pw("sqrt", _operand(b, sizes, e.args[0]), dtype=DType.F64)
    raise Refusal(f"the number {e}, computed from sizes, has no conversion ({type(e).__name__})")


_COMPARISONS = {
    sympy.Eq: "eq",
    sympy.Ne: "ne",
    sympy.Lt: "lt",
    sympy.Le: "le",
    sympy.Gt: "gt",
    sympy.Ge: "ge",
}


def bool_scalar(b: Builder, sizes: Sizes, value: torch.SymBool) -> Number:
    """A comparison of sizes, computed during the run."""
    e = sympy_of(value)
    if type(e) not in _COMPARISONS:
        raise Refusal(f"the condition {e} on sizes is not a comparison")
    left, right = (b.tensor(b.cast(sizes.of(a), DType.I64)) for a in e.args)
    found = b.op(_COMPARISONS[type(e)], left, right)
    return Number(found.name, found.type)


def _operand(b: Builder, sizes: Sizes, e: sympy.Basic) -> Value:
    value = _scalar(b, sizes, e)
    return value if isinstance(value, Value) else b.tensor(b.cast(value, DType.F64), DType.F64)
