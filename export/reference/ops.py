"""The kinds of Graph ops in eager torch, one small function each."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F

from hardtack.codegen.ops import SCALAR_OPS
from hardtack.exporter.reference.step import ReferenceFailure, Step


def _sqrt(x: torch.Tensor) -> torch.Tensor:
    """The nearest number, as kernels have it and Python's own; MKL's, which torch takes of float64 on Intel's CPUs, are
    one unit off at times.
    """
    if x.dtype is not torch.float64:
        return x.sqrt()
    with np.errstate(invalid="ignore"):
        return torch.as_tensor(np.sqrt(x.numpy()))


_SCALAR: dict[str, Callable[..., torch.Tensor]] = {
    "floordiv": lambda a, b: torch.div(a, b, rounding_mode="floor"),
    "truncdiv": lambda a, b: torch.div(a, b, rounding_mode="trunc"),
    "max": lambda a, b: torch.where((a > b) | (a != a), a, b),
    "min": lambda a, b: torch.where((a < b) | (a != a), a, b),
    "and": torch.bitwise_and,
    "or": torch.bitwise_or,
    "xor": torch.bitwise_xor,
    "shl": torch.bitwise_left_shift,
    "shr": torch.bitwise_right_shift,
    "not": torch.bitwise_not,
    "fma": lambda a, b, c: a * b + c,
    "sqrt": _sqrt,
}


def _pointwise(s: Step) -> torch.Tensor:
    kind = s.op.kind
    function = _SCALAR.get(kind) or getattr(torch, kind)
    out: torch.Tensor = function(*s.args)
    return out


def _cast(s: Step) -> torch.Tensor:
    return s.args[0].to(s.dtype)


def _bitcast(s: Step) -> torch.Tensor:
    return s.args[0].contiguous().view(s.dtype)


def _code(s: Step) -> torch.Tensor:
    a, zero, most = s.args
    return (a.round() + zero).clamp(torch.zeros_like(most), most).nan_to_num(0).to(s.dtype)


def _iota(s: Step) -> torch.Tensor:
    shape, dim = s.shape, s.attr("dim")
    view = [1] * len(shape)
    view[dim] = shape[dim]
    return torch.arange(shape[dim]).view(view).expand(shape)


def _slice(s: Step) -> torch.Tensor:
    dim, start, step = s.attr("dim"), s.attr("start"), s.attr("step")
    length = s.shape[dim]
    size = s.args[0].shape[dim]
    if length and not (start >= 0 and start + (length - 1) * step < size):
        raise ReferenceFailure(f"slice {start}::{step} of {length} leaves dim {dim} of size {size}")
    index = (slice(None),) * dim + (slice(start, start + max(0, (length - 1) * step + 1) if length else start, step),)
    return s.args[0][index]


def _pad(s: Step) -> torch.Tensor:
    x, mode = s.args[0], s.attr("mode")
    lo, hi = list(s.attr("lo")), list(s.attr("hi"))
    if mode == "constant":
        widths = [w for pair in zip(reversed(lo), reversed(hi), strict=True) for w in pair]
        return F.pad(x, widths, value=s.args[1].item())
    for dim, (before, after) in enumerate(zip(lo, hi, strict=True)):
        index = _source_index(x.shape[dim], before, after, mode)
        x = x.index_select(dim, index)
    return x


def _source_index(size: int, before: int, after: int, mode: str) -> torch.Tensor:
    """Which element each position of a padded dim shows."""
    i = torch.arange(-before, size + after)
    if mode == "replicate":
        return i.clamp(0, size - 1)
    if mode == "circular":
        return i % size
    i = i.abs()
    return torch.where(i >= size, 2 * (size - 1) - i, i)


def _reduce(s: Step) -> torch.Tensor:
    x, kind, dims, keep = s.args[0], s.attr("kind"), list(s.attr("dims")), s.attr("keepdim")
    if kind in ("argmax", "argmin"):
        return _first_extreme(x, kind, dims[0], keep)
    if not dims:
        return x
    if kind == "sum":
        return x.sum(dims, keep, dtype=s.dtype)
    if kind in ("any", "all"):
        out: torch.Tensor = getattr(torch, kind)(x, dims, keep)
        return out
    if kind in ("max", "min") and any(x.shape[d] == 0 for d in dims):
        return torch.full(s.shape, _identity(x.dtype, kind), dtype=x.dtype)
    if kind in ("max", "min"):
        return x.amax(dims, keep) if kind == "max" else x.amin(dims, keep)
    for d in reversed(dims):
        x = x.prod(d, keep, dtype=x.dtype)
    return x


def _identity(dtype: torch.dtype, kind: str) -> float:
    """The extreme of no element."""
    if dtype.is_floating_point:
        return float("-inf") if kind == "max" else float("inf")
    return torch.iinfo(dtype).min if kind == "max" else torch.iinfo(dtype).max


def _first_extreme(x: torch.Tensor, kind: str, dim: int, keep: bool) -> torch.Tensor:
    """The first index of the extreme, NaN counting as one."""
    top = x.amax(dim, True) if kind == "argmax" else x.amin(dim, True)
    hit = (x == top) | (x != x)
    return hit.to(torch.uint8).argmax(dim, keep)


def _moments(s: Step) -> tuple[torch.Tensor, torch.Tensor]:
    """Of f64 by sums in pairs: torch.var_mean updates a mean number by number, and errs more."""
    x, groups = s.args[0].to(s.dtype), s.attr("groups")
    x = x.reshape(x.shape[0], groups, math.prod(x.shape[1:]) // groups)
    if x.dtype is not torch.float64 or not x.shape[2]:
        var, mean = torch.var_mean(x, 2, correction=0)
        return mean, var
    mean = x.mean(2, keepdim=True)
    mean = torch.where(mean.isfinite(), mean + (x - mean).mean(2, keepdim=True), mean)
    return mean.squeeze(2), (x - mean).square().mean(2)


def _scan(s: Step) -> torch.Tensor:
    x, kind, dim = s.args[0], s.attr("kind"), s.attr("dim")
    if kind == "sum":
        return x.cumsum(dim, dtype=x.dtype)
    if kind == "prod":
        return x.cumprod(dim, dtype=x.dtype)
    if kind == "logsumexp":
        return x.logcumsumexp(dim)
    return (x.cummax(dim) if kind == "max" else x.cummin(dim)).values


def _check_sign(s: Step, indices: Sequence[torch.Tensor]) -> None:
    if not s.op.wraps and any(bool((i < 0).any()) for i in indices):
        raise IndexError("an index is negative")


def _take(s: Step) -> torch.Tensor:
    x, indices, dims, at = s.args[0], s.args[1:], s.attr("dims"), s.attr("at")
    _check_sign(s, indices)
    rest = [d for d in range(x.dim()) if d not in dims]
    indices = list(torch.broadcast_tensors(*(i.long() for i in indices)))  # type: ignore[no-untyped-call]
    shape = (*indices[0].shape, *(x.shape[d] for d in rest))
    # torch looks up an index into no element also where it picks none
    picked = x.permute(*dims, *rest)[tuple(indices)] if 0 not in shape else x.new_empty(shape)
    n = indices[0].dim()
    return picked.permute([*range(n, n + at), *range(n), *range(n + at, picked.dim())])


def _put(s: Step) -> torch.Tensor:
    x, value, indices = s.args[0], s.args[1], s.args[2:]
    dims, at = s.attr("dims"), s.attr("at")
    _check_sign(s, indices)
    rest = [d for d in range(x.dim()) if d not in dims]
    if 0 in [x.shape[d] for d in rest]:
        return x.clone()  # torch looks the indices up also where they write nothing
    order = [*rest[:at], *dims, *rest[at:]]
    where = [None] * at + [i.long() for i in indices]
    out: torch.Tensor = torch.ops.aten.index_put.default(x.permute(order), where, value, s.attr("accumulate"))
    return out.permute([order.index(d) for d in range(x.dim())]).contiguous()


def _scatter(s: Step) -> torch.Tensor:
    x, index, src = s.args
    if s.attr("reduce") == "none":
        return x.scatter(s.attr("dim"), index.long(), src)
    return x.scatter_reduce(s.attr("dim"), index.long(), src, s.attr("reduce"), include_self=True)


def _sort(s: Step) -> tuple[torch.Tensor, ...]:
    return tuple(s.args[0].sort(dim=s.attr("dim"), descending=s.attr("descending"), stable=True))


def _topk(s: Step) -> tuple[torch.Tensor, ...]:
    return tuple(s.args[0].topk(s.shape[s.attr("dim")], s.attr("dim"), s.attr("largest"), sorted=True))


def _assert(s: Step) -> tuple[torch.Tensor, ...]:
    if not bool(s.args[0].all()):
        raise ReferenceFailure(str(s.attr("message")))
    return ()


def _matmul(s: Step) -> Any:
    """Of int8 by float64, which has each sum, modulo 2^32: torch has no fast product of int32."""
    if s.args[0].dtype is not torch.int8:
        return torch.matmul(*(a.to(s.dtype) for a in s.args))
    return torch.matmul(*(a.double() for a in s.args)).long().to(s.dtype)


def _grouped_matmul(s: Step) -> Any:
    a, b, ends = s.args[0].to(s.dtype), s.args[1].to(s.dtype), s.args[2]
    out, start = torch.zeros(s.shape, dtype=s.dtype), 0
    for g, end in enumerate(ends.tolist()):
        out[start:end] = a[start:end] @ b[g]
        start = max(start, end)
    return out


KERNELS: dict[str, Callable[[Step], Any]] = {
    **dict.fromkeys(SCALAR_OPS, _pointwise),
    "cast": _cast,
    "bitcast": _bitcast,
    "code": _code,
    "full": lambda s: torch.full(s.shape, s.args[0].item(), dtype=s.dtype),
    "iota": _iota,
    "reshape": lambda s: s.args[0].reshape(s.shape),
    "permute": lambda s: s.args[0].permute(s.attr("dims")),
    "expand": lambda s: s.args[0].expand(s.shape),
    "slice": _slice,
    "flip": lambda s: s.args[0].flip(s.attr("dims")),
    "cat": lambda s: torch.cat(s.args, s.attr("dim")),
    "pad": _pad,
    "reduce": _reduce,
    "moments": _moments,
    "scan": _scan,
    "matmul": _matmul,
    "grouped_matmul": _grouped_matmul,
    "take": _take,
    "put": _put,
    "gather": lambda s: s.args[0].gather(s.attr("dim"), s.args[1].long()),
    "scatter": _scatter,
    "sort": _sort,
    "topk": _topk,
    "assert": _assert,
}
"""kind -> function; reference_nn adds convolution, attention, pooling, resizing and recurrence."""
