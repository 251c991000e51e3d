"""Normalisations and softmax as sequences of reductions and scalar ops: two passes, f32 for the half types."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from hardtack.codegen.ir import expr as ex
from hardtack.codegen.ir.expr import Expr, int_value
from hardtack.codegen.ir.types import DType
from hardtack.exporter.convert.builder import Builder
from hardtack.exporter.convert.reductions import centred, variance
from hardtack.exporter.convert.table import Result, Value, converts
from hardtack.exporter.dtypes import from_torch
from hardtack.exporter.errors import Refusal


def softmax(b: Builder, x: Value, dim: int) -> Value:
    """e^(x - max) / sum of it, along dim, in x's own dtype."""
    if x.rank == 0:  # 1, but for an infinity or a NaN
        return b.reshape(softmax(b, b.reshape(x, (1,)), 0), ())
    if int_value(x.shape[dim % x.rank]) == 0:
        return x
    shifted = b.pw("exp", b.pw("sub", x, b.reduce(x, "max", [dim], True, empty_ok=True)))
    return b.pw("div", shifted, b.reduce(shifted, "sum", [dim], True))


@converts("aten._softmax.default", "aten.softmax.int")
def _softmax(b: Builder, x: Value, dim: int, dtype: Any = None) -> Value:
    return b.to(softmax(b, _source(b, x, dtype), dim), b.result.dtype)


def _source(b: Builder, x: Value, dtype: Any) -> Value:
    """What a softmax is of: x in the dtype that is asked for, halves in f32. Refusal for one of integers."""
    source = b.to(x, from_torch(dtype)) if dtype not in (None, True, False) else x
    if not source.dtype.is_float:
        raise Refusal(f"torch has no softmax of {source.dtype.value}: convert the tensor to a floating dtype")
    return b.wide(source)


@converts("aten._safe_softmax.default")
def _safe_softmax(b: Builder, x: Value, dim: int, dtype: Any = None) -> Value:
    """softmax, with 0 for rows that are masked out as a whole."""
    source = b.wide(b.to(x, from_torch(dtype)) if dtype is not None else x)
    masked = b.reduce(b.pw("eq", source, float("-inf")), "all", [dim], True)
    return b.to(b.where(masked, 0.0, softmax(b, source, dim), source.dtype), b.result.dtype)


@converts("aten._log_softmax.default", "aten.log_softmax.int")
def _log_softmax(b: Builder, x: Value, dim: int, dtype: Any = None) -> Value:
    return b.to(log_softmax(b, _source(b, x, dtype), dim), b.result.dtype)


def log_softmax(b: Builder, x: Value, dim: int) -> Value:
    """x - max - log(sum(e^(x - max))), along dim, in x's own dtype."""
    if x.rank == 0:
        return b.reshape(log_softmax(b, b.reshape(x, (1,)), 0), ())
    if int_value(x.shape[dim % x.rank]) == 0:
        return x
    shifted = b.pw("sub", x, b.reduce(x, "max", [dim], True, empty_ok=True))
    total = b.pw("log", b.reduce(b.pw("exp", shifted), "sum", [dim], True))
    return b.pw("sub", shifted, total)


def normalised(b: Builder, x: Value, dims: Sequence[int], eps: float) -> tuple[Value, Value, Value]:
    """((x - mean) / sqrt(variance + eps), mean, 1 / sqrt(variance + eps)) over dims, which are kept with size 1."""
    mean, total = centred(b, x, dims)
    scale = b.pw("rsqrt", b.pw("add", b.over(total, x, dims), eps))
    return b.pw("mul", b.pw("sub", x, mean), scale), mean, scale


def affine(
    b: Builder, x: Value, weight: Value | None, bias: Value | None, shape: Sequence[Expr | int] | None = None
) -> Value:
    """x * weight + bias, both put into `shape` first."""
    for kind, v in (("mul", weight), ("add", bias)):
        if v is not None:
            x = b.pw(kind, x, v if shape is None else b.reshape(v, shape), dtype=x.dtype)
    return x


@converts("aten.layer_norm.default", has_statistics=False)
@converts("aten.native_layer_norm.default", has_statistics=True)
def _layer_norm(
    b: Builder,
    x: Value,
    normalized_shape: Sequence[Any],
    weight: Value | None = None,
    bias: Value | None = None,
    eps: float = 1e-5,
    cudnn_enable: bool = True,
    *,
    has_statistics: bool,
) -> Result:
    dims = list(range(x.rank - len(normalized_shape), x.rank))
    wide, mean, scale = normalised(b, b.wide(x), dims, eps)
    out = b.to(affine(b, wide, weight, bias), x.dtype)
    return (out, *_as_statistics(b, x, weight, mean, scale)) if has_statistics else out


def _as_statistics(b: Builder, x: Value, weight: Value | None, *found: Value) -> tuple[Value, ...]:
    """Means and scales in the dtype in which torch hands them out: x's, but f32 beside weights of f32."""
    return tuple(b.to(v, x.dtype if weight is None else weight.dtype) for v in found)


