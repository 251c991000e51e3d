"""Sparse tensors number by number, and their sums and softmax."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor

from hardtack.exporter.capture.sparse.stand_ins import (
    Sparse,
    as_coo,
    check,
    compressed,
    coordinates,
    dense,
    linear_index,
    refusal,
    sorted_once,
    sparse_dim,
    values_of,
    with_values,
    within,
)


def _of_values(function: Callable[[Tensor], Tensor]) -> Callable[[Sparse], Sparse]:
    """A function of each number that leaves 0 as it is; numbers of one place are added before it."""

    def call(a: Sparse) -> Sparse:
        a = a if a.layout is not torch.sparse_coo else sorted_once(a)
        return with_values(a, function(values_of(a)))

    return call


def _is_number(x: Any) -> bool:
    return isinstance(x, (int, float, complex, torch.SymInt, torch.SymFloat)) or (
        isinstance(x, Tensor) and not isinstance(x, Sparse) and x.dim() == 0
    )


def _mul(a: Any, b: Any) -> Sparse:
    """By a number, or by the elements of a dense tensor at a's places."""
    a, b = (a, b) if isinstance(a, Sparse) else (b, a)
    if _is_number(b):
        return with_values(a, values_of(a) * b)
    if isinstance(b, Sparse):
        raise refusal("a product of two sparse tensors, element by element", "take .to_dense() of one of them")
    if b.dim() > a.dim() or sparse_dim(a) != a.dim():
        raise refusal("a product of a sparse tensor and a dense one of higher rank", "take .to_dense() of the first")
    return with_values(a, values_of(a) * _picked(a, b.expand(a.shape)))


def _picked(a: Sparse, b: Tensor) -> Tensor:
    """The elements (nnz, ...) of a dense tensor of a's size, at a's places."""
    places = within(coordinates(a), a.shape[: sparse_dim(a)])
    return b[tuple(places.unbind(0))]


def _div(a: Any, b: Any, *, rounding_mode: str | None = None) -> Sparse:
    if not isinstance(a, Sparse) or not _is_number(b):
        raise refusal("a division by a sparse tensor, or of one by a tensor", "divide by a number")
    if rounding_mode is not None:
        return _of_values(lambda v: torch.div(v, b, rounding_mode=rounding_mode))(a)
    return with_values(a, values_of(a) / b)


def _add(a: Any, b: Any, *, alpha: Any = 1) -> Tensor:
    """Two sparse tensors have the numbers of both; of a sparse and a dense one the sum is dense."""
    if isinstance(a, Sparse) and isinstance(b, Sparse):
        check(a.shape == b.shape, "two sparse tensors of other sizes are added")
        layout, dtype = a.layout, torch.result_type(values_of(a), values_of(b))
        a, b = as_coo(a), as_coo(b)
        values = torch.cat([values_of(a).to(dtype), values_of(b).to(dtype) * alpha])
        found = Sparse(torch.sparse_coo, (torch.cat([a.parts[0], b.parts[0]], 1), values), a.shape)
        return found if layout is torch.sparse_coo else compressed(found, layout)
    if _is_number(a) or _is_number(b):
        raise refusal("a number is added to a sparse tensor", "take .to_dense() of it")
    first, second = (dense(x) if isinstance(x, Sparse) else x for x in (a, b))
    return torch.add(first, second, alpha=alpha)


def _sum(a: Sparse, dim: Any = None, keepdim: bool = False, *, dtype: torch.dtype | None = None) -> Tensor:
    """A dense number of all, or a sparse tensor of the dimensions that are left; dense if all of them are dense."""
    if isinstance(dim, torch.dtype):
        dim, dtype = None, dim
    values = values_of(a) if dtype is None else values_of(a).to(dtype)
    if dim is None or (isinstance(dim, Sequence) and not dim):
        return values.sum(dtype=dtype)
    dims = {d % a.dim() for d in ([dim] if isinstance(dim, int) else dim)}
    if keepdim or max(dims) >= sparse_dim(a):
        raise refusal("a sum of a sparse tensor that keeps dimensions, or over dense ones", "take .to_dense() of it")
    left = [d for d in range(a.dim()) if d not in dims]
    if not left:
        return values.sum(dtype=dtype)
    kept = [d for d in left if d < sparse_dim(a)]
    if not kept:
        return values.sum(0, dtype=dtype)
    places = torch.stack([coordinates(a)[d] for d in kept])
    return Sparse(torch.sparse_coo, (places, values), [a.shape[d] for d in left])


