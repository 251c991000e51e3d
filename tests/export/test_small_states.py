"""Sizes at which a module does something else to its states than its program; exporting leaves the module as it was."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import nn
from torch.export import Dim

from hardtack.exporter import UnsupportedOpError, to_graphs
from hardtack.exporter.reference import ReferenceFailure
from tests.export.checks import assert_same, eager, ours

ROWS = ({0: Dim.DYNAMIC},)
Forward = Callable[[nn.Module, torch.Tensor], Any]


class _Module(nn.Module):
    def __init__(self, forward: Forward) -> None:
        super().__init__()
        self.state, self.weight = nn.Buffer(torch.zeros(4)), nn.Parameter(torch.zeros(4))
        self._forward = forward

    def forward(self, x: torch.Tensor) -> Any:
        return self._forward(self, x)


def _counts_rows(m: Any, x: torch.Tensor) -> Any:
    if x.shape[0] > 1:
        m.state.add_(1)
    return x * 2


def _counts_single_rows(m: Any, x: torch.Tensor) -> Any:
    if x.shape[0] == 1:
        m.state.add_(1)
    return x * 2


def _counts_apart(m: Any, x: torch.Tensor) -> Any:
    m.state.add_(1 if x.shape[0] == 1 else 2)
    return x * 2


def _replaces(m: Any, x: torch.Tensor) -> Any:
    m.state = m.state + (x[0] if x.shape[0] > 1 else -x[0])
    return x * 2


def _writes_what_is_kept(m: Any, x: torch.Tensor) -> Any:
    """Of one row, contiguous() gives y itself."""
    y = x * 2
    v = y[:, :3].contiguous()
    v.add_(1)
    m.state.copy_(y.sum(0))
    return v


def _reads_later(m: Any, x: torch.Tensor) -> Any:
    """The first call finds zeros."""
    out = x + m.state if x.shape[0] > 1 else x
    m.state.add_(1)
    return out


def _changes_a_weight(m: Any, x: torch.Tensor) -> Any:
    with torch.no_grad():
        m.weight.add_(1)
    return x * m.weight if x.shape[0] > 1 else x


@pytest.mark.parametrize(
    "forward",
    [
        _counts_rows,
        _counts_single_rows,
        _counts_apart,
        _replaces,
        _writes_what_is_kept,
        _reads_later,
        _changes_a_weight,
    ],
)
def test_one_row_does_something_else_to_a_state(forward: Forward) -> None:
    module = _Module(forward).eval()
    exported = to_graphs(module, (torch.randn(5, 4).clamp(0.5),), None, ROWS)
    ours(exported, (torch.randn(3, 4),))
    with pytest.raises(ReferenceFailure, match=r"fails|expected 2 to"):
        ours(exported, (torch.randn(1, 4),))
    assert not module.state.any()
    assert not module.weight.any()


def test_states_that_one_row_changes_like_many() -> None:
    def forward(m: Any, x: torch.Tensor) -> Any:
        m.state.mul_(0.5).add_(x.sum(0) if x.shape[0] > 0 else 0)
        return x + m.state

    module, one = _Module(forward).eval(), (torch.randn(1, 4),)
    exported = to_graphs(module, (torch.randn(5, 4),), None, ROWS)
    assert_same(ours(exported, one), eager(module, one))


def test_a_state_that_is_full_after_one_call() -> None:
    def forward(m: Any, x: torch.Tensor) -> Any:
        rows = x * 2 if x.shape[0] > 1 else x + x
        m.weight[:1].view(1).index_copy_(0, m.place, rows.sum().view(1))
        m.place.add_(1)
        return rows

    module = _Module(forward).eval().requires_grad_(False)
    module.place = nn.Buffer(torch.zeros(1, dtype=torch.int64))
    exported = to_graphs(module, (torch.randn(5, 4),), None, ROWS)
    assert_same(ours(exported, (torch.ones(1, 4),))[:1], [torch.full((1, 4), 2.0)])


def _writes_a_weight_of_one_row(m: Any, x: torch.Tensor) -> Any:
    if x.shape[0] == 1:
        m.weight.view(2, 2)[0].fill_(3)
    return x * 2


def _assigns_a_weight_of_one_row(m: Any, x: torch.Tensor) -> Any:
    if x.shape[0] == 1:
        m.weight.data[0] = 3
    return x * 2


def _writes_a_weight_as_a_result(m: Any, x: torch.Tensor) -> Any:
    if x.shape[0] == 1:
        torch.add(m.weight, 1, out=m.weight.detach())
    return x * 2


def _shortens_rows_of_a_weight_of_one_row(m: Any, x: torch.Tensor) -> Any:
    rows = m.weight.view(2, 2).add(0) if x.shape[0] > 1 else F.embedding(torch.tensor([0, 1]), m.ones, None, 0.1)
    return x * 2 + rows.sum() * 0


def _writes_in_a_function_of_one_row(m: Any, x: torch.Tensor) -> Any:
    if x.shape[0] == 1:
        F.threshold(m.weight, 1.0, 3.0, inplace=True)
    return x * 2


@pytest.mark.parametrize(
    "forward",
    [
        _shortens_rows_of_a_weight_of_one_row,
        _writes_in_a_function_of_one_row,
        _writes_a_weight_of_one_row,
        _assigns_a_weight_of_one_row,
        _writes_a_weight_as_a_result,
    ],
)
def test_a_weight_that_only_one_row_changes_stays_as_it_is(forward: Forward) -> None:
    """The sizes are tried on a copy, but of the weights, which may be large."""
    module = _Module(forward).eval().requires_grad_(False)
    module.ones = nn.Parameter(torch.ones(2, 3), requires_grad=False)
    exported = to_graphs(module, (torch.randn(5, 4),), None, ROWS)
    assert not module.weight.any()
    assert torch.equal(module.ones, torch.ones(2, 3))
    with pytest.raises(ReferenceFailure, match=r"fails|expected 2 to"):
        ours(exported, (torch.randn(1, 4),))


def test_rows_that_an_embedding_shortens_stay_as_they_are() -> None:
    module = nn.Embedding(5, 4, max_norm=0.1).eval()
    before = module.weight.detach().clone()
    with pytest.raises(UnsupportedOpError, match="renorm changes an embedding during the run: use max_norm=None"):
        to_graphs(module, (torch.tensor([1, 2, 3]),), None, ROWS)
    assert torch.equal(module.weight, before)
