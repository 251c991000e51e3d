"""Ops by segment, by bin and by windows at drawn places: against eager."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch.export import Dim

from tests.export.checks import check
from tests.export.op_inputs import randn

LENGTHS, OFFSETS = torch.tensor([2, 0, 3, 1]), torch.tensor([0, 2, 2, 5, 6])


@pytest.mark.parametrize("reduce", ["sum", "mean", "max", "min", "prod"])
def test_segments(reduce: str) -> None:
    """Also empty ones, with a first value, and along the second axis."""

    def program(x: torch.Tensor, lengths: torch.Tensor, offsets: torch.Tensor) -> list[torch.Tensor]:
        found = [torch.segment_reduce(x, reduce, lengths=lengths, initial=i) for i in (None, 2.0)]
        found += [torch.segment_reduce(x, reduce, offsets=offsets, initial=i) for i in (None, 2.0)]
        rows = torch.stack([lengths, lengths.flip(0)])
        return [*found, torch.segment_reduce(torch.stack([x, x * 2]), reduce, lengths=rows, axis=1)]

    check(program, (randn(6, 3), LENGTHS, OFFSETS))


def test_segments_of_any_number() -> None:
    count, size = Dim("segments", max=50), Dim("rows", max=50)
    inputs = [(randn(6, 3), LENGTHS), (randn(4, 3), torch.tensor([4])), (randn(2, 3), torch.tensor([0, 1, 0, 0, 1]))]
    check(
        lambda x, lengths: torch.segment_reduce(x, "mean", lengths=lengths, unsafe=True),
        inputs[0], ({0: size}, {0: count}), inputs[1:],
    )  # fmt: skip


HISTOGRAMS: dict[str, Callable[..., Any]] = {
    "bins": lambda x, w: torch.histogram(x, 7),
    "a range": lambda x, w: torch.histogram(x, 5, range=(-1.0, 1.0)),
    "weights": lambda x, w: torch.histogram(x, 4, weight=w),
    "a density": lambda x, w: torch.histogram(x, 6, weight=w, density=True),
    "edges": lambda x, w: torch.histogram(x, torch.tensor([-2.0, -1.0, 0.5, 1.0, 9.0]), density=True),
    "equal elements": lambda x, w: torch.histogram(torch.ones_like(x), 3),
    "edges that are elements": lambda x, w: torch.histogram(x.round(), 4, range=(-2.0, 2.0)),
}


@pytest.mark.parametrize("name", HISTOGRAMS)
def test_histograms(name: str) -> None:
    check(HISTOGRAMS[name], (randn(5, 10), randn(5, 10, seed=1).abs()))


def test_windows_at_drawn_places() -> None:
    """Of two and three dimensions, with places of the elements, one result a dimension, and without a batch."""
    pool2d, pool3d = torch.ops.aten.fractional_max_pool2d, torch.ops.aten.fractional_max_pool3d

    def program(x: torch.Tensor, u: torch.Tensor, y: torch.Tensor, v: torch.Tensor) -> list[Any]:
        return [
            *pool2d(x, [2, 3], [4, 5], u),
            *pool2d(x, [2, 2], [1, 3], u),
            *pool2d(x[0], [2, 2], [3, 3], u[:1]),
            *pool3d(y, [2, 3, 2], [3, 4, 5], v),
        ]

    u, v = (torch.rand(2, 3, n, generator=torch.Generator().manual_seed(n)) for n in (2, 3))
    check(program, (randn(2, 3, 9, 11), u, randn(2, 3, 7, 9, 11, seed=1), v))


def test_as_many_windows_as_are_drawn() -> None:
    """The module draws their places itself."""
    from tests.export.test_random_numbers import drawn

    (found,) = drawn(torch.nn.FractionalMaxPool2d(2, output_size=(4, 5)).eval(), randn(1, 2, 9, 11))
    assert found.shape == (1, 2, 4, 5)
