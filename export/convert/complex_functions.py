"""Elementary functions of complex numbers, in words of the real ones of their parts."""

from __future__ import annotations

import math
from typing import Any

from hardtack.codegen.ir.types import DType
from hardtack.exporter.convert.builder import Builder
from hardtack.exporter.convert.complex import absolute, converts_complex, from_polar, reciprocal, times
from hardtack.exporter.convert.reductions import dims_of
from hardtack.exporter.convert.table import ComplexValue, Value


def _polar_parts(b: Builder, x: ComplexValue) -> tuple[Value, Value]:
    """(|x|, the angle of x)."""
    return absolute(b, x), b.pw("atan2", x.im, x.re)


@converts_complex("log.default", factor=1.0)
@converts_complex("log2.default", factor=1 / math.log(2))
@converts_complex("log10.default", factor=1 / math.log(10))
def _log(b: Builder, x: ComplexValue, *, factor: float) -> ComplexValue:
    size, angle = _polar_parts(b, x)
    return ComplexValue(b.pw("mul", b.pw("log", size), factor), b.pw("mul", angle, factor))


@converts_complex("logsumexp.default")
def _logsumexp(b: Builder, x: ComplexValue, dim: Any, keepdim: bool = False) -> ComplexValue:
    """log(sum(exp(x - m))) + m, m the largest real part, or 0 where that is infinite."""
    dims = dims_of(x.re, dim)
    largest = b.reduce(x.re, "max", dims, True) if dims else x.re
    largest = b.where(b.pw("eq", b.pw("abs", largest), math.inf), 0.0, largest, largest.dtype)
    scaled = from_polar(b, b.pw("exp", b.pw("sub", x.re, largest)), x.im)
    if dims:
        scaled = ComplexValue(*(b.reduce(part, "sum", dims, keepdim) for part in (scaled.re, scaled.im)))
    found: ComplexValue = _log(b, scaled, factor=1.0)
    return ComplexValue(b.pw("add", found.re, b.reshape(largest, found.re.shape)), found.im)


@converts_complex("sqrt.default")
def _sqrt(b: Builder, x: ComplexValue) -> ComplexValue:
    """The root with a real part of at least 0: half of |x| and the real part is a square of what is not lost."""
    root = b.pw("sqrt", b.pw("mul", b.pw("add", b.pw("abs", x.re), absolute(b, x)), 0.5))
    other = b.where(b.pw("eq", root, 0.0), x.im, b.pw("div", x.im, b.pw("mul", root, 2.0)), root.dtype)
    right = b.pw("ge", x.re, 0.0)
    re = b.where(right, root, b.pw("abs", other), root.dtype)
    return ComplexValue(re, b.where(right, other, b.pw("copysign", root, x.im), root.dtype))


@converts_complex("rsqrt.default")
def _rsqrt(b: Builder, x: ComplexValue) -> ComplexValue:
    found: ComplexValue = reciprocal(b, _sqrt(b, x))
    return found


@converts_complex("pow.Tensor_Scalar")
def _pow(b: Builder, x: ComplexValue, exponent: complex) -> ComplexValue:
    """Small whole powers by products, one half by a root, others by the logarithm; of 0 only positive ones are 0."""
    if exponent in (0.5, -0.5):
        root: ComplexValue = _sqrt(b, x) if exponent == 0.5 else _rsqrt(b, x)
        return root
    if exponent in (1, 2, 3, 4):
        found = x
        for _ in range(int(exponent.real) - 1):
            found = times(b, found, x)
        return found
    w = complex(exponent)
    size, angle = _polar_parts(b, x)
    log = b.pw("log", size)
    power = b.pw("exp", b.pw("sub", b.pw("mul", log, w.real), b.pw("mul", angle, w.imag)))
    turn = b.pw("add", b.pw("mul", log, w.imag), b.pw("mul", angle, w.real))
    found = from_polar(b, power, turn)
    if w == 0:
        return ComplexValue(b.full(x.re.shape, 1.0, x.re.dtype), b.full(x.re.shape, 0.0, x.re.dtype))
    if w.real <= 0:
        return found
    none = b.pw("eq", size, 0.0)
    return ComplexValue(b.where(none, 0.0, found.re, size.dtype), b.where(none, 0.0, found.im, size.dtype))


