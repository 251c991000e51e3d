"""Pointwise ops: mostly rows of the scalar op table, with torch's type promotion made explicit."""

from __future__ import annotations

import math
from typing import Any

import torch
from torch._prims_common import ELEMENTWISE_TYPE_PROMOTION_KIND as KIND
from torch._prims_common import elementwise_dtypes

from hardtack.codegen.ir.expr import Expr, const
from hardtack.codegen.ir.graph import Lit
from hardtack.codegen.ir.types import DType, half_value
from hardtack.exporter.convert.builder import Builder, literal
from hardtack.exporter.convert.table import Number, Value, converts
from hardtack.exporter.dtypes import TORCH_DTYPE, from_torch
from hardtack.exporter.errors import Refusal

Arg = Value | bool | int | float | Expr
_NUMBERS: dict[DType, bool | int | float] = {DType.BOOL: True, DType.I64: 1, DType.F64: 1.0}


def promoted(*args: Any, kind: KIND = KIND.DEFAULT) -> tuple[DType, DType]:
    """(the dtype to compute in, the dtype of the result) that torch takes for args."""
    samples: list[Any] = []
    for a in args:
        if isinstance(a, Number):
            samples.append(_NUMBERS[a.dtype])
        elif isinstance(a, Value):
            samples.append(torch.empty((1,) * a.rank, dtype=TORCH_DTYPE[a.dtype], device="meta"))
        else:
            samples.append(1 if isinstance(a, Expr) else a)
    compute, result = elementwise_dtypes(*samples, type_promotion_kind=kind)
    return from_torch(compute), from_torch(result)


def nary(b: Builder, kind: str, *args: Arg, promotion: KIND = KIND.DEFAULT) -> Value:
    """The op `kind` on args in the dtype that torch computes in, cast to the dtype that torch returns."""
    compute, result = promoted(*args, kind=promotion)
    # the half types are rounded once, at the end, for functions that torch evaluates in f32
    if compute.is_float and result is not compute and promotion is KIND.DEFAULT:
        compute = result
    return b.to(b.pw(kind, *args, dtype=compute), result)


def scaled(b: Builder, kind: str, x: Arg, y: Arg, dtype: DType) -> Value:
    """A product or quotient in `dtype`. With a half type the second operand counts as it is, in f32, if it is a number,
    as in torch; the first and those of every other op are the nearest value of the half type.
    """
    if isinstance(x, Value) and dtype.is_half:
        x = b.to(x, dtype)
    if not dtype.is_half or all(_of_half(a, dtype) for a in (x, y)):
        return b.pw(kind, x, y, dtype=dtype)
    return b.to(b.pw(kind, x, y, dtype=DType.F32), dtype)


def _of_half(a: Arg, dtype: DType) -> bool:
    """True unless `a` is a number that the half type would round."""
    if isinstance(a, Value):
        return a.rank > 0 or a.dtype is dtype
    return not isinstance(a, Expr) and half_value(float(a), dtype) == a


def _is_one(a: Arg) -> bool:
    """True for a number and for a tensor of one element, whatever its rank."""
    return not isinstance(a, Value) or all(n is const(1) for n in a.shape)


def shaped(b: Builder, x: Value) -> Value:
    """x broadcast to the shape that torch gives for the node."""
    return b.expand(x, b.result.shape)


_INT_TO_FLOAT = [
    "acos",
    "acosh",
    "asin",
    "asinh",
    "atan",
    "atanh",
    "cos",
    "cosh",
    "erf",
    "erfc",
    "erfinv",
    "exp",
    "exp2",
    "expm1",
    "log",
    "log10",
    "log1p",
    "log2",
    "lgamma",
    "reciprocal",
    "rsqrt",
    "sigmoid",
    "sin",
    "sinh",
    "sqrt",
    "tan",
    "tanh",
]
_SAME = ("floor", "ceil", "trunc", "abs", "neg", "sign")


def _register_unary() -> None:
    for name in _INT_TO_FLOAT:
        converts(f"aten.{name}.default")(_unary(name, KIND.INT_TO_FLOAT))
    for name in _SAME:
        converts(f"aten.{name}.default")(_unary_same(name))


def _unary(name: str, promotion: KIND) -> Any:
    return lambda b, x: nary(b, name, x, promotion=promotion)


def _unary_same(name: str) -> Any:
    def convert(b: Builder, x: Value) -> Value:
        if (x.dtype.is_int or x.dtype is DType.BOOL) and name in ("floor", "ceil", "trunc"):
            return x
        if x.dtype is DType.BOOL:
            return x  # abs, sign of bool
        return b.pw(name, x)

    return convert


_register_unary()


@converts("aten.sgn.default")
def _sgn(b: Builder, x: Value) -> Value:
    return x if x.dtype is DType.BOOL else b.pw("sign", x)


@converts("aten.round.default")
def _round(b: Builder, x: Value) -> Value:
    return x if x.dtype.is_int or x.dtype is DType.BOOL else b.pw("round", x)


