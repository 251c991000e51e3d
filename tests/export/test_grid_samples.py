"""grid_sample against eager: all modes, paddings and alignments, places and elements that are infinite or no number."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable

import pytest
import torch
import torch.nn.functional as F
from torch.export import Dim

from hardtack.exporter import to_graphs
from tests.export.checks import assert_same, ours

MODES = ("bilinear", "nearest", "bicubic")
PADDINGS = ("zeros", "border", "reflection")
CASES = [
    (shape, mode)
    for shape, mode in itertools.product(((2, 3, 5, 7), (2, 1, 1, 4), (1, 2, 3, 4, 5)), MODES)
    if len(shape) == 4 or mode != "bicubic"  # which torch has of two dimensions only
]
ODD = (math.nan, math.inf, -math.inf, 1e20, 1.0, -1.0, 5.0)


def _sampled(mode: str, align: bool) -> Callable[..., list[torch.Tensor]]:
    return lambda x, grid: [F.grid_sample(x, grid, mode, p, align_corners=align) for p in PADDINGS]


def _image(shape: tuple[int, ...], dtype: torch.dtype = torch.float32) -> torch.Tensor:
    x = torch.randn(shape, generator=torch.Generator().manual_seed(3), dtype=torch.float64).to(dtype)
    x.view(-1)[0] = math.inf  # what is read in place of an element outside
    return x


def _grid(shape: tuple[int, ...], dtype: torch.dtype = torch.float32) -> torch.Tensor:
    rank = len(shape) - 2
    places = torch.rand(shape[0], *[6] * rank, rank, generator=torch.Generator().manual_seed(4), dtype=torch.float64)
    grid = (places * 3 - 1.5).to(dtype)
    grid.view(-1)[3 : 3 + 2 * len(ODD) : 2] = torch.tensor(ODD, dtype=dtype)
    return grid


@pytest.mark.sweep(over=("align", "dtype"))
@pytest.mark.parametrize(("shape", "mode"), CASES)
@pytest.mark.parametrize("align", [False, True])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_every_place(shape: tuple[int, ...], mode: str, align: bool, dtype: torch.dtype) -> None:
    function, args = _sampled(mode, align), (_image(shape, dtype), _grid(shape, dtype))
    assert_same(ours(to_graphs(function, args), args), function(*args), atol=1e-5)


def test_images_of_other_sizes() -> None:
    function, args = _sampled("bilinear", False), (_image((2, 3, 5, 7)), _grid((2, 3, 5, 7)))
    exported = to_graphs(function, args, None, ({2: Dim.DYNAMIC, 3: Dim.DYNAMIC}, {1: Dim.DYNAMIC}))
    for size in ((1, 9), (4, 1), (6, 6)):
        args = (_image((2, 3, *size)), _grid((2, 3, *size)))
        assert_same(ours(exported, args), function(*args), atol=1e-5)
