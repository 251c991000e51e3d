"""Powers, lengths, angles, neighbours and divisors: pow and its special exponents, hypot, atan2, nextafter, gcd."""

from __future__ import annotations

import math
from typing import Any

from torch._prims_common import ELEMENTWISE_TYPE_PROMOTION_KIND as KIND

from hardtack.codegen.ir.types import INT_RANGE, DType
from hardtack.exporter.convert.builder import Builder, literal
from hardtack.exporter.convert.pointwise import Arg, nary, promoted
from hardtack.exporter.convert.table import Value, converts
from hardtack.exporter.errors import Refusal


@converts("aten.pow.Tensor_Scalar")
def _pow_scalar(b: Builder, x: Value, exponent: Any) -> Value:
    if x.dtype is DType.BOOL and isinstance(exponent, bool):
        raise Refusal(
            "a power of booleans by a boolean is boolean in eager, and int64 where torch.export traces it: write "
            "x | True for ** False, and x.clone() for ** True"
        )
    _, result = promoted(x, exponent)
    x = b.to(x, result)
    # torch multiplies f16 in f32, and bf16 in bf16
    work = b.wide(x) if x.dtype is DType.F16 else x
    if x.dtype is DType.F16 and exponent in (0.5, -0.5):  # by C's pow: no sign of a zero, no NaN of -inf
        work = b.where(b.pw("eq", work, -math.inf), math.inf, b.pw("add", work, 0.0), work.dtype)
    special = _small_power(b, work, exponent) if isinstance(exponent, (int, float)) else None
    return b.to(special, x.dtype) if special is not None else b.pw("pow", x, exponent)


def _small_power(b: Builder, x: Value, exponent: float) -> Value | None:
    """x to a small power by multiplication and roots, as torch computes it; None where it uses pow."""
    if exponent == 1:
        return x
    if exponent == 0:
        return b.full(x.shape, 1, x.dtype)
    if exponent == 2:
        return b.pw("mul", x, x)
    if exponent == 3:
        return b.pw("mul", b.pw("mul", x, x), x)
    if not x.dtype.is_float:
        return None
    if exponent in (0.5, -0.5):
        return b.pw("sqrt" if exponent > 0 else "rsqrt", x)
    if exponent in (-1, -2):
        return b.pw("reciprocal", x if exponent == -1 else b.pw("mul", x, x))
    return None


@converts("aten.pow.Tensor_Tensor", "aten.pow.Scalar")
def _pow(b: Builder, x: Arg, exponent: Arg) -> Value:
    _, result = promoted(x, exponent)
    if isinstance(x, int) and not result.is_float:
        return b.pw("pow", literal(x, result, wraps=True), exponent, dtype=result)
    return nary(b, "pow", x, exponent)


@converts("aten.atan2.default", kind="atan2")
@converts("aten.copysign.Tensor", "aten.copysign.Scalar", kind="copysign")
def _float_binary(b: Builder, x: Arg, y: Arg, *, kind: str) -> Value:
    return nary(b, kind, x, y, promotion=KIND.INT_TO_FLOAT)


@converts("aten.angle.default")
def _angle(b: Builder, x: Value) -> Value:
    """Of a real number: pi if it is less than zero, which -0 is not; a NaN stays one."""
    dtype = b.result.dtype
    angle = b.where(b.pw("lt", x, 0), math.pi, 0.0, dtype)
    return b.where(b.op("isnan", x), x, angle, dtype) if x.dtype.is_float else angle


@converts("aten.gcd.default")
def _gcd(b: Builder, x: Value, y: Value) -> Value:
    return b.pw("gcd", x, y, dtype=promoted(x, y)[1])


@converts("aten.lcm.default")
def _lcm(b: Builder, x: Value, y: Value) -> Value:
    """|x / gcd * y|, which wraps as C's int does, that is of 32 bits for smaller types."""
    _, result = promoted(x, y)
    wide = result if result.nbytes >= 4 else DType.I32
    divisor = b.pw("gcd", x, y, dtype=wide)
    none = b.pw("eq", divisor, 0)
    product = b.pw("mul", b.pw("truncdiv", x, b.where(none, 1, divisor, wide), dtype=wide), y)
    return b.to(b.where(none, 0, b.pw("abs", product), wide), result)


@converts("aten.hypot.default")
def _hypot(b: Builder, x: Value, y: Value) -> Value:
    """The larger times sqrt(1 + ratio^2): no overflow of the squares. Infinite if either is, also beside a NaN."""
    _, result = promoted(x, y)
    one, two = (b.pw("abs", b.wide(b.to(v, result))) for v in (x, y))
    large, small = b.pw("max", one, two), b.pw("min", one, two)
    ratio = b.pw("div", small, large)
    length = b.pw("mul", large, b.pw("sqrt", b.pw("add", b.pw("mul", ratio, ratio), 1.0)))
    length = b.where(b.pw("eq", large, 0.0), large, length, large.dtype)
    infinite = b.op("or", b.op("isinf", one), b.op("isinf", two))
    return b.to(b.where(infinite, math.inf, length, large.dtype), result)


@converts("aten.square.default")
def _square(b: Builder, x: Value) -> Value:
    return b.pw("mul", x, x)


_BITS = {DType.F32: DType.I32, DType.F64: DType.I64, DType.F16: DType.I16, DType.BF16: DType.I16}


@converts("aten.nextafter.default")
def _nextafter(b: Builder, x: Value, y: Value) -> Value:
    """The float next to x towards y: the next whole number of its bits, up as it grows away from 0; y if they are
    equal.
    """
    _, result = promoted(x, y)
    if result not in _BITS:
        raise Refusal(f"nextafter of {result}, which torch does not have: convert to a float type first")
    bits, (x, y) = _BITS[result], (b.to(v, result) for v in (x, y))
    away = b.op("eq", b.pw("gt", y, x), b.pw("gt", x, 0.0))
    moved = b.pw("add", b.op("bitcast", x, dtype=bits), b.where(away, 1, -1, bits))
    least = b.where(b.pw("gt", y, 0.0), 1, INT_RANGE[bits][0] + 1, bits)  # beside 0, with the sign of y
    found = b.op("bitcast", b.where(b.pw("eq", x, 0.0), least, moved, bits), dtype=result)
    found = b.where(b.pw("eq", x, y), y, found, result)
    return b.where(b.op("or", b.op("isnan", x), b.op("isnan", y)), math.nan, found, result)
