"""Complex numbers as pairs of real tensors.

A complex tensor never reaches the Graph: it is a ComplexValue while a program is converted, and of inputs, outputs and
states the Graph has the parts as a last dimension of 2 (ADR 0067). Ops that treat both
parts alike (views, sums) run once for each part; the rest have a row in COMPLEX.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

from hardtack.codegen.ir.types import DType
from hardtack.exporter.convert.builder import Builder
from hardtack.exporter.convert.linalg import product
from hardtack.exporter.convert.table import CONVERTERS, ComplexValue, Value, converts
from hardtack.exporter.errors import Refusal

_BOTH = """
    view.default reshape.default _unsafe_view.default unsqueeze.default squeeze.default squeeze.dim
    squeeze.dims permute.default transpose.int t.default expand.default repeat.default
    slice.Tensor select.int clone.default alias.default detach.default contiguous.default
    lift_fresh_copy.default cat.default stack.default flip.default roll.default split_with_sizes.default
    unbind.int index.Tensor index_select.default constant_pad_nd.default sum.default sum.dim_IntList
    mean.default mean.dim neg.default where.self unfold.default gather.default
    _to_copy.default diagonal.default diag_embed.default tril.default triu.default cumsum.default
    copy.default fill.Scalar fill.Tensor slice_scatter.default select_scatter.default diagonal_scatter.default
    index_put.default _unsafe_index_put.default index_add.default index_copy.default scatter.src scatter.value
    scatter_add.default masked_fill.Scalar masked_fill.Tensor
    reflection_pad1d.default reflection_pad2d.default reflection_pad3d.default
    view_copy.default pixel_shuffle.default pixel_unshuffle.default put.default
    replication_pad1d.default replication_pad2d.default replication_pad3d.default
    as_strided.default as_strided_copy.default as_strided_scatter.default new_empty_strided.default resize.default
"""
BOTH_PARTS = frozenset(f"aten.{name}" for name in _BOTH.split())
"""Ops that act on the real and the imaginary part alike."""

_WRITTEN = {
    **dict.fromkeys(("copy.default", "fill.Scalar", "fill.Tensor"), 1),
    **dict.fromkeys(("slice_scatter.default", "select_scatter.default", "diagonal_scatter.default"), 1),
    "as_strided_scatter.default": 1,
    "put.default": 2,
    **dict.fromkeys(("index_put.default", "_unsafe_index_put.default", "masked_fill.Scalar", "masked_fill.Tensor"), 2),
    **dict.fromkeys(("index_add.default", "index_copy.default", "scatter_add.default"), 3),
    **dict.fromkeys(("scatter.src", "scatter.value"), 3),
}
"""Ops that put a tensor, or a number, in the place of elements: where it stands among the operands."""

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


def convert_complex(b: Builder, name: str, args: tuple[Any, ...], kwargs: dict[str, Any], to_real: bool = False) -> Any:
    """Convert a call with a complex operand or result; to_real: torch states a real one. Refusal for ops that have no
    complex form here.
    """
    if name in _LIKE:  # only the type and shape of what is like the result count
        return CONVERTERS[name](b, *args, **kwargs) if to_real else _filled(b, name, args, kwargs)
    if name == "aten._to_copy.default" and to_real:
        return _to_real(b, args[0])
    if to_real and name in BOTH_PARTS:
        raise Refusal(f"{name} of complex numbers into real ones: take .real first")
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


_LIKE = frozenset(f"aten.{name}.default" for name in ("full_like", "new_full"))
_FILLS = _LIKE | {"aten.full.default", "aten.scalar_tensor.default"}


def _filled(b: Builder, name: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> ComplexValue:
    """A tensor of one number, its last positional argument."""
    halves: list[Value] = []
    for which in (0, 1):
        fill = _part(args[-1] if has_complex(args[-1]) else complex(args[-1]), which)
        made = CONVERTERS[name](b, *args[:-1], fill, **kwargs)
        assert isinstance(made, Value)
        halves.append(made)
    return ComplexValue(*halves)


def _to_real(b: Builder, x: ComplexValue) -> Value:
    """The real part; as bool whether a number is other than 0."""
    return truth(b, x) if b.result.dtype is DType.BOOL else b.to(x.re, b.result.dtype)


def truth(b: Builder, x: Any) -> Value:
    """Whether numbers are other than 0."""
    if isinstance(x, Value):
        return b.to(x, DType.BOOL)
    return b.op("or", b.to(x.re, DType.BOOL), b.to(x.im, DType.BOOL))


def complex_result(b: Builder, name: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Convert a call on real tensors that is complex because of its dtype, or of a number among its operands."""
    if name in COMPLEX and name.startswith(("aten.rand", "aten.normal")):
        return COMPLEX[name](b, *args, **kwargs)
    if not any(isinstance(x, complex) for x in args):
        return as_complex(b, CONVERTERS[name](b, *args, **kwargs))
    if name in _FILLS:
        return _filled(b, name, args, kwargs)
    if name in BOTH_PARTS:
        return convert_complex(b, name, args, kwargs)
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
    at = _WRITTEN.get(name.removeprefix("aten."))
    if at is not None:
        number = args[at] if isinstance(args[at], (Value, ComplexValue)) else complex(args[at])
        return (as_complex(b, args[0]), *args[1:at], as_complex(b, number), *args[at + 1 :])
    if name == "aten.where.self":
        return (args[0], as_complex(b, args[1]), as_complex(b, args[2]))
    if name == "aten.constant_pad_nd.default" and len(args) > 2:
        return (as_complex(b, args[0]), args[1], complex(args[2]))
    return (as_complex(b, args[0]), *args[1:])


def _part(x: Any, which: int) -> Any:
    """x with every complex tensor and number replaced by one of its parts."""
    if isinstance(x, dict):
        return {k: _part(v, which) for k, v in x.items()}
    if isinstance(x, (list, tuple)):
        return type(x)(_part(v, which) for v in x)
    if isinstance(x, complex):
        return (x.real, x.imag)[which]
    return (x.re, x.im)[which] if isinstance(x, ComplexValue) else x


@converts("aten.view_as_complex.default")
def of_pairs(b: Builder, x: Value) -> ComplexValue:
    """The numbers whose parts are a last dimension of 2."""
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
def pairs_of(b: Builder, x: ComplexValue) -> Value:
    """The parts as a last dimension of 2: how memory has complex numbers."""
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


@converts_complex("add.Tensor", "add.Scalar", kind="add")
@converts_complex("sub.Tensor", "sub.Scalar", kind="sub")
def added(b: Builder, x: Any, y: Any, alpha: Any = 1, *, kind: str = "add") -> ComplexValue:
    if alpha != 1:
        y = times(b, as_complex(b, y), alpha)
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


@converts_complex("div.Tensor", "div.Scalar")
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
def matrix_product(
    b: Builder, x: Any, y: Any, multiply: Callable[[Builder, Value, Value], Value] = product
) -> ComplexValue:
    """Four products of real matrices, or two where one operand is real. multiply: how these are multiplied."""
    (a, p), (c, q) = _parts(x), _parts(y)
    re, im = multiply(b, a, c), None
    if p is not None and q is not None:
        re = b.pw("sub", re, multiply(b, p, q))
    for left, right in ((a, q), (p, c)):
        if left is not None and right is not None:
            term = multiply(b, left, right)
            im = term if im is None else b.pw("add", im, term)
    assert im is not None
    return ComplexValue(re, im)
