"""The gradients that torch has one op for, taken apart, beside torch's kernels."""

from __future__ import annotations

import itertools
from typing import Any

import pytest
import torch
from torch import Tensor

from hardtack.exporter.decompose.backward_ops import OWN

aten = torch.ops.aten


def _check(name: str, *args: Any) -> None:
    want, found = getattr(aten, name).default(*args), OWN[f"aten.{name}.default"](*args)
    pairs = zip(found, want, strict=True) if isinstance(want, tuple) else [(found, want)]
    for ours, theirs in pairs:
        assert (ours is None) == (theirs is None)
        if theirs is not None:
            torch.testing.assert_close(ours, theirs, rtol=1e-9, atol=1e-9)


def _normal(*shape: int) -> Tensor:
    return torch.randn(shape, dtype=torch.float64, generator=torch.Generator().manual_seed(sum(shape)))


@pytest.mark.parametrize("transposed", [False, True])
@pytest.mark.parametrize("rank", [1, 2, 3])
def test_convolutions(rank: int, transposed: bool) -> None:
    for stride, padding, dilation, groups, size in itertools.product(
        (1, 2), (0, 1), (1, 2), (1, 2), (7, 8)[: 4 - rank]
    ):
        x = _normal(2, 4, *[size] * rank)
        weight = _normal(*((4, 6 // groups) if transposed else (6, 4 // groups)), *[3] * rank)
        spare = [int(transposed and max(stride, dilation) > 1)] * rank
        numbers = ([stride] * rank, [padding] * rank, [dilation] * rank, transposed, spare, groups)
        grad = _normal(*aten.convolution.default(x, weight, None, *numbers).shape)
        _check("convolution_backward", grad, x, weight, [6], *numbers, [True] * 3)


def test_only_what_is_asked_for() -> None:
    x, weight = _normal(2, 4, 7, 7), _normal(6, 4, 3, 3)
    numbers = ([1, 1], [0, 0], [1, 1], False, [0, 0], 1)
    for mask in itertools.product((False, True), repeat=3):
        args = (_normal(2, 6, 5, 5), x, weight, [6], *numbers, [*mask])
        found = OWN["aten.convolution_backward.default"](*args)
        assert tuple(g is not None for g in found) == mask


@pytest.mark.parametrize("rank", [2, 3])
def test_averages(rank: int) -> None:
    options = itertools.product((False, True), (False, True), (None, 3))
    for (ceil, with_pad, divisor), (kernel, stride, padding) in itertools.product(
        options, ((2, 2, 0), (3, 2, 1), (3, 1, 1), (2, 3, 1), (3, 2, 0))
    ):
        x, numbers = _normal(2, 3, *[8] * rank), ([kernel], [stride], [padding], ceil, with_pad, divisor)
        grad = _normal(*getattr(aten, f"avg_pool{rank}d").default(x, *numbers).shape)
        _check(f"avg_pool{rank}d_backward", grad, x, *numbers)
        _check(f"avg_pool{rank}d_backward", grad[0], x[0], *numbers)


def test_averages_of_a_given_number() -> None:
    for size in ((3, 4), (1, 1), (7, 9), (8, 2)):
        _check("_adaptive_avg_pool2d_backward", _normal(2, 3, *size), _normal(2, 3, 7, 9))


@pytest.mark.parametrize("rank", [2, 3])
def test_maxima(rank: int) -> None:
    for kernel, stride, padding, dilation in ((2, 2, 0, 1), (3, 1, 1, 1), (3, 2, 1, 2)):
        x, numbers = _normal(2, 3, *[9] * rank), ([kernel] * rank, [stride] * rank, [padding] * rank, [dilation] * rank)
        values, indices = getattr(aten, f"max_pool{rank}d_with_indices").default(x, *numbers)
        _check(f"max_pool{rank}d_with_indices_backward", _normal(*values.shape), x, *numbers, False, indices)
