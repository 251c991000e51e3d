"""Refusals: the class, the user's line, and what to do."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import nn
from torch.export import Dim

from hardtack.export import (
    CaptureError,
    ExportError,
    InputSpecError,
    MutationError,
    RangeError,
    TrainingModeError,
    UnsupportedOpError,
    to_graphs,
)
from tests.export.checks import entry

ANY = Dim.DYNAMIC
X = torch.randn(8, 8)


class Branch(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        if x.sum() > 0:
            return x
        return -x


class Item(nn.Module):
    def forward(self, x: torch.Tensor, n: torch.Tensor) -> torch.Tensor:
        return x[: int(n.item())]


class FourRows(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x.view(8, -1) * 2


class MoreThanFive(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x + 1 if x.shape[0] > 5 else x


class Positions(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.table = nn.Parameter(torch.randn(16, 8))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x + self.table[: x.shape[0]]


class Pairs(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x.reshape(x.shape[0] // 2, 2, -1).sum(1)


class Unsupported(nn.Module):
    def forward(self, x: torch.Tensor) -> Any:
        a = torch.linalg.det(x)
        b = torch.rand(3)
        return b + a + torch.linalg.det(x) + x.nonzero().sum()


class Writes(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x.add_(1)
        return x * 2


class Sum(nn.Module):
    def forward(self, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        return x + y


def refused(kind: type[ExportError], module: Any, args: tuple[Any, ...], spec: Any = None) -> ExportError:
    """The error that exporting raises; exactly of `kind`."""
    with pytest.raises(ExportError) as caught:
        to_graphs(module.eval(), args, None, spec)
    assert type(caught.value) is kind, caught.value
    return caught.value


def assert_line(error: ExportError, source: str) -> None:
    """The error names this file and a line with this text."""
    assert error.where is not None, error
    assert error.where.file.endswith("test_errors.py")
    assert source in error.where.source


@pytest.mark.parametrize(
    ("module", "args", "source"),
    [(Branch(), (X,), "if x.sum() > 0:"), (Item(), (X, torch.tensor(2)), "return x[: int(n.item())]")],
)
def test_control_flow_on_values(module: nn.Module, args: tuple[Any, ...], source: str) -> None:
    error = refused(CaptureError, module, args)
    assert_line(error, source)
    assert "torch.cond" in error.fix


@pytest.mark.parametrize("dim", [ANY, Dim("B", max=64)])
def test_dimension_fixed_by_the_model(dim: Any) -> None:
    error = refused(RangeError, FourRows(), (X,), ({0: dim},))
    assert_line(error, "return x.view(8, -1) * 2")
    assert "dimension 0 of input x" in error.what
    assert "holds only for size 8" in error.what


def test_fixed_dimension_that_nobody_declared() -> None:
    graph = entry(to_graphs(FourRows().eval(), (X,), None, ({1: Dim("N", max=64)},))).graph
    assert str(graph.types["x"]) == "f32[8, N]"


@pytest.mark.parametrize(
    ("module", "dim", "what", "source"),
    [
        (MoreThanFive(), Dim("B", min=1, max=64), "B (1 to 64) would be narrowed: the program needs 5 < B", "> 5"),
        (Positions(), Dim("T"), "T (from 0) would be narrowed: the program needs T <= 16", "self.table["),
        (Positions(), Dim("T", max=17), "T = 17 fails", "self.table["),
        (Pairs(), Dim("B", max=64), "B (0 to 64) would be narrowed", "reshape"),
    ],
)
def test_narrowed_range(module: nn.Module, dim: Any, what: str, source: str) -> None:
    error = refused(RangeError, module, (X,), ({0: dim},))
    assert what in error.what
    assert_line(error, source)


@pytest.mark.parametrize(
    ("module", "dim"),
    [
        (MoreThanFive(), Dim("B", min=6, max=64)),
        (MoreThanFive(), Dim("B")),
        (Positions(), Dim("T", max=16)),
        (Positions(), ANY),
        (Pairs(), 2 * Dim("half", min=1, max=32)),
        (Pairs(), ANY),
    ],
)
def test_ranges_that_hold(module: nn.Module, dim: Any) -> None:
    """Conditions within the declared range, or where nobody declared a bound, are input checks."""
    to_graphs(module.eval(), (X,), None, ({0: dim},))


def test_lower_bound_becomes_a_guard() -> None:
    graph = entry(to_graphs(MoreThanFive().eval(), (X,), None, ({0: Dim("B")},))).graph
    assert [g.text for g in graph.guards] == ["5 < B"]


def test_two_names_for_equal_sizes() -> None:
    error = refused(RangeError, Sum(), (X, X), ({0: Dim("A")}, {0: Dim("B")}))
    assert error.what == "dimension 0 of input x and dimension 0 of input y were declared A and B, but must be equal"


def test_all_unsupported_ops_at_once() -> None:
    error = refused(UnsupportedOpError, Unsupported(), (X,))
    assert isinstance(error, UnsupportedOpError)
    found = {u.op: u for u in error.ops}
    assert found["aten._linalg_det.default"].count == 2
    assert "pass them in as an input" in found["aten.rand.default"].reason
    assert "depends on values" in found["aten.nonzero.default"].reason
    where = found["aten._linalg_det.default"].where
    assert where is not None
    assert where.source == "a = torch.linalg.det(x)"
    assert "(2 times; first) at" in str(error)


def test_written_input() -> None:
    error = refused(MutationError, Writes(), (X,))
    assert "its input x" in error.what
    assert_line(error, "x.add_(1)")


def test_training_mode() -> None:
    module = nn.Sequential(nn.Linear(8, 4), nn.Dropout(0.5))
    with pytest.raises(TrainingModeError, match=r"1 \(Dropout\) would behave as in training") as caught:
        to_graphs(module, (X,))
    assert caught.value.fix == "call .eval() on the module before exporting"


@pytest.mark.parametrize(
    ("args", "spec", "what"),
    [
        ((X, X), ({0: ANY},), "dynamic_shapes has 1 entries for 2 inputs (x, y)"),
        ((X, X), {"z": None}, "dynamic_shapes names z, the inputs are x, y"),
        ((X, X), ({5: ANY}, None), "dynamic_shapes of x names dim 5, the example has 2 dims"),
        ((X, X), ({0: "B"}, None), "dynamic_shapes holds 'B'"),
        ((X,), None, "missing a required argument: 'y'"),
        ((X, X.to(torch.complex64)), None, "input y: element type complex64 is not supported"),
    ],
)
def test_input_specs(args: tuple[Any, ...], spec: Any, what: str) -> None:
    assert what in refused(InputSpecError, Sum(), args, spec).what


def test_weights_without_data() -> None:
    error = refused(InputSpecError, nn.Linear(8, 2, device="meta"), (X.to("meta"),))
    assert "meta device" in error.what
