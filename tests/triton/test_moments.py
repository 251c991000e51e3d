"""Group norms on GPU kernels: a program a group, parts of channels, accuracy far from zero, launches."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import nn
from torch.export import Dim

from hardtack.codegen.backends.triton.triton_backend import TritonBackend
from hardtack.codegen.machine.data import H200
from hardtack.codegen.tune import row_plan as rows
from hardtack.codegen.tune.row_plan import plan_moments
from tests.codegen.compare import Compiled, assert_same, compile_module, eager
from tests.triton.simulate import Simulator, launches_of


class Norm(nn.Module):
    """x (N, C, *S) -> silu(group_norm(x)); last: as (N, *S, C), for an x that lies so in memory."""

    def __init__(self, groups: int, channels: int, last: bool = True, act: bool = True) -> None:
        super().__init__()
        self.groups, self.last, self.act = groups, last, act
        made = torch.Generator().manual_seed(5)
        self.weight = nn.Parameter(torch.randn(channels, generator=made))
        self.bias = nn.Parameter(torch.randn(channels, generator=made))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = F.group_norm(x, self.groups, self.weight, self.bias)
        y = F.silu(y) if self.act else y
        return y.movedim(1, -1) if self.last else y


def on_gpu(module: nn.Module, args: Sequence[torch.Tensor], dynamic: Any = None) -> Compiled:
    hints = {f"s{k}": 6 for k in range(10)}
    return compile_module(module.eval(), args, dynamic, hints, TritonBackend(H200), Simulator)


def launches(compiled: Compiled) -> int:
    return sum(1 for _ in launches_of(compiled.entry.plan.body))


def chosen(compiled: Compiled) -> list[str]:
    return [d.partner for d in compiled.entry.decisions if "moments" in d.partner]


def normal(*shape: int) -> torch.Tensor:
    """Of `shape` (N, *S, C), seen as (N, C, *S)."""
    return torch.randn(shape, generator=torch.Generator().manual_seed(1)).movedim(-1, 1)


SHAPES = [
    ((2, 6, 7, 12), 4),
    ((2, 1, 59, 12), 4),
    ((1, 6, 7, 12), 4),
    ((3, 5, 30), 3),
    ((2, 4, 3, 5, 14), 7),
    ((2, 1, 1, 24), 2),
    ((4, 18), 6),
    ((2, 9, 9, 8), 8),
    ((2, 9, 9, 8), 1),
]


@pytest.mark.sweep(over="last")
@pytest.mark.parametrize("last", [True, False])
@pytest.mark.parametrize(("shape", "groups"), SHAPES)
def test_a_program_for_each_group(shape: tuple[int, ...], groups: int, last: bool) -> None:
    x = normal(*shape) if last else normal(*shape).contiguous()
    module = Norm(groups, shape[-1], last)
    compiled = on_gpu(module, [x])
    assert chosen(compiled) == ["moments of whole groups"]
    assert_same(compiled(x), eager(module, [x]))


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
def test_a_norm_of_small_groups_is_one_launch(dtype: torch.dtype) -> None:
    x = normal(2, 8, 8, 64).to(dtype)
    module = Norm(32, 64).to(dtype)
    compiled = on_gpu(module, [x])
    assert launches(compiled) == 1
    assert_same(compiled(x), eager(module, [x]))


@pytest.mark.sweep(over="part")
@pytest.mark.parametrize("last", [True, False])
@pytest.mark.parametrize(("shape", "groups"), SHAPES[:5])
@pytest.mark.parametrize("part", [1, 4, 16])
def test_parts(shape: tuple[int, ...], groups: int, last: bool, part: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rows, "SMALL_GROUP", 0)
    monkeypatch.setattr(rows, "LARGEST_GROUP", 0)
    monkeypatch.setattr(rows, "PART", part)
    x = normal(*shape) if last else normal(*shape).contiguous()
    module = Norm(groups, shape[-1], last)
    compiled = on_gpu(module, [x])
    assert "parts" in chosen(compiled)[0]
    assert_same(compiled(x), eager(module, [x]))


def test_parts_are_three_launches() -> None:
    x = normal(1, 48, 48, 8)
    module = Norm(2, 8)
    compiled = on_gpu(module, [x])
    assert chosen(compiled) == ["moments in 32 parts"]
    assert launches(compiled) == 3
    assert_same(compiled(x), eager(module, [x]))


@pytest.mark.parametrize("parts", [False, True])
def test_sizes_of_any_kind(parts: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    if parts:
        monkeypatch.setattr(rows, "SMALL_GROUP", 0)
        monkeypatch.setattr(rows, "LARGEST_GROUP", 0)
        monkeypatch.setattr(rows, "PART", 16)
    module = Norm(3, 12)
    free = {0: Dim.AUTO, 2: Dim.AUTO, 3: Dim.AUTO}
    compiled = on_gpu(module, [normal(2, 5, 6, 12)], (free,))
    for shape in ((2, 5, 6, 12), (1, 3, 2, 12)):
        x = normal(*shape)
        assert_same(compiled(x), eager(module, [x]))


@pytest.mark.parametrize("mean", [1e3, 1e5])
@pytest.mark.parametrize("parts", [False, True])
def test_far_from_zero(mean: float, parts: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """As accurate as eager where the mean is large beside the deviation."""
    if parts:
        monkeypatch.setattr(rows, "SMALL_GROUP", 0)
        monkeypatch.setattr(rows, "LARGEST_GROUP", 0)
        monkeypatch.setattr(rows, "PART", 32)
    x = normal(2, 16, 20, 32) + mean
    module = Norm(8, 32, act=False)
    (found,) = on_gpu(module, [x])(x)
    (want,) = eager(Norm(8, 32, act=False).double(), [x.double()])
    (theirs,) = eager(module, [x])
    worst = (theirs.double() - want).abs().max()
    assert (found.double() - want).abs().max() <= 2 * worst + 1e-5


def test_an_outlier_in_one_part() -> None:
    x = normal(1, 64, 64, 4)
    x[0, 3, 5] = 1e4
    module = Norm(2, 4)
    assert_same(on_gpu(module, [x])(x), eager(module, [x]))


@pytest.mark.parametrize(
    ("groups", "each", "points", "scattered", "parts"),
    [
        (64, 16, 256, True, 0),
        (64, 24, 1024, True, 0),
        (64, 4, 4096, True, 32),
        (64, 4, 4096, False, 0),
        (1, 512, 64, True, 1),
        (2, 1024, 65536, False, 256),
    ],
)
def test_ways(groups: int, each: int, points: int, scattered: bool, parts: int) -> None:
    assert plan_moments(groups, each, points, scattered)[0] == parts


class Spreads(nn.Module):
    """What of equal values is 0."""

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, ...]:
        return F.group_norm(x, 2), F.layer_norm(x, x.shape[2:]), x.var((2, 3)), x.std((0, 2, 3))


@pytest.mark.parametrize("part", [0, 7, 16])
def test_equal_values_have_no_spread(part: int, monkeypatch: pytest.MonkeyPatch) -> None:
    if part:
        monkeypatch.setattr(rows, "SMALL_GROUP", 0)
        monkeypatch.setattr(rows, "LARGEST_GROUP", 0)
        monkeypatch.setattr(rows, "PART", part)
    x = torch.full((2, 6, 7, 9), torch.pi / 3)
    compiled = on_gpu(Spreads(), [x])
    for scale in (1.0, 1e-20, 7e14):
        for result in compiled(x * scale):
            assert not result.any()
