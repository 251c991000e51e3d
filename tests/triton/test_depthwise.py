"""Depthwise convolutions: runs of outputs, rows of the filter side by side, edges, symbols."""

from __future__ import annotations

import tests.triton.interpreter  # noqa: F401  # isort: skip  # first: it chooses the interpreter
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from sweep import num_examples

from hardtack.codegen.ir.nests import TemplateNest
from hardtack.codegen.ir.types import DType
from hardtack.codegen.lower.gpu_conv import TiledDepthwise
from hardtack.codegen.machine.data import H200
from hardtack.codegen.tune.conv_plan import LONGEST_TAPS, DepthwisePlan, plan_depthwise, row_taps
from tests.triton import template_cases as cases
from tests.triton.template_runs import lowered, run

FLOATS = (DType.F32, DType.F16, DType.BF16)


def check(case: cases.Case) -> None:
    cases.close(case, run(case.graph, case.tensors, case.sizes), case.want(case.tensors))


def plan_of(case: cases.Case) -> DepthwisePlan:
    nests = lowered(case.graph, "sm_90", case.sizes).nests
    (plan,) = [n.template.plan for n in nests if isinstance(n, TemplateNest) and isinstance(n.template, TiledDepthwise)]
    assert isinstance(plan, DepthwisePlan)
    return plan


@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize("constant", [True, False])
def test_channels_that_fill_no_tile(dtype: DType, constant: bool) -> None:
    check(cases.convolution([2, 33, 7, 9], 33, [3, 5], dtype, 33, 2, 2, constant=constant))


@settings(max_examples=num_examples(10))
@given(
    images=st.integers(1, 3),
    channels=st.integers(2, 40),
    sizes=st.lists(st.integers(5, 19), min_size=1, max_size=3),
    taps=st.lists(st.integers(1, 7), min_size=3, max_size=3),
    stride=st.integers(1, 3),
    padding=st.integers(0, 3),
    dilation=st.integers(1, 3),
    constant=st.booleans(),
    dtype=st.sampled_from(FLOATS),
    dynamic=st.sampled_from(["", "0", "2", "023", "3"]),
)
def test_any_window(  # type: ignore[no-untyped-def]
    images, channels, sizes, taps, stride, padding, dilation, constant, dtype, dynamic
) -> None:
    if len(sizes) == 3:
        sizes, channels = [min(n, 6) for n in sizes], channels % 5 + 2
    taps = [min(k, (n + 2 * padding - 1) // dilation + 1) for k, n in zip(taps, sizes, strict=False)]
    symbols = [d for d in map(int, dynamic) if d < 2 + len(sizes)]
    shape = [images, channels, *sizes]
    check(
        cases.convolution(
            shape, channels, taps, dtype, channels, stride, padding, dilation, False, constant, dynamic=symbols
        )
    )


def test_few_outputs_share_the_rows_of_a_filter() -> None:
    case = cases.convolution([1, 32, 9, 9], 32, [7, 7], DType.BF16, 32, padding=3)
    assert plan_of(case).share == 8
    check(case)


def test_many_outputs_walk_the_rows_of_a_filter(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("hardtack.codegen.tune.conv_plan.FULL_WARPS", 0.001)
    case = cases.convolution([2, 40, 9, 17], 40, [3, 3], DType.F32, 40, padding=1)
    plan = plan_of(case)
    assert (plan.share, plan.warps) == (1, 4)
    check(case)


@pytest.mark.parametrize("taps", [31, 33, 37])
def test_long_filters(taps: int) -> None:
    check(cases.convolution([2, 16, 50], 16, [taps], DType.F32, 16, padding=taps // 2))


def test_rows_of_taps_are_cut_into_equal_chunks() -> None:
    assert [row_taps(n) for n in (1, 7, LONGEST_TAPS, 33, 37, 64)] == [1, 7, LONGEST_TAPS, 11, 1, 16]


def test_padding_reads_nothing() -> None:
    """What lies outside of an image, in memory another image's line, is not even multiplied by zero."""
    case = cases.convolution([3, 16, 6, 6], 16, [3, 3], DType.F32, 16, padding=1, bias=False)
    x = case.tensors["x"]
    x[1] = torch.nan
    (y,) = run(case.graph, case.tensors, case.sizes)
    assert torch.isfinite(y[0]).all()
    assert torch.isfinite(y[2]).all()
    assert torch.isnan(y[1]).all()


@pytest.mark.parametrize("width", [1, 7, 14, 56, 112])
def test_runs_waste_little(width: int) -> None:
    plan = plan_depthwise(width, width, 96, (7, 7), 1, H200)
    assert -(-width // plan.run) * plan.run <= 1.15 * width
