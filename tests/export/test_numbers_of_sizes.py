"""Numbers that a model makes of sizes: at sizes at which torch computes another than eager, the program refuses."""

from __future__ import annotations

import itertools
import re
from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch.export import Dim

from hardtack.codegen.ir.equalities import equality
from hardtack.codegen.ir.expr import const, floordiv, minimum, sym
from hardtack.codegen.ir.graph import Guard
from hardtack.exporter import to_graphs
from hardtack.exporter.reference import ReferenceFailure
from tests.export.checks import assert_same, eager, ours

WEIGHT = torch.randn(64, 3)

ONE: list[tuple[Callable[[torch.Tensor], Any], int, tuple[int, ...]]] = [
    # what torch computes of slices holds where the tensor is not empty
    (lambda x: torch.arange(x[:1].size(0)), 8, (1, 2, 5)),
    (lambda x: WEIGHT[: x[:1].size(0)].mean(0), 8, (1, 2, 5)),
    (lambda x: torch.arange(x[:-1].shape[0] + 1), 8, (1, 2, 5)),
    (lambda x: F.pad(x, (0, 0, 0, -x[1:].shape[0])), 8, (1, 2, 5)),
    (lambda x: x * x[:1].size(0), 8, (0, 1, 2, 5)),  # nothing times another number is nothing
    # constants that an op takes
    (lambda x: x.unfold(0, min(1, x.shape[0] - 1), 1), 4, (2, 3, 5)),
    (lambda x: x.diagonal(min(x.shape[0], 2)), 8, (2, 3, 5)),
    # extremes and magnitudes that torch decides
    (lambda x: x + 1 if max(1, x.shape[0] // 2) in (1, 5) else x - 1, 16, (4, 6, 8)),
    (lambda x: torch.full((2,), abs(1 - x.shape[0])), 5, (1, 2, 3)),
    # comparisons of products, which say nothing where torch sorts strides by them
    (lambda x: WEIGHT[: x.shape[0] * x.shape[0]].tensor_split(2)[1], 2, (0, 2, 4, 6)),
    (lambda x: x + 1 if WEIGHT[:, : x.shape[0] ** 2 - x.shape[0]].is_contiguous() else x - 1, 5, (3, 4)),
    (lambda x: x + 1 if WEIGHT[:, : x.shape[0] >> 1].is_contiguous() else x - 1, 5, (4, 5)),
    (lambda x: x + 1 if WEIGHT[:, : round(x.shape[0] / 3)].is_contiguous() else x - 1, 5, (5,)),
    # what a comparison gives, as a number
    (lambda x: x * (x.shape[0] > 3), 8, (0, 1, 3, 4)),
    (lambda x: (x.shape[0] == 3) * x.to(torch.int64), 8, (0, 1, 3, 4)),
    (lambda x: x[:: max(x.shape[0] - 1, 1)], 5, (1, 2, 3, 6)),
    (lambda x: x[1 :: 1 + x.shape[0] // 4], 5, (2, 4, 6)),
    (lambda x: WEIGHT[: x.shape[0] % 2].squeeze(), 5, (1, 3)),
    (lambda x: WEIGHT[: x.shape[0] % 3].squeeze(0), 5, (2,)),
    (lambda x: x.unflatten(0, (-1, -(-x.shape[0] // 4))), 4, (1, 2, 3)),
]
"""A function of an input [n, 3], the n of the example, and some for which it must run."""


@pytest.mark.parametrize(("function", "example", "runs"), ONE)
def test_one_size(function: Callable[[torch.Tensor], Any], example: int, runs: tuple[int, ...]) -> None:
    exported = to_graphs(function, (torch.randn(example, 3),), None, ({0: Dim.DYNAMIC},))
    compare(exported, function, [(n,) for n in (*range(10), 16)], {(n,) for n in (*runs, example)})


TWO: list[tuple[Callable[..., Any], tuple[int, int], set[tuple[int, int]]]] = [
    (lambda x, y: x + 1 if x.shape[0] + y.shape[0] - 2 != 1 else y[0] - 1, (7, 9), {(2, 2), (3, 1)}),
    (lambda x, y: y[0] + 1 if x.shape[0] + y.shape[0] - 2 < 2 else y[0] - 1, (7, 9), {(2, 2), (3, 1)}),
    (lambda x, y: y[0] + sorted([x.shape[0] * y.shape[0], 1, 3])[1], (7, 9), {(2, 2), (4, 1)}),
    (lambda x, y: y[0] + 1 if x.shape[0] * y.shape[0] == 3 else y[0] - 1, (7, 9), {(2, 2), (1, 2)}),
    (lambda x, y: y[0] + abs(x.shape[0] * y.shape[0] - 1), (7, 9), {(2, 2), (1, 2)}),
    # what torch asks for itself before a model asks for the layout of what it made
    (lambda x, y: x + 1 if WEIGHT[:, : x.shape[0] * y.shape[0]].is_contiguous() else x - 1, (7, 9), {(2, 2), (1, 4)}),
    (lambda x, y: x + 1 if WEIGHT[:, : x.shape[0] + y.shape[0]].is_contiguous() else x - 1, (7, 9), {(2, 2), (1, 3)}),
]
"""The same of two inputs, of which one alone is never small enough."""


@pytest.mark.parametrize(("function", "example", "runs"), TWO)
def test_two_sizes(function: Callable[..., Any], example: tuple[int, int], runs: set[tuple[int, int]]) -> None:
    given = tuple(torch.randn(n, 3) for n in example)
    exported = to_graphs(function, given, None, ({0: Dim.DYNAMIC}, {0: Dim.DYNAMIC}))
    compare(exported, function, list(itertools.product(range(5), repeat=2)), runs | {example})


def compare(
    exported: Any, function: Callable[..., Any], sizes: list[tuple[int, ...]], runs: set[tuple[int, ...]]
) -> None:
    """Where eager has a result, ours is the same or refused; not refused at the sizes that must run."""
    for row in sorted({*sizes, *runs}):
        given = tuple(torch.randn(n, 3) for n in row)
        try:
            want = eager(function, given)
        except (RuntimeError, IndexError, ValueError):
            assert row not in runs
            continue
        found = refused_or(exported, given)
        if isinstance(found, str):
            assert re.search(r"guard .* fails|expected \d+ to", found)
            assert row not in runs, f"{row}: {found}"
        else:
            assert_same(found, want)


def refused_or(exported: Any, given: tuple[torch.Tensor, ...]) -> Any:
    """Our results, or the sentence with which these inputs are refused."""
    try:
        return ours(exported, given)
    except ReferenceFailure as error:
        return str(error)


def test_rounding_is_no_condition() -> None:
    """A condition that a run at another size disproves is kept; results that differ by rounding disprove nothing."""

    class Model(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            torch.manual_seed(0)
            parts = [torch.nn.LayerNorm(48), torch.nn.Linear(48, 48), torch.nn.GELU()] * 6
            self.layers = torch.nn.Sequential(*parts).bfloat16()

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return self.layers(x + x if x.shape[0] > 1 else x * 2)

    exported = to_graphs(Model().eval(), (torch.randn(4, 48).bfloat16(),), None, ({0: Dim.DYNAMIC},))
    (found,) = exported.entries.values()
    assert [(s.sym.lo, s.sym.hi) for s in found.graph.syms] == [(0, None)]
    assert not found.graph.guards


def test_sizes_that_guards_make_equal() -> None:
    n, m = sym("n", 0, None), sym("m", 0, None)
    same = equality([Guard("eq", floordiv(n, m + 1), const(1), ""), Guard("le", m, n, "")])
    assert same(3 * n, 3 * n * floordiv(n, m + 1))
    assert not same(n, m)
    chain = equality([Guard("eq", minimum(n, 5), m, ""), Guard("eq", m, const(2), "")])
    assert chain(minimum(n, 5) * n, n * 2)
    assert not chain(minimum(n, 6), m)


BESIDE_A_BOOL: list[Callable[[int, bool], Any]] = [
    lambda n, b: n + b,
    lambda n, b: b - n,
    lambda n, b: n * b,
    lambda n, b: n // b if b else b // n,
    lambda n, b: b % n,
    lambda n, b: b / n,
    lambda n, b: n**b,
    lambda n, b: n << b,
    lambda n, b: max(n, b),
    lambda n, b: torch.sym_min(b, n),
    lambda n, b: 3 if n > b else 5,
]


@pytest.mark.parametrize("number", BESIDE_A_BOOL)
@pytest.mark.parametrize("setting", [False, True])
def test_a_bool_beside_a_size_is_an_int(number: Callable[[int, bool], Any], setting: bool) -> None:
    """As in Python; torch makes sympy's true of it, which is no number."""

    def forward(x: torch.Tensor) -> torch.Tensor:
        return x + number(x.shape[0], setting)

    exported = to_graphs(forward, (torch.ones(4),), None, ({0: Dim.DYNAMIC},))
    for n in (4, 2, 3, 9):
        assert_same(ours(exported, (torch.ones(n),)), eager(forward, (torch.ones(n),)))
