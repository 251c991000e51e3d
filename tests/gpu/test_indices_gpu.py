"""Kernels whose indices fit in 8 bits: LLVM keeps two of them in a register, to which ptxas added 0 for a constant."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from tests.gpu.support import check


class Padded(nn.Module):
    """A convolution that wraps around, its result padded with the edges: a chain of slices in one kernel."""

    def __init__(self) -> None:
        super().__init__()
        self.conv = nn.Conv2d(2, 3, (2, 3), stride=2, padding=1, padding_mode="circular")

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return F.pad(self.conv(x), [1, 2, 2, 1, 1, 2], mode="replicate")


class Area(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return F.adaptive_avg_pool3d(x, (11, 18, 16))


class Around(nn.Module):
    """A copy of a slice of what was padded by wrapping around."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = F.pad(x, [1, 1, 0, 1, 2, 2], mode="circular").unsqueeze(1)
        return y.select_scatter(y.select(1, 0) + 1, 1, -1)


CASES: dict[str, tuple[Callable[[], nn.Module], torch.Size, torch.dtype]] = {
    "area": (Area, torch.Size((2, 4, 5, 8, 7)), torch.float16),
    "transposed": (
        lambda: nn.ConvTranspose2d(8, 3, (3, 1), padding=1, output_padding=1, dilation=2, bias=False),
        torch.Size((2, 8, 2, 18)),
        torch.float32,
    ),
    "padded": (Padded, torch.Size((11, 2, 3, 9)), torch.float32),
    "around": (Around, torch.Size((2, 3, 16, 33)), torch.bfloat16),
}


@pytest.mark.parametrize("name", CASES)
def test_narrow_indices(name: str, tmp_path: Path, target: str) -> None:
    torch.manual_seed(0)
    make, shape, dtype = CASES[name]
    check(make().to("cuda", dtype).eval(), [(torch.randn(shape, dtype=dtype, device="cuda"),)], tmp_path, target)
