"""Tensors made from nothing, and the ops that make no tensor: checks."""

from __future__ import annotations

from typing import Any

import torch

from hardtack.codegen.ir.expr import Expr, as_expr, floordiv
from hardtack.codegen.ir.types import DType
from hardtack.exporter.convert.builder import Builder
from hardtack.exporter.convert.table import Number, Value, converts, refuses
from hardtack.exporter.dtypes import TORCH_DTYPE
from hardtack.exporter.errors import Refusal


@converts("aten.full.default", "aten.full_like.default", "aten.new_full.default")
def _full(b: Builder, source: Any, *rest: Any, **_: Any) -> Value:
    """The fill value is the last positional argument."""
    fill = rest[-1]
    if isinstance(fill, Value):
        return b.expand(b.to(fill, b.result.dtype), b.result.shape)
    return b.full(b.result.shape, fill, b.result.dtype)


_WINDOWS = [
    overload
    for name in ("hann_window", "hamming_window", "blackman_window", "bartlett_window", "kaiser_window")
    for overload in (getattr(getattr(torch.ops.aten, name), o) for o in getattr(torch.ops.aten, name).overloads())
    if not str(overload).endswith("out")
]


def _window(b: Builder, size: Any, *args: Any, op: Any, **_: Any) -> Value:
    """A window function of fixed length, which torch before 2.13 leaves whole."""
    if isinstance(size, (Value, Expr)):
        raise Refusal("a window whose length is dynamic: make it of fixed length in the module's constructor")
    content = op(size, *args, dtype=TORCH_DTYPE[b.result.dtype])
    return b.constant("_".join([op._schema.name.removeprefix("aten::"), *map(str, (size, *args))]), content)


for _overload in _WINDOWS:
    converts(str(_overload), op=_overload)(_window)


@converts("aten.fft_fftfreq.default", op=torch.fft.fftfreq)
@converts("aten.fft_rfftfreq.default", op=torch.fft.rfftfreq)
def _frequencies(b: Builder, n: Any, d: float = 1.0, *, op: Any, **_: Any) -> Value:
    """The frequencies of a transform of a fixed number of points."""
    if isinstance(n, (Value, Expr)):
        raise Refusal("the frequencies of a dynamic number of points: make them of torch.arange")
    return b.constant(f"{op.__name__}_{n}_{d}", op(n, d, dtype=TORCH_DTYPE[b.result.dtype]))


_LIKE = ("", "_like")
_ZEROS = [f"aten.{new}{kind}{like}.default" for kind in ("zeros", "empty") for new in ("", "new_") for like in _LIKE]


@converts(
    *(n for n in _ZEROS if not ("new_" in n and "_like" in n)),
    "aten.empty.memory_format",
    "aten.empty_permuted.default",
)
def _zeros(b: Builder, *_: Any, **__: Any) -> Value:
    """Memory that torch leaves unset is zero here: the same input gives the same bytes."""
    return b.full(b.result.shape, 0, b.result.dtype)


@converts("aten.empty_strided.default", "aten.new_empty_strided.default")
def _empty_strided(b: Builder, *_: Any, **__: Any) -> Value:
    return b.full(b.result.shape, 0, b.result.dtype)


@converts("aten.ones.default", "aten.ones_like.default", "aten.new_ones.default")
def _ones(b: Builder, *_: Any, **__: Any) -> Value:
    return b.full(b.result.shape, 1, b.result.dtype)


@converts("aten.scalar_tensor.default", "prims.scalar_tensor.default")
def _scalar_tensor(b: Builder, s: Any, **_: Any) -> Value:
    if isinstance(s, Value):
        return b.to(s, b.result.dtype)
    return b.full((), s, b.result.dtype)


@converts("aten.arange.default", "aten.arange.start", "aten.arange.start_step")
def _arange(b: Builder, *args: Any, **_: Any) -> Value:
    """start + i * step; in f64 for fractional steps of floating results, then rounded once."""
    start, step = (0, 1) if len(args) == 1 else (args[0], args[2] if len(args) > 2 else 1)
    index = b.iota(b.result.shape[0])
    result = b.result.dtype
    whole = all(isinstance(s, (int, Expr)) for s in (start, step))
    compute = DType.I64 if whole else DType.F64
    out = index if compute is DType.I64 else b.to(index, compute)
    if not (isinstance(step, (int, float)) and step == 1):
        out = b.pw("mul", out, step, dtype=compute)
    if not (isinstance(start, (int, float)) and start == 0):
        out = b.pw("add", out, start, dtype=compute)
    return b.to(out, result)


