"""Rows of the op table: convolutions of one, two and three dimensions."""

from __future__ import annotations

from collections.abc import Iterator

import torch
import torch.nn.functional as F
from torch import nn
from torch.export import Dim

from tests.codegen.compare import Function, Suite, normal


def conv_rows() -> dict[str, Function]:
    """x [2, 12, 11, 14]"""
    convs: dict[str, nn.Module] = {
        "plain": nn.Conv2d(12, 40, 3),
        "padded_strided": nn.Conv2d(12, 33, 3, 2, 1),
        "pointwise": nn.Conv2d(12, 70, 1),
        "pointwise_strided": nn.Conv2d(12, 8, 1, 2, bias=False),
        "rectangular": nn.Conv2d(12, 5, (1, 5), (2, 1), (0, 2), bias=False),
        "dilated": nn.Conv2d(12, 20, 3, 1, 2, dilation=2),
        "groups": nn.Conv2d(12, 36, 3, 1, 1, groups=3),
        "groups_odd": nn.Conv2d(12, 8, 3, 2, 1, groups=4, bias=False),
        "depthwise": nn.Conv2d(12, 12, 3, 1, 1, groups=12),
        "depthwise_strided": nn.Conv2d(12, 12, 5, 2, 2, groups=12, bias=False),
        "depthwise_dilated": nn.Conv2d(12, 12, 3, 1, 2, dilation=2, groups=12),
        "depthwise_multiplier": nn.Conv2d(12, 24, 3, 1, 1, groups=12),
        "depthwise_even": nn.Conv2d(12, 12, (2, 4), (1, 3), groups=12),
        "same": nn.Conv2d(12, 9, 4, padding="same"),
        "reflect": nn.Conv2d(12, 9, 3, padding=1, padding_mode="reflect"),
        "transposed": nn.ConvTranspose2d(12, 35, 2, 2),
        "transposed_overlapping": nn.ConvTranspose2d(12, 6, 3, 2, 1, output_padding=1),
        "transposed_groups": nn.ConvTranspose2d(12, 8, 3, 1, 1, groups=4, bias=False),
        "transposed_dilated": nn.ConvTranspose2d(12, 4, 3, 2, 0, dilation=2),
        "whole_image": nn.Conv2d(12, 16, (11, 14)),
    }
    rows: dict[str, Function] = dict(convs)
    conv, again = convs["plain"], convs["pointwise"]
    same = nn.Conv2d(12, 12, 3, padding=1)
    rows["epilogue"] = nn.Sequential(conv, nn.ReLU(), nn.Sigmoid())
    rows["residual"] = Residual(same)
    rows["chain"] = nn.Sequential(
        nn.Conv2d(12, 20, 3, padding=1), nn.BatchNorm2d(20), nn.GELU(), nn.Conv2d(20, 6, 1), nn.Flatten()
    )
    rows["pool"] = nn.Sequential(nn.Conv2d(12, 20, 3), nn.MaxPool2d(2), nn.Conv2d(20, 3, 2))
    rows["of_view"] = Moved(nn.Conv2d(14, 6, 3), (0, 3, 1, 2))
    rows["two_heads"] = TwoHeads(nn.Conv2d(12, 4, 1), nn.Conv2d(12, 7, 3, padding=1), again)
    rows["changing_weights"] = lambda x: (F.conv2d(x, x[:, :, :3, :3]), F.conv2d(x, x[0, :, None, :2, :2], groups=12))
    return rows


class Residual(nn.Module):
    """relu(conv(x) + x), the input read again by the epilogue."""

    def __init__(self, conv: nn.Module) -> None:
        super().__init__()
        self.conv = conv

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.relu(self.conv(x) + x) * 2 + x.mean((2, 3), keepdim=True)


class Moved(nn.Module):
    def __init__(self, inner: nn.Module, dims: tuple[int, ...]) -> None:
        super().__init__()
        self.inner, self.dims = inner, dims

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.inner(x.permute(self.dims))


class TwoHeads(nn.Module):
    def __init__(self, *heads: nn.Module) -> None:
        super().__init__()
        self.heads = nn.ModuleList(heads)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = x.relu()
        return torch.cat([h(y) for h in self.heads], 1)


def few_channel_rows() -> dict[str, Function]:
    """x [2, 3, 17, 20]: images as they come"""
    return {
        "patches": nn.Conv2d(3, 48, 4, 4),
        "stem": nn.Sequential(nn.Conv2d(3, 33, 3, 2, 1), nn.ReLU()),
        "stem7": nn.Conv2d(3, 16, 7, 2, 3, bias=False),
        "one": Moved(nn.Conv2d(2, 5, 3), (1, 0, 2, 3)),
        "dilated": nn.Conv2d(3, 8, 3, dilation=3),
        "transposed": nn.ConvTranspose2d(3, 5, 4, 2, 1),
    }


