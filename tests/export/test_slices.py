"""Slices and single elements counted from the end, for sizes where there are none: eager's result, or a guard."""

from __future__ import annotations

import itertools
from collections.abc import Callable

import pytest
import torch
from checks import assert_same, entry, ours
from torch import Tensor, nn
from torch.export import Dim
from torch.export.dynamic_shapes import _DimHint

from hardtack.codegen.ir.expr_walk import evaluate
from hardtack.codegen.ir.graph import Graph
from hardtack.exporter import RangeError, to_graphs

FUNCTIONS: dict[str, Callable[[Tensor], Tensor]] = {
    "the last row": lambda x: x[-1],
    "the last row, kept": lambda x: x[-1:],
    "three rows": lambda x: x[-3:],
    "all but the last": lambda x: x[:-1],
    "a row": lambda x: x[2],
    "some rows": lambda x: x[1:3],
    "every other row from the end": lambda x: x[-4::2],
    "split off": lambda x: x.tensor_split((1, -1))[2],
    "two rows from the size": lambda x: x[x.shape[0] - 2 :],
    "two rows, narrowed": lambda x: x.narrow(0, x.shape[0] - 2, 2),
    "the last row from the size": lambda x: x[x.shape[0] - 1],
    "the third last, selected": lambda x: x.select(0, x.shape[0] - 3),
    "the second half": lambda x: x[x.shape[0] // 2 :],
    "all but one": lambda x: x[: x.shape[0] - 1],
    "all but the first by a negative size": lambda x: x[1 - x.shape[0] :],
    "a row by a negative size": lambda x: x[2 - x.shape[0]],
    "all up to a negative size": lambda x: x[: 3 - x.shape[0]],
    "some rows up to the last": lambda x: x[x.shape[0] - 3 : x.shape[0] - 1],
    "every other row from the size": lambda x: x[x.shape[0] - 4 :: 2],
    "written from the size": lambda x: x.clone().slice_scatter(x[:2], 0, x.shape[0] - 2),
    "a row written from the size": lambda x: x.clone().select_scatter(x[0], 0, x.shape[0] - 1),
}


class Of(nn.Module):
    def __init__(self, function: Callable[[Tensor], Tensor]) -> None:
        super().__init__()
        self.function = function

    def forward(self, x: Tensor) -> Tensor:
        return self.function(x) * 2


@pytest.mark.sweep(over="dim")
@pytest.mark.parametrize("dim", [Dim.DYNAMIC(min=0), Dim.DYNAMIC(min=1), Dim.DYNAMIC(min=2), Dim("n", max=64)])
@pytest.mark.parametrize("name", FUNCTIONS)
def test_small_sizes(name: str, dim: object) -> None:
    """For each size the graph gives eager's result, or a guard or the symbol's range refuses it."""
    if name == "all up to a negative size" and not isinstance(dim, _DimHint):
        pytest.skip("holds for sizes 0 and 1, and then from 4 on")
    exported = to_graphs(Of(FUNCTIONS[name]).eval(), (torch.randn(11, 3),), None, ({0: dim},))
    graph = entry(exported).graph
    taken = []
    for n in range(12):
        if _refuses(graph, n):
            continue
        taken.append(n)
        x = torch.randn(n, 3)
        assert_same(ours(exported, (x,)), [FUNCTIONS[name](x) * 2])
    assert taken[-7:] == list(range(5, 12))


@pytest.mark.sweep(over=("step", "example"))
@pytest.mark.parametrize(("step", "example"), [(1, 4), (1, 7), (2, 7)])
def test_bounds_on_either_side(step: int, example: int) -> None:
    """Of every pair of bounds, from the start and from the end, each size has eager's elements or is refused: x[-3:-1]
    of two rows is one row.
    """
    x, declared = torch.arange(12.0), Dim("n", max=64)
    taken: dict[int, int] = {}
    for start, end in itertools.product((None, -5, -3, -1, 0, 1, 3, 5), (-5, -3, -1, 0, 1, 3, 5)):
        try:
            exported = to_graphs(lambda x: x[start:end:step] * 2, (x[:example].clone(),), None, ({0: declared},))  # noqa: B023
        except RangeError:  # it is cut at the example's size, and is not at others
            continue
        for n in range(12):
            if not _refuses(entry(exported).graph, n):
                taken[n] = taken.get(n, 0) + 1
                assert_same(ours(exported, (x[:n],)), [x[:n][start:end:step] * 2])
    assert taken[7] > 20
    assert taken[1] > 5


def _refuses(graph: Graph, n: int) -> bool:
    """True if the one dynamic size must not be n."""
    (binding,) = graph.syms
    relations = {"le": int.__le__, "lt": int.__lt__, "eq": int.__eq__, "ne": int.__ne__}
    at = {binding.sym.name: n}
    return n < binding.sym.lo or not all(
        relations[g.relation](evaluate(g.a, at), evaluate(g.b, at)) for g in graph.guards
    )


NARROWED = "the declared range of n (1 to 64) would be narrowed: the program needs 0 <= n - 2, but n = 1 fails"


@pytest.mark.parametrize("name", ["two rows from the size", "two rows, narrowed"])
def test_a_range_with_sizes_of_both_signs(name: str) -> None:
    """Of one row, x[n - 2:] is counted from the end; torch has settled the shapes for the other reading."""
    x = torch.randn(11, 3)
    with pytest.raises(RangeError) as caught:
        to_graphs(Of(FUNCTIONS[name]).eval(), (x,), None, ({0: Dim("n", min=1, max=64)},))
    assert caught.value.what == NARROWED
    assert caught.value.where is not None
    assert caught.value.where.file == __file__
    exported = to_graphs(Of(FUNCTIONS[name]).eval(), (x,), None, ({0: Dim("n", min=2, max=64)},))
    assert not entry(exported).graph.guards
    for n in (2, 3, 64):
        y = torch.randn(n, 3)
        assert_same(ours(exported, (y,)), [FUNCTIONS[name](y) * 2])


@pytest.mark.parametrize("rows", [slice(-12, 2), slice(None, -12), slice(None, None, None)])
def test_a_range_in_which_a_slice_from_the_end_begins_before_the_start(rows: slice) -> None:
    """Behind the twelfth row x[-12:2] begins elsewhere than torch has taken it to begin."""
    x = torch.randn(11, 3)
    declared = ({0: Dim("n", max=64)},)
    if rows == slice(None):
        assert not entry(to_graphs(lambda x: x[rows] * 2, (x,), None, declared)).graph.guards
        return
    with pytest.raises(RangeError, match="the program needs n < 12, but n = 13 fails"):
        to_graphs(lambda x: x[rows] * 2, (x,), None, declared)
    graph = entry(to_graphs(lambda x: x[rows] * 2, (x,), None, ({0: Dim.DYNAMIC},))).graph
    assert [b.sym.hi for b in graph.syms] == [11]


def test_a_condition_with_two_ways_out() -> None:
    """Sizes that torch accepts either way: all that it holds for run, and only those."""
    exported = to_graphs(lambda x: x[3 - x.shape[0] :] * 2, (torch.randn(8, 3),), None, ({0: Dim("n", min=4, max=64)},))
    assert not entry(exported).graph.guards
    for n in (4, 5, 9):
        x = torch.randn(n, 3)
        assert_same(ours(exported, (x,)), [x[3 - n :] * 2])