@converts("aten.rms_norm.default", has_scale=False)
@converts("aten._fused_rms_norm.default", has_scale=True)
def _rms_norm(
    b: Builder,
    x: Value,
    normalized_shape: Sequence[Any],
    weight: Value | None = None,
    eps: float | None = None,
    *,
    has_scale: bool,
) -> Result:
    """x / sqrt(mean(x^2) + eps) * weight; eps None is the dtype's machine epsilon (of the dtype that is computed
    in).
    """
    dims = list(range(x.rank - len(normalized_shape), x.rank))
    wide = b.wide(x)
    if eps is None:
        eps = 2.0**-52 if wide.dtype is DType.F64 else 2.0**-23
    scale = b.pw("rsqrt", b.pw("add", b.mean(b.pw("mul", wide, wide), dims, True), eps))
    out = b.to(affine(b, b.pw("mul", wide, scale), weight, None), b.result.dtype)
    return (out, scale) if has_scale else out


@converts("aten.group_norm.default")
def _group_norm(
    b: Builder,
    x: Value,
    num_groups: int,
    weight: Value | None = None,
    bias: Value | None = None,
    eps: float = 1e-5,
    cudnn_enabled: bool = True,
) -> Value:
    return _grouped(b, x, num_groups, weight, bias, eps)[0]


@converts("aten.native_group_norm.default")
def _native_group_norm(
    b: Builder, x: Value, weight: Value | None, bias: Value | None, n: Any, c: Any, hxw: Any, group: int, eps: float
) -> Result:
    out, mean, scale = _grouped(b, x, group, weight, bias, eps)
    return (out, *_as_statistics(b, x, weight, mean, scale))


def _grouped(
    b: Builder, x: Value, groups: int, weight: Value | None, bias: Value | None, eps: float
) -> tuple[Value, Value, Value]:
    """(normalised x, mean, 1 / sqrt(variance + eps)), the latter two of shape (N, groups).

    x is never reshaped, so that it keeps its order in memory, channels-last or not.
    """
    n, c = x.shape[:2]
    per_group = ex.floordiv(c, groups)
    spatial = [1] * (x.rank - 2)

    def by_channel(v: Value) -> Value:
        each = b.expand(b.unsqueeze(v, 2), (n, groups, per_group))
        return b.reshape(each, (n, c, *spatial))

    wide = b.wide(x)
    mean, spread = b.multi("moments", x, groups=groups)
    scale = b.pw("rsqrt", b.pw("add", spread, eps))
    distance = b.pw("sub", wide, by_channel(mean))
    out = affine(b, b.pw("mul", distance, by_channel(scale)), weight, bias, (c, *spatial))
    return b.to(out, x.dtype), mean, scale


@converts("aten.instance_norm.default")
def _instance_norm(
    b: Builder,
    x: Value,
    weight: Value | None,
    bias: Value | None,
    running_mean: Value | None,
    running_var: Value | None,
    use_input_stats: bool,
    momentum: float,
    eps: float,
    cudnn_enabled: bool,
) -> Value:
    per_channel: list[Expr | int] = [x.shape[1], *([1] * (x.rank - 2))]
    wide = b.wide(x)
    if not use_input_stats:
        if running_mean is None or running_var is None:
            raise Refusal("instance norm without statistics")
        out = _by_statistics(b, wide, weight, bias, running_mean, running_var, eps)
        return b.to(out, x.dtype)
    out, _, _ = normalised(b, wide, list(range(2, x.rank)), eps)
    return b.to(affine(b, out, weight, bias, per_channel), x.dtype)


@converts("aten.batch_norm.default")
def _batch_norm(
    b: Builder,
    x: Value,
    weight: Value | None,
    bias: Value | None,
    running_mean: Value | None,
    running_var: Value | None,
    training: bool,
    momentum: float,
    eps: float,
    cudnn_enabled: bool,
) -> Value:
    if training or running_mean is None or running_var is None:
        return _batch_statistics(b, x, weight, bias, eps)
    return b.to(_by_statistics(b, b.wide(x), weight, bias, running_mean, running_var, eps), x.dtype)


@converts("aten._native_batch_norm_legit_no_training.default")
def _batch_norm_inference(
    b: Builder,
    x: Value,
    weight: Value | None,
    bias: Value | None,
    running_mean: Value,
    running_var: Value,
    momentum: float,
    eps: float,
) -> Result:
    out = b.to(_by_statistics(b, b.wide(x), weight, bias, running_mean, running_var, eps), x.dtype)
    return out, *_no_moments(b)


def _no_moments(b: Builder) -> tuple[Value | None, Value | None]:
    """What stands for the batch's moments where it has no part: tensors without elements on CPUs."""
    first, second = (
        b.full(t.shape, 0, t.dtype) if t is not None and any(int_value(n) == 0 for n in t.shape) else None
        for t in b.stated[1:3]
    )
    return first, second


@converts("aten._native_batch_norm_legit.no_stats")
def _batch_norm_no_stats(
    b: Builder, x: Value, weight: Value | None, bias: Value | None, training: bool, momentum: float, eps: float
) -> Result:
    return _batch_statistics(b, x, weight, bias, eps), None, None