def winograd_rows() -> dict[str, Function]:
    """x [2, 32, 19, 22]: enough channels for Winograd's filtering on CPUs"""
    same = nn.Conv2d(32, 32, 3, padding=1)
    return {
        "plain": nn.Conv2d(32, 48, 3, bias=False),
        "padded": nn.Sequential(nn.Conv2d(32, 33, 3, padding=1), nn.ReLU()),
        "wide": nn.Conv2d(32, 40, 3, padding=(0, 3)),
        "residual": Residual(same),
        "twice": nn.Sequential(same, nn.BatchNorm2d(32), nn.GELU(), same),
        "not_finite": lambda x: F.conv2d(x / (x < 1.5), same.weight.detach(), padding=1),
    }


def conv_1d_rows() -> dict[str, Function]:
    """x [2, 10, 33]"""
    return {
        "plain": nn.Conv1d(10, 33, 3, padding=1),
        "strided": nn.Sequential(nn.Conv1d(10, 40, 5, 3, 2), nn.GELU()),
        "dilated": nn.Conv1d(10, 7, 3, dilation=4, bias=False),
        "depthwise": nn.Conv1d(10, 10, 7, padding=3, groups=10),
        "groups": nn.Conv1d(10, 20, 3, groups=5),
        "transposed": nn.ConvTranspose1d(10, 6, 4, 2, 1),
        "asymmetric": lambda x: F.pad(x, (3, 1)).relu(),
        "of_transposed": Moved(nn.Conv1d(33, 6, 3), (0, 2, 1)),
    }


def conv_3d_rows() -> dict[str, Function]:
    """x [1, 4, 5, 6, 7]"""
    return {
        "plain": nn.Conv3d(4, 6, 3, padding=1),
        "strided": nn.Conv3d(4, 5, (2, 3, 2), (1, 2, 2), bias=False),
        "groups": nn.Conv3d(4, 8, 2, groups=4),
        "transposed": nn.ConvTranspose3d(4, 3, 2, 2),
    }


def suites() -> Iterator[Suite]:
    torch.manual_seed(11)
    convs = conv_rows()
    yield Suite("conv", convs, [[normal(2, 12, 11, 14)]], None, 10.0)
    some = {k: f for k, f in convs.items() if k not in ("whole_image", "of_view", "reflect", "changing_weights")}
    shapes = ((2, 11, 14), (1, 9, 13), (3, 10, 31))
    yield Suite(
        "conv_dynamic",
        some,
        [[normal(n, 12, h, w)] for n, h, w in shapes],
        ({0: Dim.AUTO, 2: Dim.AUTO, 3: Dim.AUTO},),
        10.0,
    )
    few = few_channel_rows()
    yield Suite("conv_few_channels", few, [[normal(2, 3, 17, 20)]], None, 10.0)
    winograd = winograd_rows()
    yield Suite("conv_winograd", winograd, [[normal(2, 32, 19, 22)]], None, 10.0)
    yield Suite(
        "conv_winograd_dynamic",
        winograd,
        [[normal(n, 32, h, w)] for n, h, w in ((2, 19, 22), (1, 7, 13), (3, 40, 31))],
        ({0: Dim.AUTO, 2: Dim.AUTO, 3: Dim.AUTO},),
        10.0,
    )
    yield Suite("conv_channels_last", few, [[normal(2, 3, 17, 20).to(memory_format=torch.channels_last)]], None, 10.0)
    yield Suite("conv_1d", conv_1d_rows(), [[normal(2, 10, 33)]], None, 10.0)
    yield Suite(
        "conv_1d_dynamic",
        {k: f for k, f in conv_1d_rows().items() if k != "of_transposed"},
        [[normal(n, 10, t)] for n, t in ((2, 33), (1, 9), (3, 100))],
        ({0: Dim.AUTO, 2: Dim.AUTO},),
        10.0,
    )
    yield Suite("conv_3d", conv_3d_rows(), [[normal(1, 4, 5, 6, 7)]], None, 10.0)
    double = {k: f for k, f in conv_1d_rows().items() if k in ("plain", "groups", "transposed", "strided")}
    yield Suite(
        "conv_1d_f64",
        {k: f.double() for k, f in double.items()},
        [[normal(2, 10, 33, dtype=torch.float64)]],
        None,
        10.0,
    )  # type: ignore[union-attr]
