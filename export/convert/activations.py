"""Activation functions, as sequences of scalar ops. The half types are computed in f32 and rounded once, as torch
does.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from hardtack.exporter.convert.builder import Builder
from hardtack.exporter.convert.pointwise import scalar_of
from hardtack.exporter.convert.table import Value, converts


def widened(formula: Callable[..., Value]) -> Any:
    """The formula applied to x in f32 where x is of a half type, and the result rounded back."""

    def convert(b: Builder, x: Value, *args: Any, **kwargs: Any) -> Value:
        return b.to(formula(b, b.wide(x), *args, **kwargs), x.dtype)

    return convert


@converts("aten.gelu.default")
@widened
def _gelu(b: Builder, x: Value, approximate: str = "none") -> Value:
    """x * Phi(x): by erf, or by tanh (Hendrycks and Gimpel, arXiv 1606.08415)."""
    half = b.pw("mul", x, 0.5)
    if approximate == "none":
        return b.pw("mul", half, b.pw("add", b.pw("erf", b.pw("mul", x, math.sqrt(0.5))), 1.0))
    cube = b.pw("mul", b.pw("mul", x, x), x)
    inner = b.pw("mul", b.pw("add", x, b.pw("mul", cube, 0.044715)), math.sqrt(2 / math.pi))
    return b.pw("mul", half, b.pw("add", b.pw("tanh", inner), 1.0))


@converts("aten.silu.default")
@widened
def _silu(b: Builder, x: Value) -> Value:
    return b.pw("mul", x, b.pw("sigmoid", x))


@converts("aten.hardswish.default")
@widened
def _hardswish(b: Builder, x: Value) -> Value:
    return b.pw("div", b.pw("mul", x, _relu6(b, b.pw("add", x, 3.0))), 6.0)


@converts("aten.hardsigmoid.default")
@widened
def _hardsigmoid(b: Builder, x: Value) -> Value:
    return b.pw("div", _relu6(b, b.pw("add", x, 3.0)), 6.0)


def _relu6(b: Builder, x: Value) -> Value:
    return b.pw("min", b.pw("max", x, 0.0), 6.0)


@converts("aten.elu.default")
@widened
def _elu(b: Builder, x: Value, alpha: Any = 1, scale: Any = 1, input_scale: Any = 1) -> Value:
    a, s, i = scalar_of(alpha), scalar_of(scale), scalar_of(input_scale)
    negative = b.pw("mul", b.pw("expm1", x if i == 1 else b.pw("mul", x, i)), a * s)
    positive = x if s == 1 else b.pw("mul", x, s)
    return b.where(b.pw("gt", x, 0.0), positive, negative, x.dtype)


@converts("aten.selu.default")
@widened
def _selu(b: Builder, x: Value) -> Value:
    """scale * elu(x, alpha) with the constants of Klambauer et al., arXiv 1706.02515."""
    alpha, scale = 1.6732632423543772848170429916717, 1.0507009873554804934193349852946
    negative = b.pw("mul", b.pw("expm1", x), alpha * scale)
    return b.where(b.pw("gt", x, 0.0), b.pw("mul", x, scale), negative, x.dtype)


@converts("aten.celu.default")
@widened
def _celu(b: Builder, x: Value, alpha: Any = 1.0) -> Value:
    a = scalar_of(alpha)
    negative = b.pw("mul", b.pw("expm1", b.pw("div", x, a)), a)
    return b.where(b.pw("gt", x, 0.0), x, negative, x.dtype)


@converts("aten.leaky_relu.default")
@widened
def _leaky_relu(b: Builder, x: Value, negative_slope: Any = 0.01) -> Value:
    return b.where(b.pw("gt", x, 0.0), x, b.pw("mul", x, scalar_of(negative_slope)), x.dtype)


@converts("aten.prelu.default", "aten._prelu_kernel.default")
def _prelu(b: Builder, x: Value, weight: Value) -> Value:
    """weight has one entry, or one a channel (dim 1)."""
    if x.rank == 0:
        weight = b.reshape(weight, ())
    elif weight.rank == 1 and x.rank > 1:
        weight = b.reshape(weight, (weight.shape[0], *([1] * (x.rank - 2))))
    return b.where(b.pw("gt", x, 0.0), x, b.pw("mul", x, weight), x.dtype)


@converts("aten.softplus.default")
@widened
def _softplus(b: Builder, x: Value, beta: Any = 1, threshold: Any = 20) -> Value:
    k = scalar_of(beta)
    scaled = x if k == 1 else b.pw("mul", x, k)
    soft = b.pw("log1p", b.pw("exp", scaled))
    soft = soft if k == 1 else b.pw("div", soft, k)
    return b.where(b.pw("gt", scaled, scalar_of(threshold)), x, soft, x.dtype)


@converts("aten.mish.default")
@widened
def _mish(b: Builder, x: Value) -> Value:
    """x * tanh(log(1 + e^x)); the logarithm in the form that does not overflow."""
    small = b.pw("log1p", b.pw("exp", b.pw("neg", b.pw("abs", x))))
    return b.pw("mul", x, b.pw("tanh", b.pw("add", b.pw("max", x, 0.0), small)))


@converts("aten.log_sigmoid.default", has_buffer=False)
@converts("aten.log_sigmoid_forward.default", has_buffer=True)
def _log_sigmoid(b: Builder, x: Value, *, has_buffer: bool) -> Any:
    """min(x, 0) - log(1 + e^-|x|)."""
    w = b.wide(x)
    small = b.pw("log1p", b.pw("exp", b.pw("neg", b.pw("abs", w))))
    out = b.to(b.pw("sub", b.pw("min", w, 0.0), small), x.dtype)
    return (out, None) if has_buffer else out


@converts("aten.logit.default")
@widened
def _logit(b: Builder, x: Value, eps: float | None = None) -> Value:
    if eps is not None:
        x = b.pw("min", b.pw("max", x, eps), 1.0 - eps)
    return b.pw("log", b.pw("div", x, b.pw("sub", b.cast(1.0, x.dtype), x)))


@converts("aten.glu.default")
def _glu(b: Builder, x: Value, dim: int = -1) -> Value:
    """The first half of dim times the sigmoid of the second."""
    at = dim % x.rank
    half = b.result.shape[at]
    gate = b.slice(x, at, half, half)
    wide = b.pw("mul", b.wide(b.slice(x, at, 0, half)), b.pw("sigmoid", b.wide(gate)))
    return b.to(wide, x.dtype)