@converts("aten.linspace.default")
def _linspace(b: Builder, start: Any, end: Any, steps: Any, **_: Any) -> Value:
    """From both ends towards the middle, so that the last element is `end` itself."""
    count = as_expr(steps)
    compute = DType.F64 if b.result.dtype is DType.F64 else DType.F32
    if any(isinstance(s, Value) and not isinstance(s, Number) for s in (start, end)):
        raise Refusal("linspace between tensors")
    index = b.iota(count)
    if count is as_expr(1):
        return b.full(b.result.shape, start, b.result.dtype)
    step: Any = b.pw("div", _distance(b, start, end, compute), b.cast(count - 1, compute), dtype=compute)
    rising = b.pw("add", b.pw("mul", b.to(index, compute), step), b.cast(start, compute), dtype=compute)
    back = b.pw("sub", b.cast(count - 1, DType.I64), index, dtype=DType.I64)
    falling = b.pw("sub", b.cast(end, compute), b.pw("mul", b.to(back, compute), step), dtype=compute)
    first = b.pw("lt", index, b.cast(_half(count), DType.I64), dtype=DType.I64)
    return b.to(b.where(first, rising, falling, compute), b.result.dtype)


def _distance(b: Builder, start: Any, end: Any, compute: DType) -> Any:
    """end - start; of numbers that are known, rounded once."""
    if all(isinstance(s, (int, float)) for s in (start, end)):
        return b.cast(float(end) - float(start), compute)
    return b.pw("sub", b.cast(end, compute), b.cast(start, compute), dtype=compute)


def _half(count: Expr) -> Expr:
    return floordiv(count, 2)


@converts("aten.eye.default", "aten.eye.m")
def _eye(b: Builder, *_: Any, **__: Any) -> Value:
    rows, columns = b.result.shape
    hit = b.op("eq", b.unsqueeze(b.iota(rows), 1), b.iota(columns))
    return b.to(hit, b.result.dtype)


@converts("aten.tril.default", side="le")
@converts("aten.triu.default", side="ge")
def _triangle(b: Builder, x: Value, diagonal: Any = 0, *, side: str) -> Value:
    """Elements with column - row on the kept side of `diagonal`; 0 elsewhere."""
    rows = b.pw("add", b.unsqueeze(b.iota(x.shape[-2]), 1), diagonal)
    kept = b.op(side, b.iota(x.shape[-1]), rows)
    return b.where(kept, x, 0, x.dtype)


@converts("aten.tril_indices.default", make=torch.tril_indices)
@converts("aten.triu_indices.default", make=torch.triu_indices)
def _triangle_indices(b: Builder, row: int, col: int, offset: int = 0, *, make: Any, **_: Any) -> Value:
    rows, columns = (list(map(int, part)) for part in make(row, col, offset))
    if not rows:
        return b.full((2, 0), 0, b.result.dtype)
    if len(rows) > 4096:
        raise Refusal(f"{len(rows)} triangle indices written out: build them with torch.tril on a mask")
    parts = [[b.full((1,), v, DType.I64) for v in part] for part in (rows, columns)]
    return b.to(b.cat([b.unsqueeze(b.cat(p, 0), 0) for p in parts], 0), b.result.dtype)


@converts("aten.fill.Scalar", "aten.fill.Tensor", "aten.copy.default")
def _copy(b: Builder, x: Value, source: Any, non_blocking: bool = False) -> Value:
    """x with all its elements replaced: source, a tensor or a number, in x's shape and dtype."""
    if isinstance(source, Value):
        return b.expand(b.to(source, x.dtype), x.shape)
    return b.full(x.shape, source, x.dtype)


@converts(
    "aten._assert_tensor_metadata.default",
    "aten.sym_constrain_range.default",
    "aten.sym_constrain_range_for_size.default",
    "aten._print.default",
)
def _nothing(b: Builder, *_: Any, **__: Any) -> None:
    """Checks on what the types already say."""


@converts("aten._assert_scalar.default")
def _assert_scalar(b: Builder, condition: Any, message: str = "") -> None:
    """A condition on sizes: its guard comes with the program's."""
    if isinstance(condition, Value):
        b.multi("assert", b.to(condition, DType.BOOL), message=message or "a condition of the model failed")
    elif condition is False:
        raise Refusal(f"an assertion of the model never holds: {message}")


@converts("aten._assert_async.msg", "aten._assert_async.default")
def _assert_async(b: Builder, condition: Value, message: str = "an assertion of the model failed") -> None:
    b.multi("assert", b.to(condition, DType.BOOL), message=message)


refuses(
    "rows are not compared with one another: give each row a number, and take unique of these",
    "unique_dim",
)
refuses(
    "it reads a tensor's value into Python: keep the value a tensor",
    "_local_scalar_dense item equal is_nonzero",
)
refuses(
    "the program was captured with sparse tensors, which are taken apart while a module is: export the module",
    "sparse_coo_tensor _sparse_coo_tensor_with_dims_and_tensors _coalesce _to_sparse sparse_mask _sparse_mm "
    "_sparse_addmm _sparse_softmax _sparse_log_softmax _sparse_sum",
)
