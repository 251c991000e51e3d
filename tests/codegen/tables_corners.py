"""Rows of the op table: sizes of 0 where a kernel has points all the same, and what runs under a mask."""

from __future__ import annotations

import math
from collections.abc import Iterator

import torch
import torch.nn.functional as F
from torch import nn
from torch.export import Dim

from tests.codegen.compare import Function, Suite, normal


def no_width_rows() -> dict[str, Function]:
    """x [5, 4, 0], y [33, 0]: rows without elements, reduced and walked by kernels that compute something else, too."""
    weight, rows, matrix, image, line = normal(0), normal(2, 0), normal(0, 7), normal(2, 3, 5, 6), normal(2, 3, 5, 1)
    return {
        "norm": lambda x, y: F.rms_norm(x, (0,), weight).clamp(0).log1p(),
        "sums": lambda x, y: (x.sum(-1), x.prod(-1), (x > 0).any(-1), (x > 0).all(-1), x.mean(-1), y.sum(1, True) + 1),
        "group_norm": lambda x, y: (F.group_norm(y[:, :, None].expand(33, 0, 5), 1), F.group_norm(x, 2)),
        "distance": lambda x, y: torch.cdist(y, rows),
        "softmax": lambda x, y: (x.softmax(-1), x.softmax(1), x - x.sum(-1, keepdim=True)),
        "product": lambda x, y: (y @ y.t(), x @ matrix, y.t() @ y),
        "pool": lambda x, y: (
            F.adaptive_avg_pool2d(image, (0, 4)),
            F.adaptive_max_pool2d(image, (2, 0)),
            F.interpolate(line, scale_factor=0.5, mode="area"),
        ),
        "convolution": NoChannels(),
    }


class NoChannels(nn.Module):
    """Of an input without channels, torch's result has none either."""

    def __init__(self) -> None:
        super().__init__()
        self.conv = nn.Conv1d(0, 2, 1, padding=1)
        self.planes = nn.Conv2d(0, 4, 3, 2, bias=False)

    def forward(self, x: torch.Tensor, y: torch.Tensor) -> tuple[torch.Tensor, ...]:
        return (
            self.conv(y[:, :, None].expand(33, 0, 5)),
            self.conv(y[:5].t()),
            self.planes(x.permute(0, 2, 1)[..., None].expand(5, 0, 4, 6)),
        )


def one_result_rows() -> dict[str, Function]:
    """x [6, 8]: what is computed of a tensor and of one number for all of it."""
    return {
        "scaled": lambda x: (x / x.abs().amax(), x - x.mean(), x[0] / x[0].sum()),
        "normed": lambda x: F.layer_norm(x, (6, 8)) + x.std(),
        "joined": lambda x: torch.logaddexp(x[0, 0], x[1]),
    }


def zero_sum_rows() -> dict[str, Function]:
    """x [8, 1], y [2, 4], z [3, 64], n [], all -0: a sum begins at 0, to which -0 adds nothing."""
    return {
        "of_one": lambda x, y, z, n: (x.sum(1), x.mean(1, True), x[:1].sum(0) * 2, n.sum(), n.mean()),
        "of_two": lambda x, y, z, n: (y.sum(0), y.mean(-2, True), y.sum(1), y.sum(), y.t().sum(1)),
        "of_many": lambda x, y, z, n: (z.sum(1), z.mean(0), z[:, :33].sum(1), z.nansum(1), z.cumsum(1)[:, 3]),
    }


def choice_rows() -> dict[str, Function]:
    """x [45], also NaN: a choice between a maximum and its bound is no maximum of both, of which a NaN stays."""

    def choices(x: torch.Tensor) -> tuple[torch.Tensor, ...]:
        positive, above, below, kept = x.relu(), x.clamp(min=1), x.clamp(max=1), torch.where(x < 0, 0.0, x)
        return (
            torch.where(positive > 0, positive, 0.0),
            torch.where(above > 1, above, 1.0),
            torch.where(below < 1, below, 1.0),
            torch.where((positive < 0) | (positive > 0), positive, 0.0),
            torch.where(kept > 0, kept, 0.0),
            torch.where(~(positive > 0), 0.0, positive),
            torch.where(positive <= 0, 0.0, positive),
            torch.where(above != 1, above, 1.0),
        )

    return {"choices": choices}


