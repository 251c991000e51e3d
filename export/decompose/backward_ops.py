"""The gradients that torch has one op for and no decomposition: of convolutions and of pooling.

grad is that of the op's result, in the place of which each function gives those of its operands, in their shapes and
dtypes. All of it is linear in grad: products, sums and shifted parts.
"""

from __future__ import annotations

import functools
import itertools
from collections.abc import Callable, Sequence
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

Size = Any
"""A size: a number, or a symbol of torch."""


def _convolution(
    grad: Tensor, x: Tensor, weight: Tensor, bias_sizes: Sequence[Size] | None, stride: Sequence[int],
    padding: Sequence[int], dilation: Sequence[int], transposed: bool, output_padding: Sequence[int], groups: int,
    output_mask: Sequence[bool],
) -> tuple[Tensor | None, Tensor | None, Tensor | None]:  # fmt: skip
    """x (N, C, *S), weight (O, C / groups, *K), transposed (C, O / groups, *K), grad (N, O, *T). The gradient of x is
    the other kind of convolution of grad; that of the weight a product of grad with the windows it came from.
    """
    count = len(stride)
    gradients: list[Tensor | None] = [None, None, None]
    if output_mask[0] and transposed:
        given = torch.ops.aten.convolution.default(
            grad, weight, None, stride, padding, dilation, False, [0] * count, groups
        )
        for d in range(count):  # more where the output was padded by a stride or more
            given = _every(given, 2 + d, 0, 1, x.shape[2 + d])
        gradients[0] = given
    elif output_mask[0]:
        spare = [
            x.shape[2 + d]
            - ((grad.shape[2 + d] - 1) * stride[d] - 2 * padding[d] + _reach(weight.shape[2 + d], dilation[d]))
            for d in range(count)
        ]
        gradients[0] = torch.ops.aten.convolution.default(
            grad, weight, None, stride, padding, dilation, True, spare, groups
        )
    if output_mask[1]:
        read, made = (grad, x) if transposed else (x, grad)
        gradients[1] = _of_weight(read, made, weight, stride, padding, dilation, groups)
    if output_mask[2]:
        gradients[2] = grad.sum([0, *range(2, grad.dim())])
    return gradients[0], gradients[1], gradients[2]


def _reach(kernel: Size, dilation: int) -> Size:
    """Points from the first to the last that a kernel reads."""
    return dilation * (kernel - 1) + 1


def _of_weight(
    x: Tensor, grad: Tensor, weight: Tensor, stride: Sequence[int], padding: Sequence[int], dilation: Sequence[int],
    groups: int,
) -> Tensor:  # fmt: skip
    """For each group (O / groups, N * T) by (N * T, C / groups * K), of x (N, C, *S) and grad (N, O, *T)."""
    kernel, points = weight.shape[2:], grad.shape[2:]
    padded = F.pad(x, [p for p in reversed(padding) for _ in range(2)])
    windows: list[Tensor] = []
    for at in itertools.product(*(range(k) for k in kernel)):
        part = padded
        for d, k in enumerate(at):
            part = _every(part, 2 + d, k * dilation[d], stride[d], points[d])
        windows.append(part.flatten(2))
    rows = _in_groups(torch.stack(windows, 2), groups)  # N, groups, C / groups, K, T
    rows = rows.permute(1, 0, 4, 2, 3).flatten(3).flatten(1, 2)
    sides = _in_groups(grad.flatten(2), groups).permute(1, 2, 0, 3).flatten(2)
    return torch.matmul(sides, rows).reshape(weight.shape)


def _in_groups(x: Tensor, groups: int) -> Tensor:
    """(N, C, ...) as (N, groups, C / groups, ...)."""
    return x.reshape(x.shape[0], groups, -1, *x.shape[2:])


def _every(x: Tensor, dim: int, start: int, step: int, count: Size) -> Tensor:
    """`count` elements along a dimension, each `step` behind the last."""
    found: Tensor = torch.ops.aten.slice.Tensor(x, dim, start, start + (count - 1) * step + 1, step)
    return found


