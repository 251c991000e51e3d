"""Ops that pick elements by order or by place, against eager's."""

from __future__ import annotations

import pytest
import torch
from torch.export import Dim

from hardtack.exporter import to_graphs
from tests.export.checks import check, ours

NAN = torch.nan


@pytest.mark.parametrize("include_self", [True, False])
@pytest.mark.parametrize("reduce", ["prod", "mean", "amax", "amin"])
def test_index_reduce(reduce: str, include_self: bool) -> None:
    x, source = torch.randn(5, 3), torch.randn(4, 3)
    index = torch.tensor([0, 2, 2, 0])

    def program(x: torch.Tensor, index: torch.Tensor, source: torch.Tensor) -> tuple[torch.Tensor, ...]:
        down = x.index_reduce(0, index, source, reduce, include_self=include_self)
        across = x.T.contiguous().index_reduce(-1, index, source.T, reduce, include_self=include_self)
        whole = (x * 9).long().index_reduce(0, index, (source * 9).long(), reduce, include_self=include_self)
        return down, across, whole

    others = [(x, torch.tensor([4]), source[:1]), (x, index[:0], source[:0])]
    check(program, (x, index, source), ({}, {0: Dim.DYNAMIC}, {0: Dim.DYNAMIC}), others, atol=1e-6)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32, torch.float64])
def test_frexp(dtype: torch.dtype) -> None:
    """Of numbers below the smallest normal one, too, and of what is none."""
    info = torch.finfo(dtype)
    tiny = torch.tensor([info.smallest_normal, info.smallest_normal / 8], dtype=torch.float64).to(dtype)
    x = torch.tensor([0.0, -0.0, 1.0, -3.0, 0.1, info.max, torch.inf, -torch.inf, NAN], dtype=torch.float64).to(dtype)
    x = torch.cat([x, tiny, -tiny * 3])
    got, want = ours(to_graphs(torch.frexp, (x,)), (x,)), torch.frexp(x)
    assert got[1].dtype is torch.int32
    torch.testing.assert_close(got[0], want.mantissa, rtol=0, atol=0, equal_nan=True)
    assert torch.equal(torch.signbit(got[0][:2]), torch.signbit(want.mantissa[:2]))
    assert torch.equal(got[1], want.exponent)


ROWS = torch.tensor([[3.0, NAN, 1, 2, NAN], [5, 4, 3, 2, 1], [NAN] * 5, [1, 1, NAN, 1, 7]])


def test_nanmedian() -> None:
    def program(x: torch.Tensor) -> tuple[torch.Tensor, ...]:
        values, at = torch.nanmedian(x, 1)
        kept = torch.nanmedian(x, 0, keepdim=True)[0]
        return values, x.gather(1, at[:, None]), kept, torch.nanmedian(x), torch.nanmedian(x[0, 0])

    check(program, (ROWS,), ({0: Dim.DYNAMIC},), [(ROWS[:1],), (ROWS[2:3],), (ROWS.repeat(2, 1),)])


def test_mode() -> None:
    """The smallest of the most frequent values; the place is one where it is, of several the last."""
    whole = torch.tensor([[1, 0, 1, 0, 2], [4, 4, 3, 3, 3], [9, 8, 7, 6, 5]])

    def program(x: torch.Tensor) -> tuple[torch.Tensor, ...]:
        values, at = torch.mode(x, 1)
        return values, at, torch.mode(x.float(), 0, keepdim=True)[0], torch.mode(x[0, 0])[0]

    check(program, (whole,), ({0: Dim.DYNAMIC},), [(whole[:1],), (whole.repeat(3, 1),)])


def test_searchsorted_with_a_sorter() -> None:
    boundaries, x = torch.randn(3, 7), torch.randn(3, 4)

    def program(boundaries: torch.Tensor, x: torch.Tensor) -> tuple[torch.Tensor, ...]:
        order = torch.argsort(boundaries, 1)
        one = torch.searchsorted(boundaries[0], x, sorter=order[0])
        return torch.searchsorted(boundaries, x, sorter=order, right=True), one

    check(program, (boundaries, x), ({0: Dim.DYNAMIC}, {0: Dim.DYNAMIC}), [(boundaries[:1], x[:1])])


@pytest.mark.parametrize("p", [0.0, 1.0, 2.0, 3.5, torch.inf])
def test_pdist(p: float) -> None:
    for rows in (1, 2, 6):
        x = torch.randn(rows, 3)
        (got,) = ours(to_graphs(lambda x: torch.nn.functional.pdist(x, p), (x,)), (x,))
        torch.testing.assert_close(got, torch.nn.functional.pdist(x, p))