@converts_complex("pow.Tensor_Tensor", "pow.Scalar")
def _power(b: Builder, x: Any, y: Any) -> ComplexValue:
    """e^(y log x); of 0 it is 0 where y has a positive real part and no number else, as in eager: also 0 to the 0."""
    x, y = _complex_operand(b, x), _complex_operand(b, y)
    size, angle = _polar_parts(b, x)
    log = b.pw("log", size)
    power = b.pw("exp", b.pw("sub", b.pw("mul", log, y.re), b.pw("mul", angle, y.im)))
    turn = b.pw("add", b.pw("mul", log, y.im), b.pw("mul", angle, y.re))
    found = from_polar(b, power, turn)
    none, dtype = b.pw("eq", size, 0.0), size.dtype
    im = b.where(b.pw("gt", y.re, 0.0), 0.0, math.nan, dtype)
    re = b.where(b.pw("lt", y.re, 0.0), math.inf, im, dtype)
    return ComplexValue(b.where(none, re, found.re, dtype), b.where(none, im, found.im, dtype))


def _complex_operand(b: Builder, x: Any) -> ComplexValue:
    """A tensor or number as complex, in the type of the result."""
    dtype = b.result.dtype
    if isinstance(x, ComplexValue):
        return ComplexValue(b.to(x.re, dtype), b.to(x.im, dtype))
    if isinstance(x, Value):
        return ComplexValue(b.to(x, dtype), b.full(x.shape, 0, dtype))
    number = complex(x)
    return ComplexValue(b.full((), number.real, dtype), b.full((), number.imag, dtype))


@converts_complex("exp2.default")
def _exp2(b: Builder, x: ComplexValue) -> ComplexValue:
    return from_polar(b, b.pw("exp2", x.re), b.pw("mul", x.im, math.log(2)))


@converts_complex("expm1.default")
def _expm1(b: Builder, x: ComplexValue) -> ComplexValue:
    """(e^a - 1) cos b - 2 sin^2(b / 2), whose terms keep what 1 would take from small numbers."""
    half = b.pw("sin", b.pw("mul", x.im, 0.5))
    less = b.pw("mul", b.pw("mul", half, half), 2.0)
    re = b.pw("sub", b.pw("mul", b.pw("expm1", x.re), b.pw("cos", x.im)), less)
    return ComplexValue(re, b.pw("mul", b.pw("exp", x.re), b.pw("sin", x.im)))


@converts_complex("log1p.default")
def _log1p(b: Builder, x: ComplexValue) -> ComplexValue:
    """Near 0 half of log(1 + (2a + a^2 + b^2)), which keeps small numbers; else log|1 + x|."""
    one = b.pw("add", x.re, 1.0)
    square = b.pw("add", b.pw("mul", x.re, b.pw("add", x.re, 2.0)), b.pw("mul", x.im, x.im))
    near = b.pw("mul", b.pw("log1p", square), 0.5)
    far = b.pw("log", absolute(b, ComplexValue(one, x.im)))
    is_near = b.pw("lt", b.pw("max", b.pw("abs", x.re), b.pw("abs", x.im)), 0.5)
    return ComplexValue(b.where(is_near, near, far, near.dtype), b.pw("atan2", x.im, one))


@converts_complex("silu.default")
def _silu(b: Builder, x: ComplexValue) -> ComplexValue:
    return times(b, x, _sigmoid(b, x))


def _roots_about_one(b: Builder, x: ComplexValue) -> tuple[ComplexValue, ComplexValue]:
    """The roots of 1 - x and 1 + x."""
    minus = ComplexValue(b.pw("sub", 1.0, x.re, dtype=x.re.dtype), b.pw("neg", x.im))
    return _sqrt(b, minus), _sqrt(b, ComplexValue(b.pw("add", x.re, 1.0), x.im))


@converts_complex("asin.default")
def _asin(b: Builder, x: ComplexValue) -> ComplexValue:
    """Kahan's: products of the roots of 1 - x and 1 + x, in which nothing cancels."""
    s, t = _roots_about_one(b, x)
    below = b.pw("sub", b.pw("mul", s.re, t.re), b.pw("mul", s.im, t.im))
    im = b.pw("sub", b.pw("mul", s.re, t.im), b.pw("mul", s.im, t.re))
    return ComplexValue(b.pw("atan2", x.re, below), b.pw("asinh", im))


@converts_complex("acos.default")
def _acos(b: Builder, x: ComplexValue) -> ComplexValue:
    s, t = _roots_about_one(b, x)
    im = b.pw("sub", b.pw("mul", t.re, s.im), b.pw("mul", t.im, s.re))
    return ComplexValue(b.pw("mul", b.pw("atan2", s.re, t.re), 2.0), b.pw("asinh", im))


