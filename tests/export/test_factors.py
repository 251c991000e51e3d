"""Sizes that are another size times a float: what floating point gives, for every size."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import nn
from torch.export import Dim

from hardtack.api import stage_texts
from hardtack.codegen.ir.expr import sym
from hardtack.codegen.ir.expr_walk import evaluate
from hardtack.exporter import RangeError, UnsupportedOpError, to_graphs
from hardtack.exporter.sizes.factors import MOST, scaling
from tests.export.checks import check, entry


@pytest.mark.parametrize("up", [False, True])
@pytest.mark.parametrize("factor", [0.7, 0.29, 1.4, 2.3, 1 / 3, math.pi, 0.07, 1e-3, 7.77])
def test_every_size(factor: float, up: bool) -> None:
    """Small ones, and those around where the rounding of the product changes."""
    found = scaling(factor, up, MOST)
    assert found is not None
    size = found.of(sym("n", 0, None))
    turns = [found.bottom * k + d for r in found.ranges for k in (r[0] - 1, *r) for d in (0, 1)]
    for n in [*range(300), *(t for t in turns if t <= MOST), MOST]:
        assert evaluate(size, {"n": n}) == (math.ceil if up else math.floor)(factor * n), n


def test_the_fraction_alone_is_wrong() -> None:
    """Else nothing here would be tested."""
    assert [math.floor(0.7 * n) - 7 * n // 10 for n in (70, 80, 90, 100)] == [0, 0, -1, 0]
    found = scaling(0.7, False, 100)
    assert found is not None
    assert (found.top, found.bottom, found.ranges) == (7, 10, ((9, 10),))


@pytest.mark.parametrize("factor", [0.0, -0.7, float(np.nextafter(0.5, 1)) * 1e15, math.nan, math.inf])
def test_factors_that_have_no_form(factor: float) -> None:
    assert scaling(factor, False, 100) is None


SIZES = ((10, 10), (3, 90), (110, 7), (2, 3), (64, 63))


@pytest.mark.parametrize("factors", [0.7, (1.3, 1.9)])
@pytest.mark.parametrize("dim", [Dim.DYNAMIC, Dim.DYNAMIC(min=2, max=128)])
def test_resized_by_a_factor(factors: Any, dim: Any) -> None:
    def forward(x: torch.Tensor) -> Any:
        return (
            F.interpolate(x, scale_factor=factors),
            F.interpolate(x, scale_factor=factors, mode="bilinear"),
            F.interpolate(x, scale_factor=factors, mode="bilinear", recompute_scale_factor=True),
        )

    others = [(torch.randn(1, 2, *s),) for s in SIZES]
    exported = check(forward, (torch.randn(1, 2, 12, 14),), ({2: dim, 3: dim},), others)
    limits = [g.text for g in entry(exported).graph.guards if g.text.endswith("<= 1000000")]
    assert limits == (["s0 <= 1000000", "s1 <= 1000000"] if dim is Dim.DYNAMIC else [])


def test_a_range_beyond_what_is_tried() -> None:
    with pytest.raises(RangeError) as caught:
        to_graphs(
            lambda x: F.interpolate(x, scale_factor=0.7),
            (torch.randn(1, 2, 12),),
            None,
            ({2: Dim("n", min=2, max=2_000_000)},),
        )
    assert caught.value.what == (
        "the declared range of n (2 to 2000000) would be narrowed: the program needs n <= 1000000, "
        "but n = 1999999 fails"
    )


def test_a_factor_without_a_form() -> None:
    with pytest.raises(UnsupportedOpError, match="is no short fraction: give sizes instead of a scale factor"):
        to_graphs(lambda x: F.interpolate(x, scale_factor=1e-9), (torch.randn(1, 2, 12),), None, ({2: Dim.DYNAMIC},))


ROUNDED_OFTEN: dict[str, Callable[[int], int]] = {
    "floor(0.07*n)": lambda n: math.floor(0.1 * (0.7 * n)),
    "floor(1.0*n)": lambda n: math.floor(0.1 * (10.0 * n)),
    "ceil(1.0*n)": lambda n: math.ceil(0.7 * n + 0.3 * n),
    "floor(2.0*n)": lambda n: math.floor(2.0 * (0.1 * (10.0 * n))),
    "49.0*(n/49)": lambda n: math.floor(n / 49 * 49),
    "(n/10) + (2*n/10)": lambda n: math.floor(n / 10 + 2 * n / 10),
    "3.0/(n/3)": lambda n: math.floor(3 / (n / 3)),
}


@pytest.mark.sweep(over="strict")
@pytest.mark.parametrize("strict", [False, True])
@pytest.mark.parametrize("size", ROUNDED_OFTEN)
def test_several_roundings(size: str, strict: bool) -> None:
    """torch's expression has one factor, and would be rounded once: floor(0.1 * (0.7 * 100)) is 7, floor(0.07 * 100)
    less."""
    formula = ROUNDED_OFTEN[size]
    with pytest.raises(UnsupportedOpError) as caught:
        to_graphs(lambda x: x.new_zeros(formula(x.shape[0])), (torch.randn(30),), None, ({0: Dim("n", min=2)},), strict)
    assert (
        f"the size {size} is rounded more than once in floating point, and which of the results would be right is not "
        "known: compute it in whole numbers, as in n * 7 // 100, or with one factor"
    ) in " ".join(str(caught.value).split())


def test_several_roundings_of_a_program() -> None:
    """One that was exported before."""

    class Module(torch.nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return x.new_zeros(math.floor(0.1 * (0.7 * x.shape[0])))

    program = torch.export.export(Module(), (torch.randn(30),), dynamic_shapes=({0: Dim.DYNAMIC},))
    with pytest.raises(UnsupportedOpError, match=r"rounded\s+more\s+than\s+once"):
        to_graphs(program)


def test_several_roundings_in_a_condition() -> None:
    """No op has this number."""

    def forward(x: torch.Tensor) -> torch.Tensor:
        return x + 1 if math.floor(0.1 * (0.7 * x.shape[0])) > 5 else x

    with pytest.raises(RangeError) as caught:
        to_graphs(forward, (torch.randn(120),), None, ({0: Dim.DYNAMIC},))
    assert caught.value.what == "the program holds only where floor(0.07*s0) > 5, which no run can check"


def test_one_rounding() -> None:
    """What floating point has exactly, but for one rounding, is found by fractions."""

    def forward(x: torch.Tensor) -> list[torch.Tensor]:
        n = x.shape[0]
        sizes = (
            math.floor(2 * (0.7 * n)),
            math.floor((n - 3) / 3 + 1),
            math.ceil(n * 1.5 / 7),
            math.floor(n / 6 * 2.5),
            math.floor(n / 3 + 0.5),
            round(n * 0.25 + n / 2),
            math.floor(n / 14 / 3 + n * 0.5),
        )
        return [x.new_zeros(s) for s in sizes]

    check(forward, (torch.randn(12),), ({0: Dim.DYNAMIC},), [(torch.randn(n),) for n in (9, 84, 90, 91, 100, 203)])


def test_a_size_as_a_number() -> None:
    """int of a float is a number to torch, so the program holds for one value of it."""

    def forward(x: torch.Tensor) -> torch.Tensor:
        return x.new_zeros(int(0.7 * x.shape[0]))

    guards = entry(check(forward, (torch.randn(90),), ({0: Dim.DYNAMIC},))).graph.guards
    assert [g.text for g in guards] == ["int(0.7*s0) == 62", "s0 <= 1000000"]
    with pytest.raises(RangeError) as caught:
        to_graphs(forward, (torch.randn(90),), None, ({0: Dim("n", max=500)},))
    assert caught.value.what == (
        "the declared range of n (0 to 500) would be narrowed: the program needs int(0.7*n) == 62, but n = 0 fails"
    )


def test_the_limit_of_a_condition_that_does_not_matter() -> None:
    """torch compares the size with 2, which is no check of ours, and so has no limit."""

    def forward(x: torch.Tensor) -> torch.Tensor:
        torch.sym_max(math.floor(0.7 * x.shape[0]), 5)
        bool(x.new_zeros(math.floor(0.7 * x.shape[0])).is_contiguous())
        return x + 1

    assert not entry(check(forward, (torch.randn(90),), ({0: Dim.DYNAMIC},))).graph.guards


@pytest.mark.sweep(over="target")
@pytest.mark.parametrize("target", ["cpu:x86-64-v3", "cuda:sm_90"])
@pytest.mark.parametrize("mode", ["nearest", "nearest-exact", "area", "bilinear"])
def test_scales_of_any_size_are_lowered(mode: str, target: str) -> None:
    """A size without an upper bound has dozens of places where the product rounds: each is a term of the size."""
    module = _Resized(mode)
    texts = stage_texts(
        "plan", module.eval(), (torch.randn(1, 2, 5, 7),), dynamic_shapes=({2: Dim.DYNAMIC},), target=target
    )
    assert list(texts) == ["forward"]


class _Resized(nn.Module):
    def __init__(self, mode: str) -> None:
        super().__init__()
        self.mode = mode

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return F.interpolate(x, scale_factor=2.3, mode=self.mode)