def _max_pool(grad: Tensor, x: Tensor, indices: Tensor, count: int) -> Tensor:
    """Each element of grad goes to where its maximum was; windows that overlap may have the same one."""
    flat = torch.zeros_like(x).flatten(-count)
    return flat.scatter_add(-1, indices.flatten(-count), grad.flatten(-count)).view(x.shape)


def _max_pool2d(
    grad: Tensor, x: Tensor, kernel: Any, stride: Any, padding: Any, dilation: Any, ceil_mode: bool, indices: Tensor
) -> Tensor:
    return _max_pool(grad, x, indices, 2)


def _max_pool3d(
    grad: Tensor, x: Tensor, kernel: Any, stride: Any, padding: Any, dilation: Any, ceil_mode: bool, indices: Tensor
) -> Tensor:
    return _max_pool(grad, x, indices, 3)


def _avg_pool(
    count: int, grad: Tensor, x: Tensor, kernel: Sequence[int], stride: Sequence[int], padding: Sequence[int],
    ceil_mode: bool, count_include_pad: bool, divisor_override: int | None,
) -> Tensor:  # fmt: skip
    """Each element of grad, divided by its window's size, is added to all points of the window: a convolution with
    ones, of each channel by itself, cut to x."""
    kernel, padding = (_spread(v, count) for v in (kernel, padding))
    stride = _spread(stride, count) if len(stride) else kernel
    sizes, points = x.shape[-count:], grad.shape[-count:]
    if divisor_override:
        shares = grad / divisor_override
    else:
        counts = [
            _counts(sizes[d], points[d], kernel[d], stride[d], padding[d], count_include_pad, grad)
            for d in range(count)
        ]
        shares = grad
        for d, n in enumerate(counts):
            shares = shares / n.view(-1, *[1] * (count - 1 - d))
    plain = shares.reshape(-1, 1, *points)
    ones = torch.ones((1, 1, *kernel), dtype=grad.dtype, device=grad.device)
    zeros = [0] * count
    whole = torch.ops.aten.convolution.default(plain, ones, None, stride, zeros, [1] * count, True, zeros, 1)
    cut = [(-padding[d], padding[d] + sizes[d] - whole.shape[2 + d]) for d in range(count)]
    return F.pad(whole, [n for pair in reversed(cut) for n in pair]).reshape(x.shape)


def _counts(size: Size, points: Size, kernel: int, stride: int, padding: int, with_pad: bool, like: Tensor) -> Tensor:
    """How many points each window of one dimension is divided by, in like's dtype."""
    start = torch.arange(points, device=like.device) * stride - padding
    end = (start + kernel).clamp(max=size + padding)
    if not with_pad:
        start, end = start.clamp(min=0), end.clamp(max=size)
    return (end - start).to(like.dtype)


def _spread(numbers: Sequence[int], count: int) -> list[int]:
    return [*numbers] * count if len(numbers) == 1 else [*numbers]


def _adaptive_avg_pool(grad: Tensor, x: Tensor) -> Tensor:
    """Along each dimension a product with the matrix of windows, whose rows have 1 / size in their window: grad (...,
    *T), x (..., *S), of two dimensions."""
    rows, columns = (_windows(x.shape[d], grad.shape[d], grad) for d in (-2, -1))
    return torch.matmul(torch.matmul(rows.t(), grad), columns)


def _windows(size: Size, points: Size, like: Tensor) -> Tensor:
    """(points, size), in like's dtype."""
    at = torch.arange(points, device=like.device).unsqueeze(1)
    start = torch.div(at * size, points, rounding_mode="floor")
    end = torch.div((at + 1) * size + points - 1, points, rounding_mode="floor")
    place = torch.arange(size, device=like.device)
    return ((place >= start) & (place < end)).to(like.dtype) / (end - start).to(like.dtype)


OWN: dict[str, Callable[..., Any]] = {
    "aten.convolution_backward.default": _convolution,
    "aten.max_pool2d_with_indices_backward.default": _max_pool2d,
    "aten.max_pool3d_with_indices_backward.default": _max_pool3d,
    "aten.avg_pool2d_backward.default": functools.partial(_avg_pool, 2),
    "aten.avg_pool3d_backward.default": functools.partial(_avg_pool, 3),
    "aten._adaptive_avg_pool2d_backward.default": _adaptive_avg_pool,
}