@converts_complex("acosh.default")
def _acosh(b: Builder, x: ComplexValue) -> ComplexValue:
    s = _sqrt(b, ComplexValue(b.pw("sub", x.re, 1.0), x.im))
    t = _sqrt(b, ComplexValue(b.pw("add", x.re, 1.0), x.im))
    re = b.pw("add", b.pw("mul", s.re, t.re), b.pw("mul", s.im, t.im))
    return ComplexValue(b.pw("asinh", re), b.pw("mul", b.pw("atan2", s.im, t.re), 2.0))


@converts_complex("asinh.default")
def _asinh(b: Builder, x: ComplexValue) -> ComplexValue:
    """asinh z = i asin(-iz)."""
    found: ComplexValue = _asin(b, ComplexValue(x.im, b.pw("neg", x.re)))
    return ComplexValue(b.pw("neg", found.im), found.re)


@converts_complex("atanh.default")
def _atanh(b: Builder, x: ComplexValue) -> ComplexValue:
    """A quarter of log(((1 + a)^2 + b^2) / ((1 - a)^2 + b^2)), as what that is more than 1."""
    less = b.pw("sub", 1.0, x.re, dtype=x.re.dtype)
    square = b.pw("mul", x.im, x.im)
    below = b.pw("add", b.pw("mul", less, less), square)
    re = b.pw("mul", b.pw("log1p", b.pw("div", b.pw("mul", x.re, 4.0), below)), 0.25)
    rest = b.pw("sub", b.pw("mul", less, b.pw("add", x.re, 1.0)), square)
    return ComplexValue(re, b.pw("mul", b.pw("atan2", b.pw("mul", x.im, 2.0), rest), 0.5))


@converts_complex("atan.default")
def _atan(b: Builder, x: ComplexValue) -> ComplexValue:
    """atan z = -i atanh iz."""
    found: ComplexValue = _atanh(b, ComplexValue(b.pw("neg", x.im), x.re))
    return ComplexValue(found.im, b.pw("neg", found.re))


@converts_complex("sin.default", hyperbolic=False, cosine=False)
@converts_complex("cos.default", hyperbolic=False, cosine=True)
@converts_complex("sinh.default", hyperbolic=True, cosine=False)
@converts_complex("cosh.default", hyperbolic=True, cosine=True)
def _sines(b: Builder, x: ComplexValue, *, hyperbolic: bool, cosine: bool) -> ComplexValue:
    """sin(a + bi) = sin a cosh b + cos a sinh b i, and cos, sinh and cosh likewise."""
    angle, power = (x.im, x.re) if hyperbolic else (x.re, x.im)
    first, second = ("cos", "sin") if cosine or hyperbolic else ("sin", "cos")
    grow = ("sinh", "cosh") if hyperbolic and not cosine else ("cosh", "sinh")
    re = b.pw("mul", b.pw(first, angle), b.pw(grow[0], power))
    im = b.pw("mul", b.pw(second, angle), b.pw(grow[1], power))
    return ComplexValue(re, b.pw("neg", im) if cosine and not hyperbolic else im)


@converts_complex("tanh.default")
def _tanh(b: Builder, x: ComplexValue) -> ComplexValue:
    """(sinh 2a + sin 2b i) / (cosh 2a + cos 2b), of an a beyond which the real part is 1."""
    most = 10.0 if x.re.dtype is DType.F32 else 20.0
    twice = b.pw("mul", b.pw("max", b.pw("min", x.re, most), -most), 2.0)
    angle = b.pw("mul", x.im, 2.0)
    below = b.pw("add", b.pw("cosh", twice), b.pw("cos", angle))
    return ComplexValue(b.pw("div", b.pw("sinh", twice), below), b.pw("div", b.pw("sin", angle), below))


@converts_complex("tan.default")
def _tan(b: Builder, x: ComplexValue) -> ComplexValue:
    """tan z = -i tanh iz."""
    found: ComplexValue = _tanh(b, ComplexValue(b.pw("neg", x.im), x.re))
    return ComplexValue(found.im, b.pw("neg", found.re))


@converts_complex("sigmoid.default")
def _sigmoid(b: Builder, x: ComplexValue) -> ComplexValue:
    """1 / (1 + exp(-x)), of a real part whose exponential a number can hold."""
    least = -80.0 if x.re.dtype is DType.F32 else -700.0
    power = from_polar(b, b.pw("exp", b.pw("neg", b.pw("max", x.re, least))), b.pw("neg", x.im))
    found: ComplexValue = reciprocal(b, ComplexValue(b.pw("add", power.re, 1.0), power.im))
    return found