def _batch_moments(b: Builder, x: Value) -> tuple[Value, Value]:
    """(variance, mean) of each channel over all other dimensions, which stay with size 1."""
    return variance(b, b.wide(x), [d for d in range(x.rank) if d != 1], True, 0)


def _batch_statistics(b: Builder, x: Value, weight: Value | None, bias: Value | None, eps: float) -> Value:
    """Normalised by the batch's own mean and variance (track_running_stats=False)."""
    return _by_moments(b, x, weight, bias, eps, *_batch_moments(b, x))


def _by_moments(
    b: Builder, x: Value, weight: Value | None, bias: Value | None, eps: float, var: Value, mean: Value
) -> Value:
    out = b.pw("mul", b.pw("sub", b.wide(x), mean), b.pw("rsqrt", b.pw("add", var, eps)))
    return b.to(affine(b, out, weight, bias, (x.shape[1], *([1] * (x.rank - 2)))), x.dtype)


@converts("aten._native_batch_norm_legit_functional.default")
def _batch_norm_in_training(
    b: Builder,
    x: Value,
    weight: Value | None,
    bias: Value | None,
    running_mean: Value,
    running_var: Value,
    training: bool,
    momentum: float,
    eps: float,
) -> Result:
    """By the batch's own moments, of which the running ones take the share `momentum`, of the variance what the batch
    says of the population's.
    """
    types = [x.dtype if t is None else t.dtype for t in b.stated]  # of moments of half types float32
    if not training:
        out = b.to(_by_statistics(b, b.wide(x), weight, bias, running_mean, running_var, eps), x.dtype)
        return out, *_no_moments(b), b.to(running_mean, types[3]), b.to(running_var, types[4])
    return _training_results(b, x, weight, bias, running_mean, running_var, momentum, eps, types)


@converts("aten._batch_norm_with_update_functional.default")
def _batch_norm_with_update(
    b: Builder,
    x: Value,
    weight: Value | None,
    bias: Value | None,
    running_mean: Value,
    running_var: Value,
    momentum: float,
    eps: float,
) -> Result:
    """The same in training mode. Its fourth result is what cuDNN keeps, on CPUs a tensor without elements."""
    types = [x.dtype if t is None else t.dtype for t in b.stated]
    found = _training_results(b, x, weight, bias, running_mean, running_var, momentum, eps, (*types[:3], *types[4:]))
    reserved = b.stated[3]
    kept = None if reserved is None else b.full(reserved.shape, 0, reserved.dtype)
    return (*found[:3], kept, *found[3:])


def _training_results(
    b: Builder,
    x: Value,
    weight: Value | None,
    bias: Value | None,
    running_mean: Value,
    running_var: Value,
    momentum: float,
    eps: float,
    types: Sequence[DType],
) -> tuple[Value, ...]:
    """The result, what the backward pass reads, and the new running moments; `types`: of each."""
    var, mean = _batch_moments(b, x)
    count = ex.product(tuple(n for d, n in enumerate(x.shape) if d != 1))
    b.require("lt", 1, count, "batch norm in training needs more than one value of each channel")
    whole = b.pw("mul", var, b.pw("div", b.cast(count, var.dtype), b.cast(count - 1, var.dtype), dtype=var.dtype))
    kept = [
        b.to(
            b.pw(
                "add",
                b.pw("mul", b.to(before, var.dtype), 1 - momentum),
                b.pw("mul", b.reshape(now, before.shape), momentum),
            ),
            types[k],
        )
        for k, before, now in ((3, running_mean, mean), (4, running_var, whole))
    ]
    # for the backward pass
    inverse = b.pw("reciprocal", b.pw("sqrt", b.pw("add", var, eps)))
    saved = [b.to(b.reshape(t, running_mean.shape), types[k]) for k, t in ((1, mean), (2, inverse))]
    return _by_moments(b, x, weight, bias, eps, var, mean), saved[0], saved[1], kept[0], kept[1]


def _by_statistics(
    b: Builder, x: Value, weight: Value | None, bias: Value | None, mean: Value, var: Value, eps: float
) -> Value:
    """x * scale + shift with scale = weight / sqrt(var + eps), shift = bias - mean * scale: both fold to constants."""
    wide_var, wide_mean = b.to(b.wide(var), x.dtype), b.to(b.wide(mean), x.dtype)
    scale = b.pw("reciprocal", b.pw("sqrt", b.pw("add", wide_var, eps)))
    if weight is not None:
        scale = b.pw("mul", scale, weight, dtype=x.dtype)
    shift = b.pw("neg", b.pw("mul", wide_mean, scale))
    if bias is not None:
        shift = b.pw("add", shift, bias, dtype=x.dtype)
    return affine(b, x, scale, shift, (x.shape[1], *([1] * (x.rank - 2))))


@converts("aten.embedding_renorm.default")
def _embedding_renorm(b: Builder, weight: Value, indices: Value, max_norm: float, norm_type: float) -> Value:
    raise Refusal("renorm changes an embedding during the run: use max_norm=None")