@converts("aten.round.decimals")
def _round_decimals(b: Builder, x: Value, *, decimals: int) -> Value:
    if x.dtype.is_int or x.dtype is DType.BOOL:
        return x
    scale = 10.0 ** abs(decimals)
    first, second = ("mul", "div") if decimals >= 0 else ("div", "mul")
    return b.to(b.pw(second, b.pw("round", b.pw(first, b.wide(x), scale)), scale), x.dtype)


@converts("aten.isnan.default")
def _isnan(b: Builder, x: Value) -> Value:
    x = b.to(x, DType.F32) if x.dtype.is_float8 else x
    return b.op("isnan", x) if x.dtype.is_float else b.full(x.shape, False, DType.BOOL)


@converts("aten.isinf.default")
def _isinf(b: Builder, x: Value) -> Value:
    x = b.to(x, DType.F32) if x.dtype.is_float8 else x
    return b.op("isinf", x) if x.dtype.is_float else b.full(x.shape, False, DType.BOOL)


@converts("aten.signbit.default")
def _signbit(b: Builder, x: Value) -> Value:
    if x.dtype is DType.BOOL:
        return b.full(x.shape, False, DType.BOOL)
    if not x.dtype.is_float:
        return b.op("lt", x, b.cast(0, x.dtype))
    return b.pw("lt", b.pw("copysign", b.cast(1.0, x.dtype), x), 0.0)


@converts("aten.bitwise_not.default")
def _bitwise_not(b: Builder, x: Value) -> Value:
    return b.op("not", x)


@converts("aten.logical_not.default")
def _logical_not(b: Builder, x: Value) -> Value:
    return b.op("not", b.to(x, DType.BOOL))


@converts("aten.mul.Tensor", "aten.mul.Scalar")
def _mul(b: Builder, x: Arg, y: Arg) -> Value:
    _, result = promoted(x, y)
    return b.op("and", b.cast(x, result), b.cast(y, result)) if result is DType.BOOL else scaled(b, "mul", x, y, result)


@converts("aten.div.Tensor", "aten.div.Scalar", "aten.true_divide.Tensor")
def _div(b: Builder, x: Arg, y: Arg) -> Value:
    _, result = promoted(x, y, kind=KIND.INT_TO_FLOAT)
    return divide(b, x, y, result)


def divide(b: Builder, x: Arg, y: Arg, dtype: DType) -> Value:
    """x / y; by a power of two as a multiplication, which is exact."""
    if isinstance(y, (int, float)) and y and math.frexp(float(y))[0] in (0.5, -0.5) and 2.0**-100 < abs(y) < 2.0**100:
        return b.pw("mul", x, 1.0 / y, dtype=dtype) if dtype is not DType.F16 else b.pw("div", x, y, dtype=dtype)
    return scaled(b, "div", x, y, dtype)


@converts("aten.div.Tensor_mode", "aten.div.Scalar_mode")
def _div_mode(b: Builder, x: Arg, y: Arg, rounding_mode: str | None = None) -> Value:
    if rounding_mode is None:
        return _div(b, x, y)
    _, result = promoted(x, y)
    if rounding_mode == "floor":
        return scaled(b, "floordiv", x, y, result)
    if not result.is_float:
        return b.pw("truncdiv", x, y, dtype=result)
    if result.is_half and _is_one(y):  # torch divides by one number in f32 and rounds what is left of the fraction
        return b.to(b.pw("trunc", b.pw("div", x, y, dtype=DType.F32)), result)
    return b.pw("trunc", scaled(b, "div", x, y, result))


@converts("aten.floor_divide.default", "aten.floor_divide.Scalar")
def _floor_divide(b: Builder, x: Arg, y: Arg) -> Value:
    return scaled(b, "floordiv", x, y, promoted(x, y)[1])


@converts("aten.remainder.Tensor", "aten.remainder.Scalar", "aten.remainder.Scalar_Tensor")
def _remainder(b: Builder, x: Arg, y: Arg) -> Value:
    return nary(b, "remainder", x, y)


@converts("aten.fmod.Tensor", "aten.fmod.Scalar")
def _fmod(b: Builder, x: Arg, y: Arg) -> Value:
    return nary(b, "fmod", x, y)


def _comparison(kind: str) -> Any:
    def convert(b: Builder, x: Arg, y: Arg) -> Value:
        dtype = promoted(x, y)[1]
        return b.pw(kind, x, y, dtype=DType.F32 if dtype.is_float8 and kind in ("eq", "ne") else dtype)

    return convert


for _name in ("eq", "ne", "lt", "le", "gt", "ge"):
    converts(f"aten.{_name}.Tensor", f"aten.{_name}.Scalar")(_comparison(_name))


