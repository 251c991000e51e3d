"""interpolate with antialias=True against eager: both filters, corners, scales, sizes that grow, shrink and stay, an
infinity in the image, and sizes that are known at run time only.
"""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import nn
from torch.export import Dim

from hardtack.exporter import CaptureError, to_graphs
from tests.export.checks import check

CASES = [
    ("bilinear", False, torch.float32),
    ("bilinear", True, torch.float64),
    ("bicubic", False, torch.float64),
    ("bicubic", True, torch.float32),
]
SIZES = [
    ((17, 33), (8, 9)),
    ((9, 7), (20, 31)),
    ((64, 64), (1, 13)),
    ((5, 5), (5, 5)),
    ((5, 6), (5, 3)),
    ((3, 1), (1, 4)),
    ((40, 40), (39, 41)),
]


class Resized(nn.Module):
    def __init__(self, **options: Any) -> None:
        super().__init__()
        self.options = options

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return F.interpolate(x, antialias=True, **self.options)


class Several(nn.Module):
    """An image for each of several options: one export serves all."""

    def __init__(self, options: list[dict[str, Any]]) -> None:
        super().__init__()
        self.parts = nn.ModuleList(Resized(**o) for o in options)
        self.eval()

    def forward(self, *images: torch.Tensor) -> list[torch.Tensor]:
        return [part(image) for part, image in zip(self.parts, images, strict=True)]


@pytest.mark.parametrize(("mode", "corners", "dtype"), CASES)
def test_sizes(mode: str, corners: bool, dtype: torch.dtype) -> None:
    module = Several([{"size": size, "mode": mode, "align_corners": corners} for _, size in SIZES])
    check(module, tuple(torch.randn(2, 3, *shape, dtype=dtype) for shape, _ in SIZES))


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_an_infinity_stays_within_the_windows_that_hold_it(dtype: torch.dtype) -> None:
    """The bilinear filter, whose weights at the ends of windows are 0 in eager, too, which makes NaN of it there."""
    images = [torch.randn(2, 3, *shape, dtype=dtype) for shape, _ in SIZES]
    for x in images:
        x[0, 0, x.shape[2] // 2, x.shape[3] // 2] = math.inf
    check(Several([{"size": size, "mode": "bilinear"} for _, size in SIZES]), tuple(images))


@pytest.mark.parametrize(("mode", "corners", "dtype"), CASES)
def test_scales_as_given(mode: str, corners: bool, dtype: torch.dtype) -> None:
    """1.1 times 5 is 5: a dimension that keeps its size stays what it is, whatever the scale."""
    scales = (0.4, 1.1, 2.3, (0.4, 1.7))
    module = Several([{"scale_factor": scale, "mode": mode, "align_corners": corners} for scale in scales])
    check(module, tuple(torch.randn(1, 2, 11, 5, dtype=dtype) for _ in scales))


@pytest.mark.parametrize(("mode", "corners", "dtype"), CASES)
def test_sizes_at_run_time(mode: str, corners: bool, dtype: torch.dtype) -> None:
    module = Resized(size=(8, 9), mode=mode, align_corners=corners).eval()
    others = [(torch.randn(1, 3, h, w, dtype=dtype),) for h, w in ((1, 1), (2, 9), (40, 50), (8, 9), (300, 7))]
    dynamic = ({2: Dim.DYNAMIC, 3: Dim.DYNAMIC},)
    check(module, (torch.randn(1, 3, 20, 30, dtype=dtype),), dynamic, others)


def test_an_image_keeps_its_dtype_whatever_torch_makes_of_numbers() -> None:
    torch.set_default_dtype(torch.float64)
    try:
        check(Resized(size=(4, 4), mode="bilinear").eval(), (torch.randn(1, 3, 8, 9, dtype=torch.float32),))
    finally:
        torch.set_default_dtype(torch.float32)


def test_bytes_are_refused() -> None:
    image = torch.zeros(1, 3, 8, 8, dtype=torch.uint8)
    with pytest.raises(CaptureError) as refused:
        to_graphs(Resized(size=(4, 4), mode="bilinear").eval(), (image,))
    assert "interpolate with antialias=True of torch.uint8: torch does this in fixed point, or not at all" in str(
        refused.value
    )
    assert "convert the image to float32 before, and back behind" in str(refused.value)


def test_a_column_is_refused() -> None:
    """Eager has its first row in all others: of the transpose it has each."""
    image = torch.randn(1, 1, 9, 5)
    with pytest.raises(CaptureError) as refused:
        to_graphs(Resized(size=(4, 1), mode="bilinear").eval(), (image,))
    said = "interpolate with antialias=True to a size of (4, 1): eager has the first row in all others, too"
    assert said in str(refused.value)
    assert "resize the image's transpose, x.mT, and transpose the result" in str(refused.value)
    for size in ((1, 1), (9, 1), (1, 4)):
        check(Resized(size=size, mode="bilinear").eval(), (image,))
