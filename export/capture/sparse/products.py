"""Products of sparse matrices with dense ones: rows gathered, multiplied and added at their places."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from hardtack.exporter.capture.sparse.stand_ins import (
    Sparse,
    added,
    check,
    coordinates,
    refusal,
    sparse_dim,
    transposed,
    values_of,
    with_values,
    within,
)

_WIDE = {torch.float16: torch.float32, torch.bfloat16: torch.float32}


def matmul(a: Tensor, b: Tensor, reduce: str = "sum") -> Tensor:
    """a (m, k) times b (k, n) or (k,), of which one is sparse."""
    if isinstance(a, Sparse) and isinstance(b, Sparse):
        raise refusal("a product of two sparse tensors", "take .to_dense() of one of them")
    if isinstance(b, Sparse):
        turned = a.t() if a.dim() == 2 else a
        return matmul(transposed(_matrix(b)), turned).t() if a.dim() == 2 else matmul(transposed(_matrix(b)), turned)
    assert isinstance(a, Sparse)
    _matrix(a)
    if a.dtype != b.dtype:
        raise refusal(f"a product of a sparse tensor of {a.dtype} and a tensor of {b.dtype}", "convert one of them")
    if b.dim() not in (1, 2):
        raise refusal(f"a product of a sparse matrix and a tensor of rank {b.dim()}", "take a matrix or a vector")
    check(a.shape[1] == b.shape[0], "the sizes of the sparse tensor and of the dense one do not fit")
    column = b if b.dim() == 2 else b.unsqueeze(1)
    found = _rows(a, column, reduce)
    return found if b.dim() == 2 else found.squeeze(1)


def _matrix(a: Sparse) -> Sparse:
    if a.dim() != 2 or sparse_dim(a) != 2:
        raise refusal(f"a product of a sparse tensor of rank {a.dim()}", "take sparse matrices, one at a time")
    return a


def _rows(a: Sparse, b: Tensor, reduce: str) -> Tensor:
    """(m, n): of each row the products of its nonzeros with their rows of b, put together by `reduce`."""
    wide = _WIDE.get(a.dtype, a.dtype)
    row, column = within(coordinates(a), a.shape).unbind(0)
    parts = values_of(a).to(wide).unsqueeze(1) * b.to(wide).index_select(0, column)
    if reduce == "sum":
        return added(parts, row, a.shape[0]).to(a.dtype)
    if reduce not in ("mean", "amax", "amin"):
        raise refusal(f"sparse.mm with reduce={reduce!r}", "take sum, mean, amax or amin")
    out = torch.zeros((a.shape[0], b.shape[1]), dtype=wide, device=b.device)
    at = row.unsqueeze(1).expand(parts.shape)
    return out.scatter_reduce(0, at, parts, reduce, include_self=False).to(a.dtype)


def _addmm(bias: Tensor, a: Tensor, b: Tensor, *, beta: Any = 1, alpha: Any = 1) -> Tensor:
    if isinstance(bias, Sparse):
        raise refusal("addmm to a sparse tensor", "take .to_dense() of it")
    found: Tensor = matmul(a, b) * alpha
    return found if beta == 0 else bias * beta + found


def _sampled(a: Sparse, b: Tensor, c: Tensor, *, beta: Any = 1, alpha: Any = 1) -> Sparse:
    """At the places of a the products of b (m, k) and c (k, n), times alpha, and beta times a."""
    fit = a.shape[0] == b.shape[0], a.shape[1] == c.shape[1], b.shape[1] == c.shape[0]
    for condition in fit:
        check(condition, "the sizes of the sparse tensor and of the dense ones do not fit")
    row, column = within(coordinates(a), a.shape).unbind(0)
    found = (b.index_select(0, row) * c.t().index_select(0, column)).sum(1) * alpha
    return with_values(a, found if beta == 0 else values_of(a) * beta + found)


def _linear(x: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
    if not isinstance(weight, Sparse):
        raise refusal("linear of a sparse input", "write x @ weight.t()")
    flat = x.reshape(-1, x.shape[-1]) if x.dim() != 1 else x
    found = matmul(weight, flat.t() if x.dim() != 1 else flat)
    found = found.t().reshape((*x.shape[:-1], weight.shape[0])) if x.dim() != 1 else found
    return found if bias is None else found + bias


PRODUCTS: dict[str, Callable[..., Any]] = {
    "mm": matmul,
    "matmul": matmul,
    "__matmul__": matmul,
    "__rmatmul__": lambda a, b: matmul(b, a),
    "smm": matmul,
    "mv": matmul,
    "_sparse_mm": matmul,
    "addmm": _addmm,
    "addmv": _addmm,
    "_sparse_addmm": _addmm,
    "sparse_sampled_addmm": _sampled,
    "linear": _linear,
}
