"""Limits of values: nothing that a run computes lies outside of them, and they cost no more than a walk."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from hardtack.codegen.lower.value_ranges import ANY, SEVEN_BITS, Range, has_seven_bits, range_of
from hardtack.exporter import to_graphs

Step = Callable[[torch.Tensor], torch.Tensor]
STEPS: dict[str, Step] = {
    "clamped": lambda x: x.clamp(0, 127),
    "clamped wide": lambda x: x.float().clamp(-3, 259),
    "clamped within": lambda x: x.clamp(0.4, 126.7),
    "rounded": lambda x: x.float().round(),
    "times": lambda x: x.float() * 1.0666666,
    "times, turned": lambda x: x.float() * -3.0,
    "less than a number": lambda x: 127.5 - x.float(),
    "uint8": lambda x: x.to(torch.uint8),
    "int8": lambda x: x.to(torch.int8),
    "int32": lambda x: x.to(torch.int32),
    "bfloat16": lambda x: x.to(torch.bfloat16),
    "float16": lambda x: x.to(torch.float16),
    "float32": lambda x: x.to(torch.float32),
    "e4m3": lambda x: x.to(torch.float8_e4m3fn).float(),
    "e5m2": lambda x: x.to(torch.float8_e5m2).float(),
    "e8m0": lambda x: x.float().to(torch.float8_e8m0fnu).float(),
    "bits of a float": lambda x: x.to(torch.uint8).view(torch.float8_e4m3fn).float(),
    "bits of a byte": lambda x: x.to(torch.int8).view(torch.uint8),
    "joined": lambda x: torch.cat([x, x.flip(0)]),
    "largest": lambda x: F.max_pool1d(x.reshape(1, 1, -1).float(), 2, padding=1).reshape(-1),
}
NUMBERS = torch.cat([torch.arange(-300, 300, dtype=torch.float32), torch.linspace(-2, 129, 600)])


class Chains(nn.Module):
    """What each list of steps makes of x."""

    def __init__(self, lists: Sequence[Sequence[str]]) -> None:
        super().__init__()
        self.lists = lists

    def forward(self, x: torch.Tensor) -> list[torch.Tensor]:
        made = []
        for names in self.lists:
            value = x
            for name in names:
                value = STEPS[name](value)
            made.append(value)
        return made


def found(module: nn.Module, *args: torch.Tensor) -> list[Range]:
    """Limits of the module's outputs."""
    (entry,) = to_graphs(module.eval(), args).entries.values()
    producers = {out: op for op in entry.graph.ops for out in op.outputs}
    return [range_of(entry.graph, producers, x) for x in entry.graph.outputs]


@pytest.mark.parametrize("last", STEPS)
def test_no_number_lies_outside(last: str) -> None:
    """Behind a clamp, any step and then the last one, of all bytes and more."""
    clamps = ("clamped", "clamped wide", "clamped within")
    module = Chains([(first, second, last) for first in clamps for second in STEPS])
    for names, (lo, hi), y in zip(module.lists, found(module, NUMBERS), module(NUMBERS), strict=True):
        numbers = y.double()
        numbers = numbers[~numbers.isnan()]
        assert lo <= numbers.min(), names
        assert numbers.max() <= hi, names


def test_limits_are_found_where_they_hold() -> None:
    """So that the test above is of something."""
    held = (("clamped", "uint8"), ("clamped", "int8", "joined"), ("clamped", "bfloat16", "int8"))
    assert found(Chains([*held, ("clamped wide", "bfloat16")]), NUMBERS) == [SEVEN_BITS] * 3 + [ANY]
    whole = (("clamped", "less than a number"), ("clamped wide", "times", "rounded"), ("clamped", "times, turned"))
    limits = found(Chains(whole), NUMBERS)
    assert 0.5 - 1e-3 < limits[0][0] < 0.5 < 127.5 < limits[0][1] < 127.5 + 1e-3
    assert limits[1] == (-3, 276)
    assert -381 - 1e-3 < limits[2][0] < -381 < 0 == limits[2][1], "a product may be rounded, and one of 0 is 0"


class Doubled(nn.Module):
    """Each of many values is used twice."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for _ in range(60):
            x = torch.maximum(x, x.roll(1, -1))
        return x


class Long(nn.Module):
    """More ops in a row than Python calls."""

    def forward(self, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        for k in range(600):
            x = torch.minimum(x.clamp(max=100 + k % 27), y)
        return x


def test_many_ops_are_walked_once_and_not_to_the_end() -> None:
    x = torch.zeros(8, dtype=torch.int8)
    assert found(Doubled(), x) == [(-128, 127)]
    (entry,) = to_graphs(Long().eval(), (x, x)).entries.values()
    producers = {out: op for op in entry.graph.ops for out in op.outputs}
    assert not has_seven_bits(entry.graph, producers, entry.graph.outputs[0])
