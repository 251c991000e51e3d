"""Convolutions of int64, of integers all that eager has: products of shifted inputs, a term a place of the kernel."""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor


def convolution(
    x: Tensor,
    weight: Tensor,
    bias: Tensor | None,
    stride: Sequence[int],
    padding: Sequence[int],
    dilation: Sequence[int],
    transposed: bool,
    output_padding: Sequence[int],
    groups: int,
) -> Any:
    """x (N, C, *S) or (C, *S), weight (D, C / groups, *K), transposed (C, D / groups, *K). NotImplemented for other
    types, which the conversion table takes whole or refuses. Sums wrap as those of eager do.
    """
    if x.dtype is not torch.int64:
        return NotImplemented
    rank = weight.dim() - 2
    alone = x.dim() == rank + 1
    x = x.unsqueeze(0) if alone else x
    stride, padding, dilation, output_padding = (
        list(v) * (rank if len(v) == 1 else 1) for v in (stride, padding, dilation, output_padding)
    )
    if transposed:
        x, weight = _as_direct(x, weight, stride, padding, dilation, output_padding, groups)
        stride = [1] * rank
    else:
        x = F.pad(x, [w for p in reversed(padding) for w in (p, p)])
    out = _direct(x, weight, stride, dilation, groups)
    if bias is not None:
        out = out + bias.reshape(-1, *[1] * rank)
    return out.squeeze(0) if alone else out


def _direct(x: Tensor, weight: Tensor, stride: Sequence[int], dilation: Sequence[int], groups: int) -> Tensor:
    """Of a padded x."""
    kernel = weight.shape[2:]
    sizes = [(n - d * (k - 1) - 1) // s + 1 for n, d, k, s in zip(x.shape[2:], dilation, kernel, stride, strict=True)]
    batch, per_group = x.shape[0], weight.shape[0] // groups
    split = weight.reshape(groups, per_group, weight.shape[1], math.prod(kernel))
    out = torch.zeros((batch, groups, per_group, *sizes), dtype=x.dtype, device=x.device)
    for number, place in enumerate(itertools.product(*map(range, kernel))):
        part = x
        for k, (at, d, s, n) in enumerate(zip(place, dilation, stride, sizes, strict=True)):
            part = part.narrow(k + 2, at * d, (n - 1) * s + 1)
            part = torch.ops.aten.slice(part, k + 2, 0, (n - 1) * s + 1, s)
        part = part.reshape(batch, groups, 1, weight.shape[1], *sizes)
        factor = split.select(3, number).reshape(1, groups, per_group, weight.shape[1], *[1] * len(sizes))
        out = out + (part * factor).sum(3, dtype=x.dtype)
    return out.reshape(batch, weight.shape[0], *sizes)


def _as_direct(
    x: Tensor, weight: Tensor, stride: Sequence[int], padding: Sequence[int], dilation: Sequence[int],
    output_padding: Sequence[int], groups: int,
) -> tuple[Tensor, Tensor]:  # fmt: skip
    """What a direct convolution of stride 1 takes in place of a transposed one: x with zeros between its elements and
    around them, the kernel turned, its channels exchanged.
    """
    for k, (s, p, d, more) in enumerate(zip(stride, padding, dilation, output_padding, strict=True)):
        dim = k + 2
        n = x.shape[dim]
        if s > 1:
            wide = torch.zeros((*x.shape[: dim + 1], s - 1, *x.shape[dim + 1 :]), dtype=x.dtype, device=x.device)
            x = torch.cat([x.unsqueeze(dim + 1), wide], dim + 1).flatten(dim, dim + 1)
            x = x.narrow(dim, 0, (n - 1) * s + 1)
        around = d * (weight.shape[dim] - 1) - p
        x = F.pad(x, [0] * (2 * (x.dim() - dim - 1)) + [around, around + more])
    inputs, per_group = weight.shape[0], weight.shape[1]
    turned = weight.flip(tuple(range(2, weight.dim())))
    turned = turned.reshape(groups, inputs // groups, per_group, *weight.shape[2:]).transpose(1, 2)
    return x, turned.reshape(groups * per_group, inputs // groups, *weight.shape[2:])
