"""Complex numbers as pairs of real tensors, and Fourier transforms as products with constant matrices.

A complex tensor never reaches the Graph: it is a ComplexValue while a program is converted. Ops that treat both
parts alike (views, sums) run once for each part; the rest have a row in COMPLEX.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import torch

from hardtack.codegen.ir.expr import as_expr, floordiv, int_value
from hardtack.codegen.ir.types import DType
from hardtack.exporter.convert.builder import Builder
from hardtack.exporter.convert.linalg import product
from hardtack.exporter.convert.table import CONVERTERS, ComplexValue, Size, Value, converts
from hardtack.exporter.dtypes import TORCH_DTYPE
from hardtack.exporter.errors import Refusal

_LARGEST_TRANSFORM = 4096

_BOTH = """
    view.default reshape.default _unsafe_view.default unsqueeze.default squeeze.default squeeze.dim
    squeeze.dims permute.default transpose.int t.default expand.default repeat.default
    slice.Tensor select.int clone.default alias.default detach.default contiguous.default
    lift_fresh_copy.default cat.default stack.default flip.default roll.default split_with_sizes.default
    unbind.int index.Tensor index_select.default constant_pad_nd.default sum.default sum.dim_IntList
    mean.default mean.dim neg.default where.self unfold.default gather.default
    _to_copy.default
"""
BOTH_PARTS = frozenset(f"aten.{name}" for name in _BOTH.split())
"""Ops that act on the real and the imaginary part alike."""

COMPLEX: dict[str, Callable[..., Any]] = {}
"""op name -> convert function for calls with a complex operand."""


def converts_complex(*names: str, **which: Any) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """As `converts`, for calls with a complex operand."""

    def register(function: Callable[..., Any]) -> Callable[..., Any]:
        COMPLEX.update({f"aten.{name}": partial(function, **which) for name in names})
        return function

    return register


def has_complex(x: Any) -> bool:
    """True if x is, or contains, a complex tensor."""
    if isinstance(x, (list, tuple)):
        return any(map(has_complex, x))
    return isinstance(x, ComplexValue)


def convert_complex(b: Builder, name: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Convert a call with a complex operand or result. Refusal for ops that have no complex form here."""
    if name in COMPLEX:
        if name not in CONVERTERS:
            args = (as_complex(b, args[0]), *args[1:])
        return COMPLEX[name](b, *args, **kwargs)
    if name not in BOTH_PARTS:
        raise Refusal(f"{name} on complex numbers is not supported: write it on the real and imaginary parts")
    args = _all_complex(b, name, args)
    halves: list[Any] = [CONVERTERS[name](b, *_part(args, p), **_part(kwargs, p)) for p in (0, 1)]
    if isinstance(halves[0], Value):
        return ComplexValue(halves[0], halves[1])
    return [ComplexValue(re, im) for re, im in zip(*halves, strict=True)]


_FILLS = frozenset(f"aten.{name}.default" for name in ("full", "full_like", "new_full", "scalar_tensor"))


