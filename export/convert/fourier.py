"""Fourier transforms as products with constant matrices."""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch

from hardtack.codegen.ir.expr import as_expr, floordiv, int_value
from hardtack.codegen.ir.types import DType
from hardtack.exporter.convert.builder import Builder
from hardtack.exporter.convert.complex import converts_complex
from hardtack.exporter.convert.linalg import product
from hardtack.exporter.convert.table import ComplexValue, Size, Value, converts
from hardtack.exporter.dtypes import TORCH_DTYPE
from hardtack.exporter.errors import Refusal

_LARGEST_TRANSFORM = 4096


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
