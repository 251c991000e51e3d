"""Sums by the place of an element, or by its value: segment_reduce and histograms."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

_REDUCES = {"sum": "sum", "mean": "sum", "max": "amax", "min": "amin", "prod": "prod"}
_EMPTY = {"sum": 0.0, "mean": 0.0, "max": -torch.inf, "min": torch.inf, "prod": 1.0}


def segment_reduce(
    data: Tensor, reduce: str, *, lengths: Tensor | None = None, indices: Tensor | None = None,
    offsets: Tensor | None = None, axis: int = 0, unsafe: bool = False, initial: float | None = None,
) -> Any:  # fmt: skip
    """Along an axis whose elements lie segment by segment, of (.., S) lengths or from (.., S + 1) offsets on. A segment
    of none has `initial`, or what the reduction begins with; as a mean NaN.
    """
    if offsets is None:
        assert lengths is not None
        ends = lengths.cumsum(-1)
        begins = ends - lengths
    else:
        begins, ends = offsets[..., :-1], offsets[..., 1:]
    count, size = ends.shape[-1], data.shape[axis]
    position = torch.arange(size, device=data.device).expand(*ends.shape[:-1], size)
    segment = torch.searchsorted(ends.contiguous(), position.contiguous(), right=True)
    segment = torch.where(position < begins[..., :1], count, segment)  # behind all that count
    trailing = data.shape[axis + 1 :]
    index = segment.reshape(*segment.shape, *([1] * len(trailing))).expand(data.shape)
    first = _EMPTY[reduce] if initial is None else initial
    found = data.new_full((*data.shape[:axis], count + 1, *trailing), first)
    found = found.scatter_reduce(axis, index, data, _REDUCES[reduce]).narrow(axis, 0, count)
    if reduce != "mean":
        return found
    sizes = (ends - begins).reshape(*ends.shape, *([1] * len(trailing))).to(data.dtype)
    empty = torch.nan if initial is None else initial
    return torch.where(sizes > 0, found / sizes, empty)


def histogram(
    x: Tensor, bins: int = 100, *, range: Sequence[float] | None = None, weight: Tensor | None = None,
    density: bool = False,
) -> tuple[Tensor, Tensor]:  # fmt: skip
    """Bins of one width between two edges, the smallest and the largest element where none are given."""
    if range is not None:
        low, high = (torch.full((), edge, dtype=x.dtype, device=x.device) for edge in range)
    elif x.numel():
        low, high = x.amin(), x.amax()
    else:
        low = high = x.new_zeros(())
    low, high = torch.where(low == high, low - 0.5, low), torch.where(low == high, high + 0.5, high)
    return _counted(x, torch.linspace(low, high, bins + 1, dtype=x.dtype, device=x.device), weight, density)


def histogram_between(
    x: Tensor, bins: Tensor, *, weight: Tensor | None = None, density: bool = False
) -> tuple[Tensor, Tensor]:
    """Between edges that ascend."""
    return _counted(x, bins, weight, density)


def _counted(x: Tensor, edges: Tensor, weight: Tensor | None, density: bool) -> tuple[Tensor, Tensor]:
    """How many, or how much weight, lies from each edge to the next; the last bin has its upper edge, too."""
    count, flat = edges.shape[0] - 1, x.reshape(-1)
    at = torch.searchsorted(edges, flat, right=True) - 1
    at = torch.where(flat == edges[-1], count - 1, at)
    inside = (flat >= edges[0]) & (flat <= edges[-1])
    amount = torch.ones_like(flat) if weight is None else weight.reshape(-1).to(x.dtype)
    zero = x.new_zeros(count + 1)
    found = zero.index_add(0, torch.where(inside, at, count), torch.where(inside, amount, 0))[:count]
    if density:
        found = found / (found.sum() * (edges[1:] - edges[:-1]))
    return found, edges.clone()
