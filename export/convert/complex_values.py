"""Comparisons, reductions and products of complex numbers with what is added to them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from hardtack.codegen.ir.expr import int_value, product
from hardtack.codegen.ir.types import DType
from hardtack.exporter.convert.builder import Builder
from hardtack.exporter.convert.complex import (
    COMPLEX,
    absolute,
    added,
    as_complex,
    converts_complex,
    matrix_product,
    times,
    truth,
)
from hardtack.exporter.convert.reductions import dims_of
from hardtack.exporter.convert.table import CONVERTERS, ComplexValue, Value
from hardtack.exporter.convert.value_sizes import true_places
from hardtack.exporter.dtypes import part_dtype
from hardtack.exporter.errors import Refusal


def _real(name: str, b: Builder, *args: Any, **kwargs: Any) -> Value:
    """What an op makes of real operands."""
    found = CONVERTERS[name](b, *args, **kwargs)
    assert isinstance(found, Value)
    return found


@converts_complex("_assert_tensor_metadata.default")
def _nothing(b: Builder, *_: Any, **__: Any) -> None:
    """Checks on what the types already say."""


@converts_complex("eq.Tensor", "eq.Scalar", kind="eq", joined="and")
@converts_complex("ne.Tensor", "ne.Scalar", kind="ne", joined="or")
def _compared(b: Builder, x: Any, y: Any, *, kind: str, joined: str) -> Value:
    if not isinstance(y, (Value, ComplexValue)):
        y = complex(y)
    other = as_complex(b, y)
    x = as_complex(b, x)
    re, im = (other.re, other.im) if isinstance(other, ComplexValue) else (other.real, other.imag)
    wide = DType.F64 if DType.F64 in (x.re.dtype, re.dtype if isinstance(re, Value) else None) else x.re.dtype
    return b.op(joined, b.pw(kind, x.re, re, dtype=wide), b.pw(kind, x.im, im, dtype=wide))


@converts_complex("isnan.default", kind="isnan")
@converts_complex("isinf.default", kind="isinf")
def _either(b: Builder, x: ComplexValue, *, kind: str) -> Value:
    return b.op("or", b.pw(kind, x.re), b.pw(kind, x.im))


@converts_complex("logical_not.default")
def _not(b: Builder, x: ComplexValue) -> Value:
    return b.op("not", truth(b, x))


@converts_complex("logical_and.default", kind="and")
@converts_complex("logical_or.default", kind="or")
@converts_complex("logical_xor.default", kind="xor")
def _logical(b: Builder, x: Any, y: Any, *, kind: str) -> Value:
    return b.op(kind, truth(b, x), truth(b, y))


_ALL = ("default", "dim", "dims")


@converts_complex(*(f"any.{o}" for o in _ALL), name="aten.any")
@converts_complex(*(f"all.{o}" for o in _ALL), name="aten.all")
def _any(b: Builder, x: ComplexValue, *args: Any, name: str) -> Value:
    return _real(f"{name}.dim" if args else f"{name}.default", b, truth(b, x), *args)


@converts_complex("linalg_vector_norm.default")
def _norm(b: Builder, x: ComplexValue, *args: Any, dtype: Any = None, **kwargs: Any) -> Value:
    """Of magnitudes; dtype: of x before, complex too."""
    part = None if dtype is None else part_dtype(dtype)
    return _real("aten.linalg_vector_norm.default", b, absolute(b, x), *args, dtype=part, **kwargs)


@converts_complex("var.correction", root=False)
@converts_complex("std.correction", root=True)
def _variance(b: Builder, x: ComplexValue, *args: Any, root: bool, **kwargs: Any) -> Value:
    """The variances of both parts, added up."""
    parts = [_real("aten.var.correction", b, part, *args, **kwargs) for part in (x.re, x.im)]
    total = b.pw("add", *parts)
    return b.pw("sqrt", total) if root else total


@converts_complex("var_mean.correction", root=False)
@converts_complex("std_mean.correction", root=True)
def _variance_and_mean(b: Builder, x: ComplexValue, dim: Any = None, *, root: bool, **kwargs: Any) -> Any:
    dims, keepdim = dims_of(x.re, dim), bool(kwargs.get("keepdim", False))
    spread = _variance(b, x, dim, root=root, **kwargs)
    return spread, _each(x, lambda part: b.mean(part, dims, keepdim))


@converts_complex("prod.default", "prod.dim_int")
def _prod(b: Builder, x: ComplexValue, dim: Any = None, keepdim: bool = False, *, dtype: Any = None) -> ComplexValue:
    """By halves: of 2n numbers the products of the first and the last n, until there is one."""
    x = ComplexValue(*(b.to(part, b.result.dtype) for part in (x.re, x.im)))
    for d in reversed(dims_of(x.re, dim)):
        x = _halved(b, x, d, keepdim)
    return x


def _fixed_length(x: ComplexValue, dim: int, what: str) -> int:
    n = int_value(x.re.shape[dim])
    if n is None:
        raise Refusal(f"{what} of complex numbers along a dynamic dimension: make it static")
    return n


def _each(x: ComplexValue, change: Callable[[Value], Value]) -> ComplexValue:
    return ComplexValue(change(x.re), change(x.im))


def _halved(b: Builder, x: ComplexValue, dim: int, keepdim: bool) -> ComplexValue:
    n = _fixed_length(x, dim, "a product")
    if n == 0:
        shape = [1 if d == dim else s for d, s in enumerate(x.re.shape)]
        x = ComplexValue(b.full(shape, 1, x.re.dtype), b.full(shape, 0, x.re.dtype))
        n = 1
    while n > 1:
        half = n // 2
        found = times(
            b,
            _each(x, lambda t, half=half: b.slice(t, dim, 0, half)),  # type: ignore[misc]
            _each(x, lambda t, half=half: b.slice(t, dim, half, half)),  # type: ignore[misc]
        )
        if n % 2:
            rest = _each(x, lambda t, n=n: b.slice(t, dim, n - 1, 1))  # type: ignore[misc]
            found = ComplexValue(b.cat([found.re, rest.re], dim), b.cat([found.im, rest.im], dim))
        x, n = found, half + n % 2
    return x if keepdim else _each(x, lambda t: b.reshape(t, [s for d, s in enumerate(t.shape) if d != dim]))


@converts_complex("cumprod.default")
def _cumprod(b: Builder, x: ComplexValue, dim: int, *, dtype: Any = None) -> ComplexValue:
    """By doubling: products of 2, of 4, of 8 numbers up to each one."""
    x = ComplexValue(*(b.to(part, b.result.dtype) for part in (x.re, x.im)))
    if x.re.rank == 0:
        return x
    dim %= x.re.rank
    n, step = _fixed_length(x, dim, "running products"), 1
    while step < n:
        lo = [step if d == dim else 0 for d in range(x.re.rank)]
        hi = [-step if d == dim else 0 for d in range(x.re.rank)]
        x = times(b, x, ComplexValue(b.pad(x.re, lo, hi, 1.0), b.pad(x.im, lo, hi, 0.0)))
        step *= 2
    return x


def _scaled(b: Builder, x: Any, factor: Any) -> Any:
    return x if factor == 1 else times(b, as_complex(b, x), factor)


@converts_complex("addmm.default", "baddbmm.default", "addmv.default")
def _addmm(b: Builder, x: Any, m: Any, n: Any, *, beta: Any = 1, alpha: Any = 1) -> ComplexValue:
    """beta * x + alpha * (m @ n); with beta 0, x does not matter."""
    found: ComplexValue = _scaled(b, matrix_product(b, as_complex(b, m), n), alpha)
    if beta != 0:
        found = added(b, found, _scaled(b, x, beta))
    return found


@converts_complex("addbmm.default")
def _addbmm(b: Builder, x: Any, m: Any, n: Any, *, beta: Any = 1, alpha: Any = 1) -> ComplexValue:
    whole = _each(matrix_product(b, as_complex(b, m), n), lambda t: b.reduce(t, "sum", [0], False))
    found: ComplexValue = _scaled(b, whole, alpha)
    return found if beta == 0 else added(b, found, _scaled(b, x, beta))


@converts_complex("softmax.int", name="aten.softmax.int")
@converts_complex("log_softmax.int", name="aten.log_softmax.int")
def _softmax_of_real_parts(b: Builder, x: ComplexValue, dim: int, dtype: Any = None, *, name: str) -> Value:
    """Of complex numbers eager takes the real parts, where it is told to give real numbers, and nothing else."""
    return _real(name, b, x.re, dim, dtype)


@converts_complex("rms_norm.default")
def _rms_norm(
    b: Builder, x: ComplexValue, normalized_shape: Sequence[Any], weight: Any = None, eps: float | None = None
) -> ComplexValue:
    """x / sqrt(mean(x^2) + eps) * weight, of squares that are complex, as eager computes it."""
    dims = list(range(len(x.shape) - len(normalized_shape), len(x.shape)))
    square = _each(times(b, x, x), lambda part: b.mean(part, dims, True))
    smallest = 2.0**-52 if x.dtype is DType.F64 else 2.0**-23
    scale = COMPLEX["aten.rsqrt.default"](b, added(b, square, smallest if eps is None else eps))
    out: ComplexValue = times(b, x, scale)
    return out if weight is None else times(b, out, weight)


@converts_complex("nonzero.default")
def _nonzero(b: Builder, x: ComplexValue) -> Value:
    return _real("aten.nonzero.default", b, truth(b, x))


@converts_complex("scatter.reduce", "scatter.value_reduce")
def _scatter(b: Builder, x: Any, dim: int, index: Value, src: Any, *, reduce: str) -> ComplexValue:
    """Sums, part by part. Refusal for products, in which a place may have any number of factors."""
    if reduce != "add":
        raise Refusal(f"scatter with reduce={reduce!r} of complex numbers: gather the factors and multiply them")
    src = as_complex(b, src if isinstance(src, (Value, ComplexValue)) else complex(src))
    parts = ((x.re, src.re), (x.im, src.im)) if isinstance(src, ComplexValue) else ((x.re, src.real), (x.im, src.imag))
    return ComplexValue(*(_real("aten.scatter.reduce", b, t, dim, index, s, reduce=reduce) for t, s in parts))


@converts_complex("masked_select.default")
def _masked_select(b: Builder, x: ComplexValue, mask: Value) -> ComplexValue:
    """By the places of those that the mask selects, which are read once."""
    shape = b.pw("eq", b.to(x.re, DType.BOOL), mask).shape
    places = true_places(b, b.reshape(b.expand(mask, shape), (product(shape),)))
    return _each(x, lambda t: b.op("take", b.reshape(b.expand(t, shape), (product(shape),)), places, dims=(0,), at=0))


def _linear_product(b: Builder, x: Value, weight: Value) -> Value:
    return _real("aten.linear.default", b, x, weight)


@converts_complex("linear.default")
def _linear(b: Builder, x: Any, weight: Any, bias: Any = None) -> ComplexValue:
    found: ComplexValue = matrix_product(b, as_complex(b, x), weight, _linear_product)
    if bias is not None:
        found = added(b, found, bias)
    return found
