"""Blocks of image models on the null driver: how many kernels a block is, and that the driver takes their launches."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
import torch.nn.functional as F
from null_driver import NullDriver
from torch import nn

import hardtack

RUNS = 3
"""Plain, recorded, replayed."""


class ConvNeXtBlock(nn.Module):
    """Depthwise convolution, layer norm over the channels, two products, a scaled residual (Liu et al. 2022)."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.filter = nn.Conv2d(width, width, 7, padding=3, groups=width)
        self.norm = nn.LayerNorm(width)
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)
        self.scale = nn.Parameter(torch.full((width,), 1e-2))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        h = self.norm(self.filter(x).permute(0, 2, 3, 1))
        h = self.down(F.gelu(self.up(h))) * self.scale
        return (x + h.permute(0, 3, 1, 2)).permute(0, 2, 3, 1)


class ResidualBlock(nn.Module):
    """Two normalised convolutions, a vector added between them (Ho et al. 2020)."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.norm_in, self.conv_in = nn.GroupNorm(32, width), nn.Conv2d(width, width, 3, padding=1)
        self.norm_out, self.conv_out = nn.GroupNorm(32, width), nn.Conv2d(width, width, 3, padding=1)

    def forward(self, x: torch.Tensor, shift: torch.Tensor) -> torch.Tensor:
        h = self.conv_in(F.silu(self.norm_in(x))) + shift[:, :, None, None]
        return (x + self.conv_out(F.silu(self.norm_out(h)))).permute(0, 2, 3, 1)


def images(n: int, channels: int, size: int) -> torch.Tensor:
    return torch.randn(n, channels, size, size, dtype=torch.bfloat16).contiguous(memory_format=torch.channels_last)


CASES = {
    "convnext": (lambda: ConvNeXtBlock(96), lambda: (images(8, 96, 56),), 4),
    "unet, groups held by programs": (
        lambda: ResidualBlock(256),
        lambda: (images(16, 256, 32), torch.randn(16, 256, dtype=torch.bfloat16)),
        4,
    ),
    "unet, groups in parts": (
        lambda: ResidualBlock(128),
        lambda: (images(8, 128, 64), torch.randn(8, 128, dtype=torch.bfloat16)),
        8,
    ),
}
"""Module, inputs, kernels: two products or convolutions with what stands behind them, and the rest."""


@pytest.mark.parametrize("name", CASES)
def test_kernels_of_a_block(name: str, tmp_path: Path, driver: NullDriver) -> None:
    make, inputs, wanted = CASES[name]
    torch.manual_seed(0)
    module, args = make().bfloat16().eval().to(memory_format=torch.channels_last), inputs()
    path = tmp_path / "m.pkg"
    hardtack.export(module, args, path=path, targets=("cuda:sm_90",))
    session = hardtack.load(path, device="cuda", cuda_driver=driver.path).session()
    driver.log()
    for _ in range(RUNS):
        session(*args)
    launched = [line.split()[1] for line in driver.log() if line.startswith("launch ")]
    assert len(launched) == 2 * wanted, launched
