"""Resizing of images with antialias=True, in ops that torch's core set has: along each dimension, the last first, an
element is a weighted sum of the elements within a window, which is as wide as the filter is where the image shrinks.

Source of the windows and weights: torch's documentation of antialias, which follows Pillow; the cubic filter is the one
of Keys (1981) with a slope of -1/2 at 1.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.fx.experimental.symbolic_shapes import statically_known_true

from hardtack.exporter.errors import CaptureError

_CUBIC = -0.5
"""The slope of the cubic filter at 1; without antialias torch has -0.75."""


@dataclass(frozen=True)
class _Filter:
    """weight: of a distance >= 0, in elements of the larger of both images. reach: from where on it is 0."""

    weight: Callable[[Tensor], Tensor]
    reach: int


def _linear(distance: Tensor) -> Tensor:
    return (1 - distance).clamp(min=0)


def _cubic(d: Tensor) -> Tensor:
    near = ((_CUBIC + 2) * d - (_CUBIC + 3)) * d * d + 1
    far = (((d - 5) * d + 8) * d - 4) * _CUBIC
    return torch.where(d < 1, near, torch.where(d < 2, far, 0.0))


def _resize(
    kernel: _Filter,
    x: Tensor,
    output_size: Sequence[Any],
    align_corners: bool,
    scales_h: Any = None,
    scales_w: Any = None,
) -> Tensor:
    """x (N, C, H, W) of float32 or float64 at the sizes (h, w); scales: what the user gave, of h to H and of w to W.

    Raises CaptureError for other dtypes: eager has no half types, and integers in fixed point; and for results known to
    be one wide and several high, in all of whose rows eager has the first.
    """
    if x.dtype not in (torch.float32, torch.float64):
        raise CaptureError(
            f"interpolate with antialias=True of {x.dtype}: torch does this in fixed point, or not at all",
            fix="convert the image to float32 before, and back behind",
        )
    h, w = output_size
    if statically_known_true(w == 1) and not any(map(statically_known_true, (h == 1, h == x.shape[2]))):
        raise CaptureError(
            f"interpolate with antialias=True to a size of ({h}, 1): eager has the first row in all others, too",
            fix="give a width of at least 2, or resize the image's transpose, x.mT, and transpose the result",
        )
    for dim, size, scale in ((3, w, scales_w), (2, h, scales_h)):
        x = _along(kernel, x, dim, size, align_corners, scale)
    return x


bilinear = functools.partial(_resize, _Filter(_linear, 1))
bicubic = functools.partial(_resize, _Filter(_cubic, 2))


def _along(kernel: _Filter, x: Tensor, dim: int, m: Any, align_corners: bool, scale: float | None) -> Tensor:
    """Dimension 2 or 3 of x at size m."""
    n = x.shape[dim]
    if statically_known_true(n == m):
        return x
    i = torch.arange(m, device=x.device)
    same = torch.full_like(i, n) == m  # whatever the scale, it is what it was
    step = torch.where(same, 1.0, _step(x, n, m, align_corners, scale))
    radius = kernel.reach * step.clamp(min=1)
    center = step * (i.to(x.dtype) + 0.5)
    first, behind = (center - radius + 0.5).long().clamp(min=0), (center + radius + 0.5).long().clamp(max=n)
    first, behind = torch.where(same, i, first), torch.where(same, i + 1, behind)  # beside infinities, too
    k = torch.arange(_width(kernel.reach, n, m, align_corners, scale), device=x.device)[:, None]
    inside = k < behind - first
    # as eager rounds it: a weight that is 0 or nearly so decides what an infinity becomes
    distance = ((k + (first - center) + 0.5) * (1 / step.clamp(min=1))).abs()
    weight = torch.where(inside, kernel.weight(distance), 0.0)
    weight = weight / weight.sum(0)
    window = torch.ops.aten.index.Tensor(x, [*[None] * dim, (first + k).clamp(max=n - 1)])
    inside, weight = (t.reshape(*t.shape, *[1] * (3 - dim)) for t in (inside, weight))
    parts: Tensor = torch.where(inside, window * weight, 0.0)
    return parts.sum(dim)


def _step(x: Tensor, n: Any, m: Any, align_corners: bool, scale: float | None) -> Tensor:
    """How many of n elements lie between two of m, of x's dtype, as eager rounds it."""
    number = functools.partial(torch.full, (), dtype=x.dtype, device=x.device)
    if align_corners:
        return number(n - 1) / number(m - 1).clamp(min=1) * (number(m) > 1)
    return number(1 / scale) if scale else number(n) / number(m)


def _width(reach: int, n: Any, m: Any, align_corners: bool, scale: float | None) -> Any:
    """The most elements that a window has: of a width of twice the reach, and up to two at its ends."""
    if align_corners:
        n, m = n - 1, _larger(m - 1, 1)
    elif scale:
        return int(2 * reach * max(1 / scale, 1.0)) + 2
    return _larger(2 * reach, 2 * reach * n // m) + 2


def _larger(a: Any, b: Any) -> Any:
    return torch.sym_max(a, b)  # type: ignore[no-untyped-call]
