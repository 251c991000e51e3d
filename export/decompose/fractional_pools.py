"""Pooling over windows whose places are drawn at random: the samples are an operand, the rest is arithmetic.

Windows along a dimension of n for m results of k elements (Graham, Fractional Max-Pooling, 2014; as torch has it): the
i-th begins at floor((i + u) a) - floor(u a), a = (n - k) / (m - 1), and the last one at n - k.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor


def fractional_max_pool2d(
    x: Tensor, kernel: Sequence[int], output: Sequence[int], samples: Tensor
) -> tuple[Tensor, Tensor]:
    """x (N, C, H, W) or without N, samples (N, C, 2): of the width, then of the height."""
    return _pool(x, kernel, output, samples.flip(-1))


def fractional_max_pool3d(
    x: Tensor, kernel: Sequence[int], output: Sequence[int], samples: Tensor
) -> tuple[Tensor, Tensor]:
    """x (N, C, T, H, W) or without N, samples (N, C, 3): of T, H and W."""
    return _pool(x, kernel, output, samples)


def _pool(x: Tensor, kernel: Sequence[int], output: Sequence[int], samples: Tensor) -> tuple[Tensor, Tensor]:
    """The largest element of each window, and its place among those of its plane."""
    dims = len(kernel)
    planes = x if x.dim() == dims + 2 else x.unsqueeze(0)
    sizes = planes.shape[2:]
    place: Tensor | int = 0
    for d in range(dims):
        starts = _starts(sizes[d], kernel[d], output[d], samples[..., d].to(x.dtype))
        along = starts.unsqueeze(-1) + torch.arange(kernel[d], device=x.device)
        shape = [1] * (2 * dims)
        shape[d], shape[dims + d] = output[d], kernel[d]
        place = place * sizes[d] + along.reshape(*along.shape[:2], *shape)
    assert isinstance(place, Tensor)
    place = place.flatten(2 + dims).flatten(2, 1 + dims)
    windows = planes.flatten(2).gather(2, place.flatten(2)).reshape(place.shape)
    largest, at = windows.max(-1)
    found = place.gather(-1, at.unsqueeze(-1)).squeeze(-1)
    shape = [*x.shape[: x.dim() - dims], *output]
    return largest.reshape(shape), found.reshape(shape)


def _starts(size: int, kernel: int, count: int, sample: Tensor) -> Tensor:
    """(N, C, count) of samples (N, C), in their dtype."""
    last = torch.full_like(sample, size - kernel, dtype=torch.int64).unsqueeze(-1)
    if count == 1:
        return last
    step = torch.full((), size - kernel, dtype=sample.dtype, device=sample.device) / (count - 1)
    u = sample.unsqueeze(-1)
    i = torch.arange(count - 1, device=sample.device).to(sample.dtype)
    return torch.cat([((i + u) * step).long() - (u * step).long(), last], -1)