def rolled_rows() -> dict[str, Function]:
    """x [n, 3], n may be 0 and less than a shift"""
    return {
        "roll": lambda x: (x.roll(2, 0), x.roll(-3, 0) * 2, x.roll((1, 2), (0, 1)), x.roll(5), x.sum(1).roll(2)),
        "of_rolled": lambda x: (torch.cat([x.roll(1, 0), x.roll(-1, 0)], 1), x.roll(4, 0).sum(0), x.t().roll(-2, 1)),
    }


def masked_rows() -> dict[str, Function]:
    """n [5] i32 without a 0, at [3] i64 into [4], none [0] i64, table [4, 2]: refusals where nothing is read."""
    return {
        "divided": lambda n, at, none, table: (
            F.pad(torch.fmod(n, n | 1), (3, 1), value=1),
            F.pad(n // n, (0, 2)),
            torch.cat([n % n, n]),
            F.pad(torch.div(n + 7, n, rounding_mode="trunc"), (1, 1), value=-4),
        ),
        "indexed": lambda n, at, none, table: (
            F.pad(table[at + 1], (0, 0, 2, 1)),
            torch.cat([table[at - 4], table]),
            torch.cat([table[4:].index_select(0, none), table * 2]),
        ),
        "added_bools": lambda n, at, none, table: [
            (table > 0).index_add(0, at, table[1:] > -0.5, alpha=a) for a in (1, 0, 2, 0.5)
        ],
    }


def batch_rows() -> dict[str, Function]:
    """a [2, 3, 4, 5, 6], b [2, 1, 4, 6, 7]"""
    return {
        "dense": lambda a, b: (a @ a.mT, a.mT @ a + 1),
        "broadcast": lambda a, b: (a @ b, b.mT @ a.mT, a[:1] @ b, (a[:, :1] @ b).relu()),
        "moved": lambda a, b: (a.permute(1, 0, 2, 3, 4) @ b.transpose(0, 1), a.transpose(1, 2) @ b.transpose(1, 2)),
        "six": lambda a, b: (a[None] @ b, a[:, None] @ a.mT[:, :, None], torch.einsum("abcij,abcjk->cbaik", a, a.mT)),
        "indexed": lambda a, b: (a.flip(0) @ b, a[:, :, ::2] @ b[:, :, ::2]),
    }


def suites() -> Iterator[Suite]:
    yield Suite("no_width", no_width_rows(), [[normal(5, 4, 0), normal(33, 0)]])
    zeros = [-torch.zeros(s) for s in ((8, 1), (2, 4), (3, 64), ())]
    for dtype in (torch.float32, torch.float16, torch.float64):
        given = [[t.to(dtype) for t in zeros]]
        yield Suite(f"zero_sums_{str(dtype)[6:]}", zero_sum_rows(), given, signs=True)
    yield Suite("one_result", one_result_rows(), [[normal(6, 8)]])
    some = torch.tensor([math.nan, 1, -1, 0, 0.5, 2, -3, 1.5, math.nan]).repeat(5)
    for dtype in (torch.float32, torch.float64, torch.bfloat16):
        yield Suite(f"choices_{str(dtype)[6:]}", choice_rows(), [[some.to(dtype)]])
    yield Suite("rolled", rolled_rows(), [[normal(n, 3)] for n in (11, 0, 1, 2, 3)], ({0: Dim("n", min=0, max=64)},))
    n, at = torch.tensor([3, -2, 7, 1, 5], dtype=torch.int32), torch.tensor([0, 2, 1])
    none, table = torch.zeros(0, dtype=torch.int64), normal(4, 2)
    yield Suite("masked", masked_rows(), [[n, at, none, table]])
    yield Suite("batch", batch_rows(), [[normal(2, 3, 4, 5, 6), normal(2, 1, 4, 6, 7)]], None, 4.0)
    shapes = ((2, 4), (1, 1), (5, 3))
    # a slice with a step is where torch's own matmul asks whether a size is even
    yield Suite(
        "batch_dynamic",
        {k: f for k, f in batch_rows().items() if k != "indexed"},
        [[normal(n, 3, m, 5, 6), normal(n, 1, m, 6, 7)] for n, m in shapes],
        ({0: Dim("n", max=64), 2: Dim("m", max=64)},) * 2,
        4.0,
    )