def complex_result(b: Builder, name: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Convert a call on real tensors that is complex because of its dtype, or of a number among its operands."""
    if not any(isinstance(x, complex) for x in args):
        return as_complex(b, CONVERTERS[name](b, *args, **kwargs))
    if name in _FILLS:
        halves = [[_parts(x)[which] if isinstance(x, complex) else x for x in args] for which in (0, 1)]
        re, im = (CONVERTERS[name](b, *half, **kwargs) for half in halves)
        assert isinstance(re, Value)
        assert isinstance(im, Value)
        return ComplexValue(re, im)
    if name not in COMPLEX:
        raise Refusal(f"{name} with a complex number is not supported: write it on the real and imaginary parts")
    return COMPLEX[name](b, as_complex(b, args[0]), *args[1:], **kwargs)


def as_complex(b: Builder, x: Any) -> Any:
    """A real tensor with zeros as imaginary part; anything else as it is."""
    return ComplexValue(x, b.full(x.shape, 0, x.dtype)) if isinstance(x, Value) else x


def _all_complex(b: Builder, name: str, args: tuple[Any, ...]) -> tuple[Any, ...]:
    """The operands whose parts go separate ways, real ones among them made complex."""
    if name in ("aten.cat.default", "aten.stack.default"):
        return ([as_complex(b, x) for x in args[0]], *args[1:])
    if name == "aten.where.self":
        return (args[0], as_complex(b, args[1]), as_complex(b, args[2]))
    if name == "aten.constant_pad_nd.default" and len(args) > 2 and args[2]:
        raise Refusal("padding of complex numbers with something but zeros")
    return (as_complex(b, args[0]), *args[1:])


def _part(x: Any, which: int) -> Any:
    """x with every complex tensor replaced by one of its parts."""
    if isinstance(x, dict):
        return {k: _part(v, which) for k, v in x.items()}
    if isinstance(x, (list, tuple)):
        return type(x)(_part(v, which) for v in x)
    return (x.re, x.im)[which] if isinstance(x, ComplexValue) else x


@converts("aten.view_as_complex.default")
def _view_as_complex(b: Builder, x: Value) -> ComplexValue:
    return ComplexValue(b.select(x, x.rank - 1, 0), b.select(x, x.rank - 1, 1))


@converts("aten.complex.default")
def _from_parts(b: Builder, re: Value, im: Value) -> ComplexValue:
    return ComplexValue(b.expand(re, b.result.shape), b.expand(im, b.result.shape))


@converts("aten.polar.default")
def _polar(b: Builder, size: Value, angle: Value) -> ComplexValue:
    return from_polar(b, size, angle)


def from_polar(b: Builder, size: Value, angle: Value) -> ComplexValue:
    return ComplexValue(b.pw("mul", size, b.pw("cos", angle)), b.pw("mul", size, b.pw("sin", angle)))


@converts_complex("view_as_real.default", "view_as_real_copy.default")
def _view_as_real(b: Builder, x: ComplexValue) -> Value:
    return b.cat([b.unsqueeze(x.re, -1), b.unsqueeze(x.im, -1)], x.re.rank)


@converts_complex("real.default")
def _real(b: Builder, x: ComplexValue) -> Value:
    return x.re


@converts_complex("imag.default")
def _imag(b: Builder, x: ComplexValue) -> Value:
    return x.im


@converts_complex("_conj.default", "_conj_physical.default", "conj.default", "conj_physical.default")
def _conjugate(b: Builder, x: ComplexValue) -> ComplexValue:
    return ComplexValue(x.re, b.pw("neg", x.im))


@converts_complex("resolve_conj.default", "resolve_neg.default")
def _resolved(b: Builder, x: ComplexValue) -> ComplexValue:
    return x


@converts_complex("abs.default")
def absolute(b: Builder, x: ComplexValue) -> Value:
    found = CONVERTERS["aten.hypot.default"](b, x.re, x.im)
    assert isinstance(found, Value)
    return found


@converts_complex("angle.default")
def _angle(b: Builder, x: ComplexValue) -> Value:
    return b.pw("atan2", *(b.to(part, b.result.dtype) for part in (x.im, x.re)))


@converts_complex("exp.default")
def _exp(b: Builder, x: ComplexValue) -> ComplexValue:
    return from_polar(b, b.pw("exp", x.re), x.im)


def _parts(x: Any) -> tuple[Any, Any]:
    """(real part, imaginary part); None as the latter for a real operand."""
    if isinstance(x, ComplexValue):
        return x.re, x.im
    return (x.real, x.imag) if isinstance(x, complex) else (x, None)


@converts_complex("add.Tensor", kind="add")
@converts_complex("sub.Tensor", kind="sub")
def _add(b: Builder, x: Any, y: Any, alpha: Any = 1, *, kind: str) -> ComplexValue:
    if alpha != 1:
        raise Refusal("a complex sum with alpha")
    (a, p), (c, q) = _parts(x), _parts(y)
    re = _sum(b, kind, a, c)
    if p is None or q is None:
        im = p if q is None else (q if kind == "add" else b.pw("neg", q))
        im = b.expand(im, re.shape) if isinstance(im, Value) else b.full(re.shape, im, re.dtype)
    else:
        im = _sum(b, kind, p, q)
    return ComplexValue(re, im)


def _sum(b: Builder, kind: str, x: Any, y: Any) -> Value:
    return b.pw(kind, x, y, dtype=b.result.dtype)


@converts_complex("mul.Tensor", "mul.Scalar")
def _mul(b: Builder, x: Any, y: Any) -> ComplexValue:
    return times(b, x, y)


def times(b: Builder, x: Any, y: Any) -> ComplexValue:
    """(a + p i)(c + q i) = ac - pq + (aq + pc) i, of half types rounded once."""
    (a, p), (c, q) = _parts(x), _parts(y)
    if p is None or q is None:
        parts, factor = ((c, q), a) if p is None else ((a, p), c)
        return ComplexValue(_sum(b, "mul", parts[0], factor), _sum(b, "mul", parts[1], factor))
    a, p, c, q = (b.wide(t) if isinstance(t, Value) else t for t in (a, p, c, q))
    re = b.pw("sub", b.pw("mul", a, c), b.pw("mul", p, q))
    im = b.pw("add", b.pw("mul", a, q), b.pw("mul", p, c))
    return ComplexValue(b.to(re, b.result.dtype), b.to(im, b.result.dtype))


@converts_complex("div.Tensor")
def _div(b: Builder, x: Any, y: Any) -> ComplexValue:
    """By a real number part by part; by z as a product with conj(z) / |z|^2, both divided by the larger part of z
    before, whose square may be too large or too small for a number.
    """
    if isinstance(y, complex):
        return times(b, x, 1 / y)
    (a, p), (c, q) = _parts(x), _parts(y)
    if q is None:
        return ComplexValue(_sum(b, "div", a, c), _sum(b, "div", p, c))
    scale = b.pw("max", b.pw("abs", c), b.pw("abs", q))
    c, q = b.pw("div", c, scale), b.pw("div", q, scale)
    square = b.pw("add", b.pw("mul", c, c), b.pw("mul", q, q))
    conjugate = ComplexValue(c, b.pw("neg", q))
    rest = b.full(scale.shape, 0, c.dtype) if p is None else b.pw("div", p, scale)
    scaled = ComplexValue(b.pw("div", a, scale), rest)
    out = times(b, scaled, conjugate)
    return ComplexValue(b.pw("div", out.re, square), b.pw("div", out.im, square))


@converts_complex("reciprocal.default")
def reciprocal(b: Builder, x: ComplexValue) -> ComplexValue:
    found: ComplexValue = _div(b, 1.0, x)
    return found


@converts_complex("mm.default", "bmm.default", "matmul.default")
def _matmul(b: Builder, x: Any, y: Any) -> ComplexValue:
    (a, p), (c, q) = _parts(x), _parts(y)
    re, im = product(b, a, c), None
    if p is not None and q is not None:
        re = b.pw("sub", re, product(b, p, q))
    for left, right in ((a, q), (p, c)):
        if left is not None and right is not None:
            term = product(b, left, right)
            im = term if im is None else b.pw("add", im, term)
    assert im is not None
    return ComplexValue(re, im)


def _matrices(b: Builder, n: Size, rows: Size, columns: Size, like: Value) -> tuple[Value, Value]:
    """cos and sin of 2 pi j k / n, for j < rows and k < columns.

    The angle is what is left of the nearest quarter turn, reduced before it is rounded: 0, 1 and -1 are exact, and
    equal samples cancel as they do in eager.
    """
    fixed = int_value(n)
    if fixed is None:
        return _computed_matrices(b, n, rows, columns, like)
    if fixed > _LARGEST_TRANSFORM:
        raise Refusal(f"a Fourier transform of {fixed} points: at most {_LARGEST_TRANSFORM} are supported")
    height, width = int_value(rows) or 0, int_value(columns) or 0
    turns = (torch.arange(height)[:, None] * torch.arange(width)) % fixed
    quarters = (8 * turns + fixed) // (2 * fixed)
    angle = (4 * turns - quarters * fixed).double() * (math.pi / 2 / fixed)
    odd, one = quarters % 2 == 1, torch.ones((), dtype=torch.float64)
    cos = torch.where(odd, angle.sin(), angle.cos()) * torch.where((quarters + 1) % 4 > 1, -one, one)
    sin = torch.where(odd, angle.cos(), angle.sin()) * torch.where(quarters % 4 > 1, -one, one)
    names = [f"dft_{fixed}_{height}_{width}_{kind}" for kind in ("cos", "sin")]
    dtype = TORCH_DTYPE[like.dtype]
    return b.constant(names[0], cos.to(dtype)), b.constant(names[1], sin.to(dtype))


def _computed_matrices(b: Builder, n: Size, rows: Size, columns: Size, like: Value) -> tuple[Value, Value]:
    """The same for a dynamic number of points, computed during the run."""
    turns = b.pw("remainder", b.pw("mul", b.unsqueeze(b.iota(rows), 1), b.iota(columns)), n)
    quarters = b.pw("floordiv", b.pw("add", b.pw("mul", turns, 8), n), 2 * as_expr(n))
    rest = b.pw("sub", b.pw("mul", turns, 4), b.pw("mul", quarters, n))
    angle = b.pw("div", b.pw("mul", b.to(rest, DType.F64), math.pi / 2), n)
    odd = b.pw("eq", b.pw("remainder", quarters, 2), 1)

    def part(at_even: str, at_odd: str, shift: int) -> Value:
        size = b.where(odd, b.pw(at_odd, angle), b.pw(at_even, angle), DType.F64)
        minus = b.pw("gt", b.pw("remainder", b.pw("add", quarters, shift), 4), 1)
        return b.to(b.where(minus, b.pw("neg", size), size, DType.F64), like.dtype)

    return part("cos", "sin", 1), part("sin", "cos", 0)


def _own_conjugate(b: Builder, frequencies: Size, n: Size) -> Value:
    """Where a real signal's spectrum has no imaginary part: at frequency 0, and at n / 2 where n is even."""
    k = b.iota(frequencies)
    return b.op("or", b.pw("eq", k, 0), b.pw("eq", b.pw("mul", k, 2), n))


def _length(b: Builder, x: Value, dim: int) -> Size:
    n = x.shape[dim]
    b.require("le", 1, n, "a Fourier transform needs an element")
    return n


def _normalised(b: Builder, x: Value, n: Size, normalization: int) -> Value:
    """Divided by nothing, by the root of n, or by n."""
    fixed = int_value(n)
    if normalization == 0:
        return x
    if fixed is not None:
        return b.pw("mul", x, (1 / math.sqrt(fixed), 1 / fixed)[normalization - 1])
    size = b.cast(n, x.dtype)
    return b.pw("div", x, b.pw("sqrt", size) if normalization == 1 else size)


@converts("aten._fft_r2c.default")
def _fft_r2c(b: Builder, x: Value, dim: Sequence[int], normalization: int, onesided: bool) -> ComplexValue:
    """Real to complex along the last of dim, then complex to complex along the others."""
    at = dim[-1] % x.rank
    n = _length(b, x, at)
    cos, sin = _matrices(b, n, n, floordiv(n, 2) + 1 if onesided else n, x)
    rows = b.swap(x, at, -1)
    re, im = product(b, rows, cos), b.pw("neg", product(b, rows, sin))
    im = b.where(_own_conjugate(b, im.shape[-1], n), 0.0, im, im.dtype)  # also where a sample is infinite
    out = ComplexValue(*(b.swap(_normalised(b, t, n, normalization), at, -1) for t in (re, im)))
    return _fft_c2c(b, out, dim[:-1], normalization, True) if len(dim) > 1 else out


@converts_complex("_fft_c2c.default")
def _fft_c2c(b: Builder, x: ComplexValue, dim: Sequence[int], normalization: int, forward: bool) -> ComplexValue:
    for d in dim:
        at = d % x.re.rank
        n = _length(b, x.re, at)
        cos, sin = _matrices(b, n, n, n, x.re)
        re, im = b.swap(x.re, at, -1), b.swap(x.im, at, -1)
        first, second = ("add", "sub") if forward else ("sub", "add")
        new_re = b.pw(first, product(b, re, cos), product(b, im, sin))
        new_im = b.pw(second, product(b, im, cos), product(b, re, sin))
        x = ComplexValue(*(b.swap(_normalised(b, t, n, normalization), at, -1) for t in (new_re, new_im)))
    return x


@converts_complex("_fft_c2r.default")
def _fft_c2r(b: Builder, x: ComplexValue, dim: Sequence[int], normalization: int, last_dim_size: Size) -> Value:
    """The inverse of a real signal's half spectrum: every frequency but the first, and the middle one, counts twice."""
    if len(dim) > 1:
        x = _fft_c2c(b, x, dim[:-1], normalization, False)
    at, n = dim[-1] % x.re.rank, as_expr(last_dim_size)
    half = floordiv(n, 2) + 1
    parts = [b.swap(b.slice(t, at, 0, half), at, -1) for t in (x.re, x.im)]
    cos, sin = _matrices(b, n, half, n, x.re)
    # 2 for each frequency but the first and, where n is even, the last
    weight = b.where(_own_conjugate(b, half, n), 1.0, 2.0, x.re.dtype)
    weighted = [b.pw("mul", p, weight) for p in parts]
    out = b.pw("sub", product(b, weighted[0], cos), product(b, weighted[1], sin))
    return b.swap(_normalised(b, out, n, normalization), at, -1)
