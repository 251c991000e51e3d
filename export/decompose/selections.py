"""Ops that pick elements by order or by place, in words of sorting, gathering and scattering."""

from __future__ import annotations

import torch
from torch import Tensor

_BITS = {
    torch.float32: (torch.int32, 23, 0x7F, 0x3F000000, -0x7F800001),
    torch.float64: (torch.int64, 52, 0x3FF, 0x3FE0000000000000, -0x7FF0000000000001),
}
"""Type of a float -> an integer of as many bits, bits of the fraction, the exponent of 1, the bits of a half, and all
bits but those of the exponent."""


def index_reduce(
    x: Tensor, dim: int, index: Tensor, source: Tensor, reduce: str, *, include_self: bool = True
) -> Tensor:
    """scatter_reduce, where all of a row have one index."""
    dim = dim % max(x.dim(), 1)
    shape = [1] * source.dim()
    if shape:
        shape[dim] = source.shape[dim]
    return x.scatter_reduce(dim, index.reshape(shape).expand(source.shape), source, reduce, include_self=include_self)


def frexp(x: Tensor) -> tuple[Tensor, Tensor]:
    """x = fraction * 2^exponent, 0.5 <= |fraction| < 1, by the bits; 0, infinities and NaN are their own fraction."""
    wide = x if x.dtype in _BITS else x.float()
    integer, fraction, bias, half, rest = _BITS[wide.dtype]
    tiny = wide.abs() < torch.finfo(wide.dtype).smallest_normal
    bits = torch.where(tiny, wide * 2.0 ** (fraction + 2), wide).view(integer)
    exponent = ((bits >> fraction) & (2 * bias + 1)) - torch.where(tiny, bias + fraction + 1, bias - 1)
    plain = torch.isfinite(wide) & (wide != 0)
    found = ((bits & rest) | half).view(wide.dtype)
    return torch.where(plain, found, wide).to(x.dtype), torch.where(plain, exponent, 0).to(torch.int32)


def nanmedian(x: Tensor) -> Tensor:
    """Of all elements that are numbers, the lower one of two."""
    return nanmedian_of_rows(x.reshape(-1), 0)[0]


def nanmedian_of_rows(x: Tensor, dim: int, keepdim: bool = False) -> tuple[Tensor, Tensor]:
    """NaN sorts last; a row of nothing else has it."""
    if x.dim() == 0:
        return x.clone(), torch.zeros_like(x, dtype=torch.int64)
    values, order = torch.sort(x, dim=dim, stable=True)
    numbers = (x == x).sum(dim, keepdim=True)
    return _picked(values, order, ((numbers - 1) // 2).clamp(min=0), dim, keepdim)


def mode(x: Tensor, dim: int = -1, keepdim: bool = False) -> tuple[Tensor, Tensor]:
    """The smallest of the most frequent values, and the last place where it is."""
    if x.dim() == 0:
        return x.clone(), torch.zeros_like(x, dtype=torch.int64)
    values, order = torch.sort(x, dim=dim, stable=True)
    size = x.shape[dim]
    places = torch.arange(size, device=x.device).reshape([-1 if d == dim % x.dim() else 1 for d in range(x.dim())])
    first = values.narrow(dim, 0, 1)
    changes = torch.cat([torch.ones_like(first, dtype=torch.bool), _after(values, dim) != _before(values, dim)], dim)
    start = torch.where(changes, places, 0).cummax(dim)[0]
    return _picked(values, order, (places - start).argmax(dim, keepdim=True), dim, keepdim)


def _before(x: Tensor, dim: int) -> Tensor:
    return x.narrow(dim, 0, x.shape[dim] - 1)


def _after(x: Tensor, dim: int) -> Tensor:
    return x.narrow(dim, 1, x.shape[dim] - 1)


def _picked(values: Tensor, order: Tensor, at: Tensor, dim: int, keepdim: bool) -> tuple[Tensor, Tensor]:
    found = values.gather(dim, at), order.gather(dim, at)
    return found if keepdim else (found[0].squeeze(dim), found[1].squeeze(dim))


def pdist(x: Tensor, p: float = 2.0) -> Tensor:
    """The distances of the pairs of rows, in the order of the first and then of the second."""
    rows = x.shape[0]
    if rows < 2:
        return x.new_zeros(0)
    places = torch.cat([torch.arange(i * rows + i + 1, (i + 1) * rows, device=x.device) for i in range(rows - 1)])
    left, right = x.index_select(0, places // rows), x.index_select(0, places % rows)
    found: Tensor = torch.linalg.vector_norm(left - right, p, dim=1)
    return found
