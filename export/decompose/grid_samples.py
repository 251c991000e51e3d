"""Images read at the places of a grid: grid_sample of two and of three dimensions, in ops that torch's core set has.

torch's own decomposition multiplies what lies outside of the image by a weight of 0. Where the element that it reads
instead is infinite, that is no number; here it is the element that becomes 0.
"""

from __future__ import annotations

import functools
import itertools
import operator
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

_HALF = (torch.float16, torch.bfloat16)
_OUTSIDE = -100.0
"""A coordinate of no element."""

_CUBIC = -0.75
"""The slope of the cubic convolution at 1 that torch has (Keys 1981)."""


def grid_sample(x: Tensor, grid: Tensor, mode: int, padding: int, align_corners: bool) -> Tensor:
    """x (N, C, sizes) at the places of grid (N, places, rank): (N, C, places). A place is -1 to 1 from edge to edge,
    the last dimension first. `mode`: 0 linear, 1 nearest, 2 cubic; `padding`: 0 zeros, 1 the border, 2 reflected.
    """
    if x.dtype in _HALF:
        return grid_sample(x.float(), grid.float(), mode, padding, align_corners).to(x.dtype)
    image = _Image(x, padding, align_corners)
    rank = x.dim() - 2
    at = [image.unbounded(grid[..., rank - 1 - k].unsqueeze(1), k) for k in range(rank)]
    if mode == 2:
        return _cubic(image, at)
    at = [image.bounded(c, k) for k, c in enumerate(at)]
    return image.read([c.round() for c in at]) if mode == 1 else _linear(image, at)


class _Image:
    """Elements of x by coordinates of its spatial dimensions, each (N, 1, places)."""

    def __init__(self, x: Tensor, padding: int, align_corners: bool) -> None:
        self.x, self.padding, self.align = x, padding, align_corners
        self.sizes: Sequence[Any] = x.shape[2:]

    def unbounded(self, place: Tensor, k: int) -> Tensor:
        """The coordinate along dimension k of a place."""
        n = self.sizes[k]
        found: Tensor = (place + 1) * ((n - 1) * 0.5) if self.align else (place + 1) * (n * 0.5) - 0.5
        return found

    def bounded(self, c: Tensor, k: int) -> Tensor:
        """The coordinate that is read in place of one outside of the image. What is no number is, as in eager, the
        first one of two dimensions, the last of three; without padding it stays what it is, or lies outside.
        """
        n, whole = self.sizes[k], len(self.sizes) == 3
        if self.padding == 0:
            return torch.where(c.isfinite(), c, _OUTSIDE) if whole else c
        if self.padding == 2:
            c = self._reflected(c, n)
        return torch.where(c < n - 1, c, n - 1).clamp(min=0) if whole else torch.where(c > 0, c, 0.0).clamp(max=n - 1)

    def _reflected(self, c: Tensor, n: Any) -> Tensor:
        first, span = (0.0, n - 1) if self.align else (-0.5, n)
        far = (c - first).abs()
        times = (far / span).floor()
        rest = far - times * span
        once = torch.where(torch.remainder(times, 2) == 0, rest + first, span + first - rest)
        return torch.where(torch.full_like(c, span) == 0, 0.0, once)

    def read(self, at: Sequence[Tensor]) -> Tensor:
        """The elements (N, C, places) at whole coordinates; 0 outside of the image."""
        inside = torch.ones_like(at[0], dtype=torch.bool)
        for c, n in zip(at, self.sizes, strict=True):
            inside = inside & (c >= 0) & (c < n)
        ones = [1] * (at[0].dim() - 2)
        batch = torch.arange(self.x.shape[0], device=self.x.device).view(-1, 1, *ones)
        channel = torch.arange(self.x.shape[1], device=self.x.device).view(1, -1, *ones)
        found = self.x[(batch, channel, *(torch.where(inside, c, 0.0).long() for c in at))]
        return torch.where(inside, found, 0.0)


def _linear(image: _Image, at: Sequence[Tensor]) -> Tensor:
    below = [c.floor() for c in at]
    parts: list[Tensor] = []
    for corner in itertools.product((0, 1), repeat=len(at)):
        shares = [c - low if high else low + 1 - c for c, low, high in zip(at, below, corner, strict=True)]
        weight = functools.reduce(operator.mul, shares)
        parts.append(image.read([low + high for low, high in zip(below, corner, strict=True)]) * weight)
    return functools.reduce(operator.add, parts)


def _cubic(image: _Image, at: Sequence[Tensor]) -> Tensor:
    y, x = at
    low, left = y.floor(), x.floor()
    rows = [image.bounded(low + i, 0) for i in range(-1, 3)]
    columns = [image.bounded(left + i, 1) for i in range(-1, 3)]
    lines = [_weighted([image.read([row, column]) for column in columns], x - left) for row in rows]
    return _weighted(lines, y - low)


def _weighted(values: Sequence[Tensor], t: Tensor) -> Tensor:
    """Four values at -1, 0, 1 and 2 by their distances from t, 0 to 1."""
    total = values[0] * _far(t + 1)
    return total + values[1] * _near(t) + values[2] * _near(1 - t) + values[3] * _far(2 - t)


def _near(d: Tensor) -> Tensor:
    return ((_CUBIC + 2) * d - (_CUBIC + 3)) * d * d + 1


def _far(d: Tensor) -> Tensor:
    return ((_CUBIC * d - 5 * _CUBIC) * d + 8 * _CUBIC) * d - 4 * _CUBIC
