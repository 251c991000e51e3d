"""Sizes that are another size times a float: what floating point gives, for every size."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch.export import Dim

from hardtack.codegen.ir.expr import sym
from hardtack.codegen.ir.expr_walk import evaluate
from hardtack.export import RangeError, UnsupportedOpError, to_graphs
from hardtack.export.factors import MOST, scaling
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