@converts("aten.maximum.default", kind="max", skips_nan=False)
@converts("aten.minimum.default", kind="min", skips_nan=False)
@converts("aten.fmax.default", kind="max", skips_nan=True)
@converts("aten.fmin.default", kind="min", skips_nan=True)
def _extreme(b: Builder, x: Arg, y: Arg, *, kind: str, skips_nan: bool) -> Value:
    _, result = promoted(x, y)
    if result is DType.BOOL:
        return b.op("or" if kind == "max" else "and", b.cast(x, result), b.cast(y, result))
    if not (result.is_float and skips_nan):
        return b.pw(kind, x, y, dtype=result)
    left, right = b.cast(x, result), b.cast(y, result)
    kept = b.where(b.op("isnan", right), left, b.pw(kind, right, left), result)  # of two zeros the left one
    return b.where(b.op("isnan", left), right, kept, result)


@converts("aten.clamp.default", "aten.clamp.Tensor", "aten.clamp_min.default", "aten.clamp_min.Tensor")
def clamp(b: Builder, x: Value, min: Arg | None = None, max: Arg | None = None) -> Value:
    """max(lower, x), then min(upper, .), as torch does where the limits cross. Of two zeros x stays, but a tensor's
    limit goes before it: torch's vector loops for numbers and for tensors differ there.
    """
    _, result = promoted(*(a for a in (x, min, max) if a is not None))
    out = b.to(x, result)
    for kind, limit in (("max", min), ("min", max)):
        if limit is not None:
            pair = (out, limit) if isinstance(limit, Value) else (limit, out)
            op = kind if result is not DType.BOOL else "or" if kind == "max" else "and"
            out = b.pw(op, *pair, dtype=result)
    return out


@converts("aten.clamp_max.default", "aten.clamp_max.Tensor")
def _clamp_max(b: Builder, x: Value, max: Arg) -> Value:
    return clamp(b, x, None, max)


def _of_elements(b: Builder, x: Value, number: Arg) -> Arg:
    """A number in x's dtype, where that is one of integers: there torch cuts its fraction off."""
    if x.dtype.is_float or isinstance(number, Expr):
        return number
    return b.to(number, x.dtype) if isinstance(number, Value) else literal(number, x.dtype).value


@converts("aten.hardtanh.default")
def _hardtanh(b: Builder, x: Value, min_val: Arg = -1, max_val: Arg = 1) -> Value:
    return clamp(b, x, _of_elements(b, x, min_val), _of_elements(b, x, max_val))


@converts("aten.threshold.default")
def _threshold(b: Builder, x: Value, threshold: Arg, value: Arg) -> Value:
    """value where x <= threshold, else x, NaN too; of a half type, x is compared in f32."""
    threshold, value = _of_elements(b, x, threshold), _of_elements(b, x, value)
    below = b.pw("le", x, threshold, dtype=DType.F32 if x.dtype.is_half else x.dtype)
    return b.where(below, value, x, x.dtype)


@converts("aten.relu.default")
def _relu(b: Builder, x: Value) -> Value:
    return clamp(b, x, 0)


@converts("aten.relu6.default")
def _relu6(b: Builder, x: Value) -> Value:
    return clamp(b, x, 0, 6)


def _bitwise(kind: str, logical: bool) -> Any:
    def convert(b: Builder, x: Arg, y: Arg) -> Value:
        result = DType.BOOL if logical else promoted(x, y)[1]
        return b.pw(kind, x, y, dtype=result)

    return convert


for _name in ("and", "or", "xor"):
    converts(
        *(f"aten.bitwise_{_name}.{overload}" for overload in ("Tensor", "Scalar", "Scalar_Tensor")),
        f"aten.__{_name}__.Tensor",
    )(_bitwise(_name, False))
    converts(f"aten.logical_{_name}.default")(_bitwise(_name, True))


@converts(
    "aten.bitwise_left_shift.Tensor",
    "aten.bitwise_left_shift.Tensor_Scalar",
    "aten.bitwise_left_shift.Scalar_Tensor",
    "aten.__lshift__.Scalar",
    "aten.__lshift__.Tensor",
)
def _shl(b: Builder, x: Arg, y: Arg) -> Value:
    return nary(b, "shl", x, y)


@converts(
    "aten.bitwise_right_shift.Tensor",
    "aten.bitwise_right_shift.Tensor_Scalar",
    "aten.bitwise_right_shift.Scalar_Tensor",
    "aten.__rshift__.Scalar",
    "aten.__rshift__.Tensor",
)
def _shr(b: Builder, x: Arg, y: Arg) -> Value:
    return nary(b, "shr", x, y)


@converts("aten.where.self", "aten.where.ScalarOther", "aten.where.ScalarSelf", "aten.where.Scalar")
def _where(b: Builder, condition: Value, x: Arg, y: Arg) -> Value:
    _, result = promoted(x, y)
    return shaped(b, b.where(b.to(condition, DType.BOOL), x, y, result))


@converts("aten.masked_fill.Scalar", "aten.masked_fill.Tensor")
def _masked_fill(b: Builder, x: Value, mask: Value, value: Arg) -> Value:
    return shaped(b, b.where(mask, value, x, x.dtype))


def scalar_of(x: Any) -> float:
    """A Python number. Refusal for a tensor or a size."""
    if isinstance(x, Lit):
        return float(x.value)
    if isinstance(x, (bool, int, float)):
        return float(x)
    raise Refusal(f"needs a number, got {type(x).__name__}")
