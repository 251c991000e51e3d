"""Views or copies by strides, and writes in place: what is one memory in eager mode is one in the exported program, for
each size that it takes.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable

import pytest
import torch
from torch.export import Dim

from hardtack.exporter import to_graphs
from hardtack.exporter.reference import ReferenceFailure
from tests.export.checks import assert_same, eager, ours

Pair = tuple[torch.Tensor, torch.Tensor]


def _read_behind(x: torch.Tensor) -> Pair:
    y = x[:, :, 1:] * 2
    flat = y.reshape(-1)
    y[:1].round_()
    return flat, y


def _flattened(x: torch.Tensor) -> Pair:
    y = x * 2
    flat = y[:, 1:].flatten(0, 1)
    flat.mul_(3)
    return y, flat


def _transposed(x: torch.Tensor) -> Pair:
    y = x * 2
    flat = y[:, 1:].transpose(0, 1).reshape(-1)
    flat.mul_(3)
    return y, flat


def _split(x: torch.Tensor) -> Pair:
    y = x.permute(2, 1, 0).contiguous()
    y.split(2, 0)[0].sigmoid_()
    return y, x * 1


def _cut_twice(x: torch.Tensor) -> Pair:
    y = x * 2
    part = y[1:, :, 1:].contiguous()
    part.neg_()
    return y, part


def _halved(x: torch.Tensor) -> Pair:
    y = x * 2
    half = y.chunk(2, 1)[0].reshape(-1)
    half.neg_()
    return y, half


def _same_shape(x: torch.Tensor) -> Pair:
    y = (x * 2).transpose(0, 1)
    same = y[1:].reshape_as(y[1:])
    same.neg_()
    return y, same


def _copied_first(x: torch.Tensor) -> Pair:
    y = (x * 2).transpose(0, 1)
    flat = y.reshape(-1)
    y.zero_()
    return flat, y


def test_a_size_that_is_one_for_many_sizes() -> None:
    """x.shape[0] // 16 is 1 from 16 to 31: the last of them counts, and the first."""

    def function(x: torch.Tensor) -> Pair:
        y = x * 2
        flat = y[: x.shape[0] // 16].t().reshape(-1)
        flat.neg_()
        return y, flat

    exported = to_graphs(function, (torch.randn(50, 3),), None, ({0: Dim.DYNAMIC},))
    for n in range(2, 70):
        x = torch.randn(n, 3)
        try:
            found = ours(exported, (x.clone(),))
        except ReferenceFailure:
            assert n < 32
            continue
        assert n < 16 or n > 31
        assert_same(found, eager(function, (x,)))


EXACT = {
    **{(f, dims): set() for f in (_read_behind, _same_shape) for dims in ((2,), (0, 1), (0, 1, 2))},
    (_split, (0, 1)): {(1, 1, 5)},
    (_transposed, (0, 1, 2)): {(1, n, m) for n in range(1, 7) for m in range(1, 7)} | {(n, 2, 1) for n in range(1, 7)},
    (_cut_twice, (0, 1)): {(2, 1, 5)},
}
"""By function and dynamic dims the shapes that it refuses, these and no others: there eager has a view and elsewhere a
copy. Of the rest torch refuses more.
"""

FUNCTIONS = (_read_behind, _flattened, _transposed, _split, _cut_twice, _halved, _same_shape, _copied_first)
# torch takes no split of a dynamic dimension whose parts are named
CASES = [(f, dims) for f in FUNCTIONS for dims in ((), (2,), (0, 1), (0, 1, 2)) if f is not _split or 2 not in dims]


ALL_DIMS = (0, 1, 2)
"""216 shapes are run: of the function that refuses some of them, and of the others in a sweep."""


@pytest.mark.parametrize(
    ("function", "dims"),
    [
        pytest.param(*c, marks=pytest.mark.sweep(only=True) if c[1] == ALL_DIMS and not EXACT.get(c) else ())
        for c in CASES
    ],
)
def test_views_and_writes(function: Callable[[torch.Tensor], Pair], dims: tuple[int, ...]) -> None:
    exported = to_graphs(function, (torch.randn(3, 4, 5),), None, (dict.fromkeys(dims, Dim.DYNAMIC),))
    refused = set()
    for shape in itertools.product(*(range(1, 7) if d in dims else (n,) for d, n in enumerate((3, 4, 5)))):
        x = torch.randn(shape)
        try:
            found = ours(exported, (x.clone(),))
        except ReferenceFailure:
            refused.add(shape)
            continue
        assert_same(found, eager(function, (x,)))
    assert refused == EXACT.get((function, dims), refused if dims else set())