def _tensor_sum(a: Sparse, dim: Any = None, keepdim: bool = False, *, dtype: torch.dtype | None = None) -> Tensor:
    """As a method: of whole numbers int64, which torch.sparse.sum gives of all alone."""
    whole = not (a.dtype.is_floating_point or a.dtype.is_complex or dtype)
    return _sum(a, dim, keepdim, dtype=torch.int64 if whole else dtype)


def _softmax(log: bool) -> Callable[..., Sparse]:
    def softmax(a: Sparse, dim: int, dtype: torch.dtype | None = None) -> Sparse:
        """Over the numbers that are there, along one dimension."""
        if a.layout is not torch.sparse_coo or a.dim() != sparse_dim(a):
            raise refusal(f"softmax of a {a.layout} tensor with dense dimensions or compressed", "call .to_sparse()")
        a = sorted_once(a if dtype is None else with_values(a, values_of(a).to(dtype)))
        others = [d for d in range(a.dim()) if d != dim % a.dim()]
        places, size = within(coordinates(a), a.shape), [a.shape[d] for d in others]
        group = linear_index(torch.stack([places[d] for d in others]), size) if others else torch.zeros_like(places[0])
        count = math.prod(size)
        values = values_of(a)
        most = torch.zeros((count,), dtype=values.dtype, device=values.device)
        most = most.scatter_reduce(0, group, values, "amax", include_self=False)
        centred = values - most.index_select(0, group)
        total = torch.zeros_like(most).index_add(0, group, centred.exp()).index_select(0, group)
        return with_values(a, centred - total.log() if log else centred.exp() / total)

    return softmax


def _sparse_mask(x: Tensor, mask: Sparse) -> Sparse:
    if isinstance(x, Sparse):
        raise refusal("sparse_mask of a sparse tensor", "take .to_dense() of it")
    check(x.shape == mask.shape, "sparse_mask of a tensor of another size")
    mask = mask if mask.layout is not torch.sparse_coo else sorted_once(mask)
    return with_values(mask, _picked(mask, x))


_ODD = (
    "abs", "absolute", "asin", "asinh", "atan", "atanh", "ceil", "expm1", "floor", "frac", "log1p", "round", "sgn",
    "sign", "sin", "sinh", "sqrt", "square", "tan", "tanh", "trunc", "relu", "deg2rad", "rad2deg",
)  # fmt: skip
"""Functions of one number with f(0) = 0."""

ARITHMETIC: dict[str, Callable[..., Any]] = {
    **{name: _of_values(getattr(torch, name)) for name in _ODD},
    "neg": lambda a: with_values(a, -values_of(a)),
    "__neg__": lambda a: with_values(a, -values_of(a)),
    "mul": _mul,
    "__mul__": _mul,
    "__rmul__": _mul,
    "multiply": _mul,
    "div": _div,
    "__truediv__": _div,
    "true_divide": _div,
    "add": _add,
    "__add__": _add,
    "__radd__": _add,
    "sub": lambda a, b, *, alpha=1: _add(a, b, alpha=-alpha),
    "__sub__": lambda a, b: _add(a, b, alpha=-1),
    "sum": _tensor_sum,
    "_sparse_sum": _sum,
    "_sparse_softmax": _softmax(log=False),
    "_sparse_log_softmax": _softmax(log=True),
    "sparse_mask": _sparse_mask,
}
"""By the name of torch's function or method."""
